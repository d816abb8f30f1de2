"""Joined segments have the bytes of one writer; ids in the table have the digests of the published SipHash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.errors import DaymillError
from data.id_table import IdTable, siphash128
from data.parquet_join import join_parquet
from data.shards import RECORD_SCHEMA, parquet_writer


def group(rows: int, seed: int) -> pa.Table:
    columns = [
        [f"{seed}-{i}-{name}" * (i % 7) if name != "group" else None for i in range(rows)]
        for name in RECORD_SCHEMA.names
    ]
    return pa.table(columns, schema=RECORD_SCHEMA)


@pytest.mark.parametrize("rows", [[5], [10, 3000, 1], [4] * 20])
def test_joined_as_if_by_one_writer(tmp_path: Path, rows: list[int]) -> None:
    groups = [group(count, seed) for seed, count in enumerate(rows)]
    segments = [tmp_path / f"{seed}.parquet" for seed in range(len(rows))]
    with parquet_writer(tmp_path / "whole.parquet", RECORD_SCHEMA) as whole:
        for table, path in zip(groups, segments):
            whole.write_table(table, row_group_size=len(table))
            with parquet_writer(path, RECORD_SCHEMA) as one:
                one.write_table(table, row_group_size=len(table))
    join_parquet(segments, tmp_path / "joined.parquet")
    assert (tmp_path / "joined.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"PAR1\x00\x00\x00\xffPAR1"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a").write_bytes(damage)
    with pytest.raises(DaymillError, match="not a whole Parquet file"):
        join_parquet([tmp_path / "a"], tmp_path / "b")


@pytest.mark.parametrize(
    ("size", "digest"),
    [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")],
)
def test_digests_of_the_reference(size: int, digest: str) -> None:
    """vectors_sip128 of the authors' implementation: key 00 01 ... 0f, input 00 01 ..."""
    low, high = siphash128(np.arange(64, dtype=np.uint8), np.int32(0), np.int32(size))
    assert (int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")).hex() == digest


def test_the_table_is_a_set_while_it_grows() -> None:
    table, model = IdTable(slots=4), set()
    draw = np.random.default_rng(3)
    for _ in range(30):
        ids = [str(number) for number in draw.integers(0, 3000, 200)]
        expected = []
        for id_ in ids:
            expected.append(id_ not in model)
            model.add(id_)
        ends = np.cumsum([0] + [len(id_) for id_ in ids]).astype(np.int32)
        assert table.admit(np.frombuffer("".join(ids).encode(), np.uint8), ends).tolist() == expected
    assert table.count == len(model)
