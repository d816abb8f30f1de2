"""Rows by id, by place and by likeness, out of files that are larger than what is read."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from data.errors import DaymillError
from data.ledger import Ledger, ledger_table
from data.lookup import nearest, row_numbers, rows_at, rows_with, take
from data.shards import ShardWriter


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lookup") / "ledger.parquet"
    with Ledger(path) as book:
        for part in range(3):  # each more than a row group
            count = 50_000
            columns = {
                "source": f"day/part-{part}.jsonl",
                "line": list(range(1, count + 1)),
                "id": [f"record-{part * count + row:06d}" for row in range(count)],
                "verdict": ["kept"] * count,
                "rule": "",
                "partner": [f"record-{row + 1:06d}" if row % 10_000 == 0 else None for row in range(count)],
            }
            book.extend(ledger_table(columns, count, "ingest"))
        book.add(source="day/broken.xml", verdict="quarantined", stage="ingest", rule="dtd")
        book.add(source="night/part-1.jsonl", verdict="quarantined", stage="ingest", line=17, offset=9, rule="syntax")
    return path


def test_a_row_is_found_by_its_id_and_by_either_of_two_columns(ledger: Path) -> None:
    (row,) = rows_with(ledger, "record-070001", "id")
    assert (row["source"], row["line"]) == ("day/part-1.jsonl", 20_002)
    both = rows_with(ledger, "record-010001", "id", "partner", columns=["id"])
    assert [row["id"] for row in both] == ["record-010000", "record-010001", "record-060000", "record-110000"]
    assert (
        rows_with(ledger, "record-010001", "id", "partner", limit=2)
        == rows_with(ledger, "record-010001", "id", "partner")[:2]
    )
    assert rows_with(ledger, "nobody", "id") == []


def test_row_numbers_and_values_go_over_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string())])
    with ShardWriter(tmp_path, schema, shard_rows=7) as writer:
        writer.write(pa.table({"id": [f"r{row}" for row in range(40)]}))
    assert row_numbers(tmp_path, ["id"], lambda keys: pc.is_in(keys["id"], pa.array(["r3", "r20", "r39"]))) == [
        3,
        20,
        39,
    ]
    assert row_numbers(tmp_path, ["id"], lambda keys: pc.starts_with(keys["id"], "r1"), limit=2) == [1, 10]
    assert take(tmp_path, [39, 0, 20, 20, 7, 40]) == {row: {"id": f"r{row}"} for row in (0, 7, 20, 39)}


def test_a_place_is_found_by_the_last_parts_of_its_source(ledger: Path) -> None:
    assert [row["source"] for row in rows_at(ledger, "part-1.jsonl", 17)] == ["day/part-1.jsonl", "night/part-1.jsonl"]
    assert [row["id"] for row in rows_at(ledger, "day/part-1.jsonl", 17)] == ["record-050016"]
    assert rows_at(ledger, "art-1.jsonl", 17) == []  # not a name, the end of one
    (whole,) = rows_at(ledger, "broken.xml", None)
    assert whole["rule"] == "dtd"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ecord-070001", "record-070001"),
        ("recrod-070001", "record-070001"),
        ("RECORD-070001", "record-070001"),
        ("record-070001 ", "record-070001"),
    ],
)
def test_the_nearest_ids_forgive_a_slip(ledger: Path, typed: str, meant: str) -> None:
    assert meant in nearest(ledger, typed)


def test_nothing_is_near_to_nonsense(ledger: Path) -> None:
    assert nearest(ledger, "zzz") == []


def test_a_file_that_is_none_and_a_column_that_is_not_there_are_named(ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(DaymillError, match=r"text\.parquet is not a readable Parquet file"):
        rows_with(tmp_path / "text.parquet", "a", "id")
    with pytest.raises(DaymillError, match="has no column nom"):
        rows_with(ledger, "a", "nom")


def test_the_time_of_a_question_is_printed(ledger: Path) -> None:
    started = time.process_time()
    assert len(rows_with(ledger, "record-149999", "id")) == 1
    print(f"150,002 rows: {time.process_time() - started:.3f} s of CPU")
