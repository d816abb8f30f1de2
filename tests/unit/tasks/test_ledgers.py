"""`daymill why` and `daymill ledger` on a project whose stages have run."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from data.errors import DaymillError
from data.ledger import Ledger
from data.shards import KEPT_SCHEMA, RECORD_SCHEMA, ShardWriter
from flows import cli
from tasks import ledgers

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five records in, one refused, one dropped, one of each part."""
    (tmp_path / "params.yaml").write_text("clean: {quality: {min_words: 2, max_chars: null}, similarity: 0.8}\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    artifacts = tmp_path / "artifacts"
    rows = [{"id": f"n{number}", "text": f"secret words {number}", "source": "day/a.jsonl"} for number in range(4)]
    with Ledger(artifacts / "ingest/ledger.parquet") as book:
        for number, row in enumerate(rows):
            book.add(source="day/a.jsonl", verdict="kept", stage="ingest", id=row["id"], line=number + 1, offset=number)
        book.add(source="day/b.jsonl", verdict="quarantined", stage="ingest", line=1, offset=0, rule="syntax")
    write(artifacts / "ingest/records", RECORD_SCHEMA, rows)
    (artifacts / "metrics").mkdir()
    (artifacts / "metrics/ingest.json").write_text('{"rows_in": 5}')
    with Ledger(artifacts / "clean/ledger.parquet") as book:
        at: dict[str, Any] = {"source": "day/a.jsonl", "stage": "clean"}
        book.add(id="n0", verdict="dropped", rule="min_words", score=1.0, **at)
        for number in (1, 2, 3):
            book.add(id=f"n{number}", verdict="kept", **at)
    write(artifacts / "clean/records", KEPT_SCHEMA, [row | {"weight": 1.0} for row in rows[1:]])
    with Ledger(artifacts / "split/ledger.parquet") as book:
        for row, part in zip(rows[1:], ("train", "valid", "test")):
            book.add(id=row["id"], source="day/a.jsonl", stage="split", verdict="kept", note=part)
            write(artifacts / "split" / part, RECORD_SCHEMA, [row])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    with ShardWriter(folder, schema) as writer:
        writer.write(pa.Table.from_pylist(rows, schema=schema))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert cli.main(arguments) == code
    return capsys.readouterr().out


def test_why_prints_a_story_and_what_has_not_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "why", "n0")
    assert "dropped by clean: min_words" in said and "day/a.jsonl, line 1, byte 0" in said
    assert "clean.quality.min_words <= 1 would keep it" in said
    assert "has not run yet" in said and "secret" not in said
    assert "secret words 2" in printed(capsys, "why", "n2", "--text")
    assert "kept, in valid" in printed(capsys, "why", "n2")
    assert json.loads(printed(capsys, "why", "b.jsonl:1", "--json"))["ingest"]["rule"] == "syntax"


def test_why_an_unknown_record_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["why", "nn2"]) == 1
    assert "the nearest ids: n2" in capsys.readouterr().err


def test_a_stage_of_an_earlier_run_is_stale_and_no_record_is_called_lost(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = (project / "artifacts/split/ledger.parquet").stat().st_mtime + 5
    with Ledger(project / "artifacts/clean/ledger.parquet") as book:
        for number in range(4):
            verdict = {"verdict": "kept"} if number > 1 else {"verdict": "dropped", "rule": "min_words"}
            book.add(id=f"n{number}", source="day/a.jsonl", stage="clean", **verdict)
    shutil.rmtree(project / "artifacts/clean/records")
    rows = [{"id": f"n{n}", "text": "words", "source": "day/a.jsonl", "weight": 1.0} for n in (2, 3)]
    write(project / "artifacts/clean/records", KEPT_SCHEMA, rows)
    os.utime(project / "artifacts/clean/ledger.parquet", (later, later))
    said = printed(capsys, "ledger")
    assert "split is of an earlier run" in said and "NOT CONSERVED" not in said and "clean: 4 in = 2 kept" in said
    assert json.loads(printed(capsys, "ledger", "--json"))["stale"] == ["split"]
    assert cli.main(["ledger", "--stage", "split"]) == 1
    assert "daymill run --until split" in capsys.readouterr().err
    shutil.rmtree(project / "artifacts/clean")  # as a killed stage leaves it
    said = printed(capsys, "ledger")
    assert "ingest: 5 in" in said and "split is of an earlier run" in said


def test_ledger_counts_everything_and_says_that_it_adds_up(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "ledger", "--samples", "2")
    assert "ingest: 5 in = 4 kept + 0 dropped + 1 quarantined" in said
    assert "clean: 4 in = 3 kept + 1 dropped + 0 quarantined" in said
    assert "split: 3 in = 3 kept + 0 dropped + 0 quarantined" in said
    assert "n0" in said and "secret" not in said
    assert "secret words 0" in printed(capsys, "ledger", "--samples", "2", "--text")
    only = json.loads(printed(capsys, "ledger", "--rule", "min_words", "--json"))
    assert [(count["stage"], count["level"], count["records"]) for count in only["counts"]] == [("clean", "quality", 1)]


def test_ledger_writes_its_counts_as_csv(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "ledger", "--csv", "counts.csv", "--stage", "ingest")
    rows = list(csv.DictReader((project / "counts.csv").open()))
    assert [(row["rule"], row["source"], row["records"]) for row in rows] == [
        ("", "day/a.jsonl", "4"),
        ("syntax", "day/b.jsonl", "1"),
    ]


def test_a_lost_record_ends_it_with_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "artifacts/metrics/ingest.json").write_text('{"rows_in": 6}')
    assert "ingest: NOT CONSERVED: 6 records came in, 5 were decided" in printed(capsys, "ledger", code=1)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"stage": "claen"}, "no ledger of a stage 'claen', did you mean `clean`"),
        ({"rule": "min_word"}, "no record was decided by rule 'min_word', did you mean `min_words`"),
        ({"source": "c.jsonl"}, "no record came from 'c.jsonl'"),
        ({"source": "b.jsonl", "rule": "min_words"}, "no record of source 'b.jsonl' was decided by rule 'min_words'"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(project: Path, asked: dict[str, str], told: str) -> None:
    with pytest.raises(DaymillError, match=told):
        ledgers.counts(project, **asked)


def test_the_project_s_own_parameters_are_understood() -> None:
    knobs = ledgers.knobs(ROOT)
    assert len(knobs.quality) > 5 and knobs.similarity is not None


@pytest.mark.parametrize("text", ["ingest: {}", "clean: {quality: {min_wrods: 1}, similarity: 0.8}", "clean: {}"])
def test_parameters_that_clean_would_refuse_are_refused(project: Path, text: str) -> None:
    (project / "params.yaml").write_text(text)
    assert cli.main(["why", "n0"]) == 2


def test_before_any_stage_ran(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="no ledger yet"):
        ledgers.counts(tmp_path)
