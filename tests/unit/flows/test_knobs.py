"""All sections are checked before the first stage runs, all that is wrong is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import knobs
from flows.presets import UsageError

PARAMS = """\
ingest:
  source: input/
  shard_rowz: 5
tokenize:
  vocab_size: many
  max_chars: 20000
  max_token_length: 24
"""


def test_every_wrong_key_of_every_stage_is_named(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    with pytest.raises(UsageError) as raised:
        knobs.check(tmp_path, ["ingest", "tokenize"])
    told = str(raised.value)
    assert "params.yaml:3: ingest.shard_rowz: unknown key, did you mean `shard_rows`?" in told
    assert "params.yaml:5: tokenize.vocab_size: got 'many'" in told
    assert "Traceback" not in told


def test_stages_that_need_a_classifier_are_refused_before_any_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = (Path(__file__).parents[3] / "params.yaml").read_text()
    assert shipped.count("objective: classify") == 1
    (tmp_path / "params.yaml").write_text(shipped.replace("objective: classify", "objective: summarize"))
    assert knobs.problems(["ingest", "finetune"]) == []
    (told,) = knobs.problems(["ingest", "prune"])
    assert "finetune.objective is summarize" in told and "--until finetune" in told
    (tmp_path / "params.yaml").write_text(shipped)
    assert knobs.problems(["ingest", "prune"]) == []
