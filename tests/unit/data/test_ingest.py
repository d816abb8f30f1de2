"""Ingest conserves records, writes the same bytes again, and says what is wrong with a source as a whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import data.intake as intake_module
from data.drift import drift_warnings
from data.errors import DaymillError
from data.ingest import IngestReport, Places, ingest, read_quarantine
from data.ledger import check_conservation, read_ledger
from data.readers.item import Limits
from data.records import source_files
from data.shards import read_table, shard_files
from data.validate import field_map

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "cases" / "format"


def places(folder: Path) -> Places:
    folder.mkdir(exist_ok=True)
    return Places(folder / "records", folder / "quarantine.jsonl", folder / "ledger.parquet")


def take_in(source: Path, out: Path, mapping: dict[str, Any] | None = None, **options: Any) -> IngestReport:
    return ingest(source_files(source), places(out), field_map(mapping), Limits(**options))


def source(folder: Path, **files: list[Any]) -> Path:
    """A folder of JSONL files: records, or lines as they are."""
    folder.mkdir()
    for name, records in files.items():
        lines = [item if isinstance(item, str) else json.dumps(item) for item in records]
        (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def test_all_format_cases_as_one_source(tmp_path: Path) -> None:
    folder = shutil.copytree(CASES, tmp_path / "cases")
    (folder / "expect.json").rename(folder / "expect.txt")
    report = take_in(folder, tmp_path / "out")
    out = places(tmp_path / "out")
    entries = read_quarantine(out.quarantine)
    ledger = read_ledger(out.ledger)
    assert report.rows_in == report.kept + report.quarantined == ledger.num_rows
    assert check_conservation(report.rows_in, out.ledger)["kept"] == report.kept == read_table(out.records).num_rows
    assert len(entries) == report.quarantined
    ids = read_table(out.records, ["id"])["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    assert [row["id"] for row in ledger.to_pylist() if row["verdict"] == "kept"] == ids
    metrics = report.metrics()
    assert metrics["rules"]["unknown-type"] == 1 and sum(metrics["rules"].values()) == report.quarantined
    assert sum(file["kept"] for file in metrics["files"].values()) == report.kept
    assert metrics["byte_order_marks"] == 1 and metrics["blank_lines"] == 3


def test_a_quarantine_entry_has_its_place_and_bytes(tmp_path: Path) -> None:
    folder = source(
        tmp_path / "demo", a=[{"id": 1, "text": "t"}, '{"id": 2, "text": NaN}', {"id": "1", "text": "again"}]
    )
    take_in(folder, tmp_path / "out", raw_bytes=12)
    number, duplicate = read_quarantine(places(tmp_path / "out").quarantine)
    assert number == {
        "source": "demo/a.jsonl",
        "line": 2,
        "offset": 23,
        "rule": "number",
        "note": "NaN is not a JSON number",
        "bytes": 22,
        "raw": b'{"id": 2, "t',
    }
    assert (duplicate["rule"], duplicate["line"]) == ("duplicate-id", 3)


def test_records_have_their_source_and_all_columns(tmp_path: Path) -> None:
    record = {"key": 7, "body": "t", "is_fraud": True, "group": "north", "date": "2024-05-01", "n": 1}
    take_in(source(tmp_path / "demo", a=[record]), tmp_path / "out", {"id": "key", "text": "body", "label": "is_fraud"})
    assert read_table(places(tmp_path / "out").records).to_pylist() == [
        {
            "id": "7",
            "text": "t",
            "label": "true",
            "group": "north",
            "entity": None,
            "date": "2024-05-01",
            "source": "demo/a.jsonl",
            "extra": '{"n":1}',
        }
    ]


def test_a_repaired_record_is_kept_with_a_note(tmp_path: Path) -> None:
    report = take_in(source(tmp_path / "demo", a=[{"text": "t", "date": "in May"}]), tmp_path / "out")
    row = read_ledger(places(tmp_path / "out").ledger).to_pylist()[0]
    assert (row["verdict"], row["rule"]) == ("repaired", "date") and "ISO 8601" in row["note"]
    assert report.metrics()["repaired"] == report.kept == 1


def test_ids_are_unique_over_files_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "BATCH_ROWS", 3)
    records = [{"id": i % 10, "text": f"t{i}"} for i in range(25)]
    report = take_in(source(tmp_path / "demo", a=records, b=records), tmp_path / "out")
    assert (report.kept, report.metrics()["rules"]) == (10, {"duplicate-id": 40})


def test_drift_between_files_is_reported(tmp_path: Path) -> None:
    first = {"id": "1", "text": "t", "score": 1, "url": None}
    second = {"id": "2", "text": "t", "score": "high", "url": "x", "lang": "en"}
    report = take_in(source(tmp_path / "demo", a=[first], b=[second], c=[first | {"id": "3"}]), tmp_path / "out")
    assert report.metrics()["schema_drift"] == {
        "demo/b.jsonl": {"added": ["lang"], "types": {"score": "number -> string"}}
    }
    assert drift_warnings(report.metrics()["schema_drift"]) == [
        "demo/b.jsonl: other fields than the first file: new lang; score: number -> string"
    ]
    many = {f"demo/{i}.jsonl": {"missing": ["url"]} for i in range(7)}
    assert len(drift_warnings(many)) == 6 and "and 2 more files" in drift_warnings(many)[-1]
    assert drift_warnings(many)[0] == "demo/0.jsonl: other fields than the first file: without url"


def test_a_mapping_that_fits_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = source(tmp_path / "demo", a=[{"id": i, "body": "canary", "is_fraud": 1} for i in range(9)])
    with pytest.raises(DaymillError, match=r"`text`.*fields seen: id, body, is_fraud") as caught:
        take_in(folder, tmp_path / "out")
    assert "canary" not in str(caught.value)
    with pytest.raises(DaymillError, match=r"`is_frod`, did you mean `is_fraud`\?"):
        take_in(folder, tmp_path / "out2", {"text": "body", "label": "is_frod"})
    monkeypatch.setattr(intake_module, "GIVE_UP_AFTER", 4)
    monkeypatch.setattr(intake_module, "BATCH_ROWS", 2)
    with pytest.raises(DaymillError, match="in none of 4 records"):
        take_in(folder, tmp_path / "out3")


def test_nothing_kept_is_an_error_with_places_only(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="no record at all"):
        take_in(source(tmp_path / "empty", a=[]), tmp_path / "out")
    folder = source(tmp_path / "demo", a=['{"text": canary}'] * 9)
    with pytest.raises(DaymillError, match=r"demo/a.jsonl:1: syntax") as caught:
        take_in(folder, tmp_path / "out2")
    assert "canary" not in str(caught.value) and str(caught.value).count("demo/a.jsonl") == 5


CHILD = """
import sys
from pathlib import Path
from data.ingest import Places, ingest
from data.readers.item import Limits
from data.records import source_files
from data.validate import field_map
out = Path(sys.argv[2])
places = Places(out / "records", out / "quarantine.jsonl", out / "ledger.parquet")
ingest(source_files(sys.argv[1]), places, field_map(), Limits())
"""


def test_the_same_files_give_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    records: list[Any] = [{"text": f"t{i % 50}", "b": i % 3, "a": {"x": 1, "y": [i % 2]}} for i in range(400)]
    folder = source(tmp_path / "demo", b=records[:200], a=[*records[200:], "{", "[]"])
    outputs = []
    for seed in ("1", "2"):
        out = tmp_path / f"out{seed}"
        out.mkdir()
        subprocess.run(
            [sys.executable, "-c", CHILD, str(folder), str(out)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        made = places(out)
        outputs.append([path.read_bytes() for path in (*shard_files(made.records), made.quarantine, made.ledger)])
    assert outputs[0] == outputs[1]
