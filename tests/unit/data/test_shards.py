"""Record shards: bounded number of files, same bytes for the same rows, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import data.shards as shards
from data.errors import DaymillError
from data.shards import RECORD_SCHEMA, ShardWriter, count_rows, read_shards, read_table, shard_files


def records(start: int, stop: int) -> pa.Table:
    ids = [f"r{i}" for i in range(start, stop)]
    nulls = pa.nulls(len(ids), pa.string())
    text = pa.array([f"text {i}" for i in ids], pa.string())
    source = pa.array(["demo/a.jsonl"] * len(ids), pa.string())
    extra = pa.array(["{}"] * len(ids), pa.string())
    return pa.table([pa.array(ids, pa.string()), text, nulls, nulls, nulls, nulls, source, extra], schema=RECORD_SCHEMA)


def write(folder: Path, sizes: list[int], **options: int) -> None:
    start = 0
    with ShardWriter(folder, **options) as writer:
        for size in sizes:
            writer.write(records(start, start + size))
            start += size


def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, [7, 0, 5, 11], shard_rows=10)
    assert read_table(tmp_path).equals(records(0, 23))
    assert [len(p.read_bytes()) > 0 for p in shard_files(tmp_path)] == [True] * 3
    assert count_rows(tmp_path) == 23


def test_batches_and_columns(tmp_path: Path) -> None:
    write(tmp_path, [25], shard_rows=10)
    batches = list(read_shards(tmp_path, ["id"], batch_rows=4))
    assert max(batch.num_rows for batch in batches) <= 4
    assert [i for batch in batches for i in batch["id"].to_pylist()] == [f"r{i}" for i in range(25)]


def test_bytes_do_not_depend_on_how_rows_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "GROUP_ROWS", 6)
    write(tmp_path / "a", [40], shard_rows=15)
    write(tmp_path / "b", [1, 2, 20, 17], shard_rows=15)
    assert [p.read_bytes() for p in shard_files(tmp_path / "a")] == [
        p.read_bytes() for p in shard_files(tmp_path / "b")
    ]


def test_bytes_differ_when_a_row_differs(tmp_path: Path) -> None:
    write(tmp_path / "a", [4])
    write(tmp_path / "b", [5])
    assert shard_files(tmp_path / "a")[0].read_bytes() != shard_files(tmp_path / "b")[0].read_bytes()


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, [10] * 200, shard_rows=3, max_shards=8)
    assert len(shard_files(tmp_path)) == 8
    assert count_rows(tmp_path) == 2000


def test_an_empty_stream_still_has_a_schema(tmp_path: Path) -> None:
    write(tmp_path, [])
    assert read_table(tmp_path).schema.equals(RECORD_SCHEMA)
    assert count_rows(tmp_path) == 0


def test_a_failed_writer_leaves_no_half_part(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ShardWriter(tmp_path, shard_rows=10) as writer:
        writer.write(records(0, 25))
        raise RuntimeError("killed")
    assert count_rows(tmp_path) == 20
    assert not list(tmp_path.glob(".part*"))


def test_large_rows_are_flushed_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "GROUP_BYTES", 1000)
    groups = []
    for name, batches in (("a", [20] * 5), ("b", [1] * 100), ("c", [7, 93])):
        write(tmp_path / name, batches)
        with shards.opened(shard_files(tmp_path / name)[0]) as file:
            groups.append([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
    assert groups[0] == groups[1] == groups[2] and len(groups[0]) > 1


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, change: str) -> None:
    table = records(0, 2)
    table = table.drop_columns(["label"]) if change == "missing" else table.append_column("x", table["id"])
    with pytest.raises(DaymillError, match=change), ShardWriter(tmp_path) as writer:
        writer.write(table)


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="no record shards"):
        read_table(tmp_path)
    (tmp_path / "part-00000.parquet").write_bytes(b"not parquet")
    with pytest.raises(DaymillError, match="not a readable Parquet file"):
        count_rows(tmp_path)
    with pytest.raises(DaymillError, match="already holds shards"):
        ShardWriter(tmp_path)


def test_a_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, [3])
    with pytest.raises(DaymillError, match="no column cluster"):
        list(read_shards(tmp_path, ["id", "cluster"]))
