"""More inputs that somebody's pipeline met: each is decided as stated, in little memory, and alike by both parsers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data.check import check_file
from data.ingest import Places, ingest
from data.intake import Intake
from data.readers.item import MB, Limits
from data.records import source_files
from data.shards import read_table
from data.validate import field_map

CASES = Path(__file__).parents[2] / "cases" / "format_more"
EXPECTED: dict[str, dict[str, Any]] = json.loads((CASES / "expect.json").read_text(encoding="utf-8"))


def test_every_case_has_an_expectation() -> None:
    assert {path.name for path in CASES.iterdir()} == {*EXPECTED, "expect.json"}


@pytest.mark.parametrize("name", EXPECTED)
def test_case(name: str) -> None:
    expected = EXPECTED[name]
    result = check_file(CASES / name)
    assert (result.kept, result.quarantined) == (expected["kept"], expected["quarantined"])
    if "lines" in expected:
        assert {str(entry["line"]): entry["rule"] for entry in result.entries} == expected["lines"]
    if "rule" in expected:
        assert [entry["rule"] for entry in result.entries] == [expected["rule"]]
    records = [record for batch in Intake(field_map(), Limits()).decide(name, CASES / name) for record in batch.kept]
    assert [record.text for record in records] == expected.get("texts", [record.text for record in records])
    assert [record.id for record in records] == expected.get("ids", [record.id for record in records])


def test_the_largest_record_and_one_byte_more(tmp_path: Path) -> None:
    begin, end = b'{"id":"1","text":"', b'"}'
    room = 10 * MB - len(begin) - len(end)
    path = tmp_path / "a.jsonl"
    path.write_bytes(begin + b"a" * room + end + b"\n" + begin.replace(b"1", b"2") + b"a" * (room + 1) + end + b"\n")
    result = check_file(path)
    assert result.kept == 1 and result.entries == [{"line": 2, "offset": 10 * MB + 1, "rule": "size"}]


def test_a_thousand_tiny_files(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(1000):
        (folder / f"{i:04d}.jsonl").write_text(
            json.dumps({"id": i, "text": f"t{i}"}) + ("\n{" if i % 100 == 0 else "\n")
        )
    places = Places(tmp_path / "records", tmp_path / "quarantine.jsonl", tmp_path / "ledger.parquet")
    report = ingest(source_files(folder), places, field_map(), Limits())
    assert (report.kept, report.quarantined, len(report.tallies)) == (1000, 10, 1000)
    assert read_table(places.records, ["id"])["id"].to_pylist() == [str(i) for i in range(1000)]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
