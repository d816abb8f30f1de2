"""The embedded inference server: started, asked, ended; and what a user sees when it cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.errors import DaymillError
from flows import questions
from flows.serve import Serve
from serving.server import Settings
from tests.tiny_bundle import LABELS, make_bundle

pytestmark = pytest.mark.slow


def test_three_answers_with_label_score_and_version(tmp_path: Path) -> None:
    version = make_bundle(tmp_path / "bundle").manifest.version
    answers = questions.ask(tmp_path, tmp_path / "bundle")
    assert [answer["question"] for answer in answers] == list(questions.QUESTIONS)
    for answer in answers:
        assert answer["version"] == version and answer["label"] in LABELS and 0 <= answer["score"] <= 1
        assert answer["milliseconds"] > 0


def test_a_damaged_bundle_is_told_in_the_server_s_words(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    (tmp_path / "bundle/model.onnx").write_bytes(b"no graph")
    with pytest.raises(DaymillError, match=r"model\.onnx is not the file of the manifest"):
        questions.ask(tmp_path, tmp_path / "bundle")


def test_knobs_reach_the_server() -> None:
    knobs = Serve(
        threads=2,
        max_rows=8,
        max_tokens=512,
        max_wait_ms=0.0,
        queue_rows=64,
        request_rows=32,
        request_text_bytes=100,
        request_body_bytes=1000,
        poll_s=1.0,
        drain_s=5,
    )
    settings = knobs.settings()
    assert isinstance(settings, Settings)
    assert (settings.call.max_rows, settings.call.queue_rows, settings.request.body_bytes) == (8, 64, 1000)
    assert (settings.threads, settings.poll_s, settings.drain_s) == (2, 1.0, 5)
