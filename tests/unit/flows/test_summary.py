"""summary.json from the stages' reports, and the words that a person gets of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from data.errors import DaymillError
from flows import artifacts, summary
from flows.report import next_commands
from flows.settings import STAGES
from flows.terminal import render, show_summary

RAN = {name: "cached" if name == "ingest" else "ran" for name in STAGES}

REPORTS: dict[str, dict[str, Any]] = {
    "finetune/report.json": {
        "test": {
            "rows": 1179,
            "f1": 0.9712,
            "f1_low": 0.961,
            "f1_high": 0.9803,
            "tfidf_f1": 0.9751,
            "majority_f1": 0.0,
            "paired_diff": -0.0039,
            "paired_low": -0.0131,
            "paired_high": 0.0052,
            "accuracy": 0.98,
        }
    },
    "prune/report.json": {
        "prunable_kept": 0.371,
        "controls": {"ours": {"f1": 0.968}, "random": {"f1": 0.941}, "drop_layers": {"f1": 0.9551}},
    },
    "quantize/report.json": {
        "test": {"rows": 1179, "f1": 0.967},
        "compression": {
            "prunable_kept": 0.371,
            "f1_unpruned_fp32": 0.9712,
            "f1_final": 0.967,
            "paired_low": -0.0101,
            "paired_high": 0.0022,
        },
    },
    "export/report.json": {
        "parity": {"rows": 1179, "fp32_max_diff": 3.1e-06, "fp32_flips": 0, "engines": {}},
        "files": {
            "unpruned.onnx": {"bytes": 20_000_000, "graph": "unpruned", "precision": "fp32", "source": "unpruned"},
            "int8.onnx": {"bytes": 3_600_000, "graph": "int8", "precision": "int8", "source": "quantized"},
        },
        "four_bit": {"refused": True, "max_diff": 2.5},
    },
    "benchmark/benchmark.json": {
        "choice": {
            "engine": "openvino",
            "precision": "int8",
            "graph": "int8.onnx",
            "speedup_b1": 4.91,
            "speedup_b32": 9.4,
            "file_share": 0.18,
            "released_flip_share": 0.0017,
            "reason": "fastest that passes",
        },
        "rows": [
            {"engine": engine, "precision": precision, "graph": graph, "batch": batch, "seq": seq, "median_ms": ms}
            for engine, precision, graph, ms in [("eager", "fp32", "unpruned", 7.5), ("openvino", "int8", "int8", 1.5)]
            for batch in (1, 32)
            for seq in (32, 128, 256)
        ],
    },
    "bundle/manifest.json": {"runtime": {"package": "openvino"}, "precision": "int8", "version": "0123456789ab"},
}
GATE = {"verdict": "PROMOTE", "reasons": ["no champion yet"], "version": "0123456789ab", "champion": "0123456789ab"}
ANSWERS = [{"question": "a fraudster", "label": "spam", "score": 0.97, "version": "0123456789ab", "milliseconds": 2.5}]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, report in REPORTS.items():
        path = tmp_path / "artifacts" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(report))
    (tmp_path / "artifacts/metrics").mkdir()
    for name in STAGES:
        metrics = {"seconds": 1.25, "rows_in": 6046, "rows_out": 5000, "key": f"key of {name}", "peak_mb": 100}
        (tmp_path / f"artifacts/metrics/{name}.json").write_text(json.dumps(metrics))
    return tmp_path


def text_of(found: dict[str, Any], width: int) -> str:
    out = io.StringIO()
    render(found, Console(file=out, width=width, no_color=True))
    return out.getvalue()


def test_keys_are_those_that_were_promised(root: Path) -> None:
    found = summary.write(root, "release", RAN, 0.0, GATE, ANSWERS)
    assert json.loads((root / "artifacts/summary.json").read_text()) == found
    assert list(found["stages"]) == list(STAGES)
    assert found["stages"]["clean"] == {
        "seconds": 1.25,
        "in": 6046,
        "out": 5000,
        "key": "key of clean",
        "peak_mb": 100,
        "state": "ran",
    }
    assert {"rows", "f1", "f1_low", "f1_high", "tfidf_f1", "majority_f1"} <= set(found["test"])
    assert {"prunable_kept", "file_share", "f1_unpruned_fp32", "f1_final"} <= set(found["compression"])
    assert found["parity"] == {
        "rows": 1179,
        "fp32_max_diff": 3.1e-06,
        "fp32_flips": 0,
        "released_flip_share": 0.0017,
    }
    assert {"engine", "precision", "bundle", "speedup_b1", "speedup_b32"} <= set(found["released"])
    assert found["released"]["latency"] == [
        {"batch": 1, "seq": 128, "before_ms": 7.5, "after_ms": 1.5},
        {"batch": 32, "seq": 128, "before_ms": 7.5, "after_ms": 1.5},
    ]


@pytest.mark.parametrize("until", range(len(STAGES) + 1))
def test_a_run_that_stops_earlier_tells_what_it_reached(root: Path, until: int) -> None:
    reached = dict.fromkeys(STAGES[:until], "ran")
    found = summary.write(root, "release", reached, 0.0, None, None)
    assert (found["test"] is None) == (until <= STAGES.index("finetune"))
    assert (found["released"] is None) == (until <= STAGES.index("bundle"))
    assert f"{until} stages ran" in text_of(found, 100)
    assert artifacts.summary(found) and artifacts.stages(found)


def test_missing_reports_are_no_error(tmp_path: Path) -> None:
    found = summary.write(tmp_path, "release", RAN, 0.0, None, None)
    assert found["test"] is found["released"] is found["compression"] is found["parity"] is found["controls"] is None
    assert "ingest" in text_of(found, 80)


def test_a_person_finds_what_they_look_for(root: Path) -> None:
    told = text_of(summary.write(root, "release", RAN, 0.0, GATE, ANSWERS), 100)
    for words in (
        "0.9712 (95 % 0.9610 to 0.9803)",
        "0.9751 (ours -0.0039, paired 95 % -0.0131 to +0.0052)",
        "0.9670 (-0.0042, paired 95 % -0.0101 to +0.0022)",
        "20.0 MB -> 3.6 MB (18.0%)",
        "4.9x at batch 1, 9.4x at batch 32",
        "7.5 -> 1.5 ms a call of 128 tokens",
        "largest difference 3.1e-06, 0 flips",
        "0.17% of the decisions differ",
        "F1, random pruning",
        "refused by parity",
        "artifacts/bundle",
        "PROMOTE",
        "a fraudster",
        "daymill serve",
        "11 stages ran, 1 cached",
    ):
        assert words in told, words


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(root: Path, width: int) -> None:
    told = text_of(summary.write(root, "release", RAN, 0.0, GATE, ANSWERS), width)
    assert max(map(len, told.splitlines())) <= width


def test_plain_text_in_a_pipe(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary.write(root, "release", RAN, 0.0, GATE, ANSWERS)
    show_summary(root)
    assert "\x1b" not in capsys.readouterr().out


def test_before_the_first_run_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="daymill run"):
        show_summary(tmp_path)


def test_markdown_has_all_sections(root: Path) -> None:
    told = artifacts.summary(summary.write(root, "release", RAN, 0.0, GATE, ANSWERS))
    assert "### Gate: PROMOTE" in told and "| a fraudster | spam | 0.970 | 0123456789ab |" in told


def test_configuration_shows_what_was_told_and_what_changed() -> None:
    told = artifacts.configuration("my/", "clean", "quick", ["a.b: 1 -> 2"], {"a": {"b": 2}})
    assert "| my/ | clean | quick |" in told and "- `a.b: 1 -> 2`" in told and "a:\n  b: 2" in told


def test_a_model_that_answers_is_not_said_to_have_stages_ahead() -> None:
    def told(stages: list[str], test: dict[str, Any] | None) -> str:
        return "\n".join(next_commands({"stages": dict.fromkeys(stages), "test": test, "gate": None}))

    assert "daymill run " in told(["ingest"], None) and "released model" in told(["ingest"], None)
    assert "released model" in told(["ingest", "finetune"], {"f1": 0.9})
    assert "released model" not in told(["ingest", "finetune"], None)
