"""A few rows out of large Parquet files: columns that are asked about are read in full, the others where a row fits."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from data.shards import known_columns, opened, shard_files

# How near two ids are is looked at in full for this many only; shared beginnings and ends choose them.
SHORT_LIST = 2_000
WIDEST = 48  # characters of an id that are compared from each end
NEAR_ENOUGH = 0.6  # of difflib's ratio, as its own default

Test = Callable[[pa.Table], Any]  # a table of the tested columns -> which rows match, null counts as no


def find_rows(
    path: str | Path, tested: list[str], test: Test, columns: list[str] | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Rows of a Parquet file or shard folder that pass a test of some columns, in their order.

    All (or the named) columns are read only of row groups where a row passes. Raises DaymillError for an unreadable
    file or a missing column.
    """
    found: list[dict[str, Any]] = []
    for part in parts_of(path):
        with opened(part) as file:
            known_columns(file, [*tested, *(columns or [])], part)
            for group in range(file.num_row_groups):
                passed = pc.fill_null(test(file.read_row_group(group, columns=tested)), False)
                if pc.any(passed).as_py():
                    found += file.read_row_group(group, columns=columns).filter(passed).to_pylist()
                if limit is not None and len(found) >= limit:
                    return found[:limit]
    return found


def row_numbers(path: str | Path, tested: list[str], test: Test, limit: int | None = None) -> list[int]:
    """Where the rows stand that pass a test: their numbers over all files, from 0; the first `limit` of them."""
    found: list[int] = []
    first = 0
    for part in parts_of(path):
        with opened(part) as file:
            known_columns(file, tested, part)
            for group in range(file.num_row_groups):
                keys = file.read_row_group(group, columns=tested)
                found += [first + place for place in pc.indices_nonzero(pc.fill_null(test(keys), False)).to_pylist()]
                first += len(keys)
                if limit is not None and len(found) >= limit:
                    return found[:limit]
    return found


def take(path: str | Path, rows: Iterable[int], columns: list[str] | None = None) -> dict[int, dict[str, Any]]:
    """Rows by their numbers; only row groups that hold one are read. Numbers beyond the end are left out."""
    found: dict[int, dict[str, Any]] = {}
    waiting, first = sorted(set(rows)), 0
    for part in parts_of(path):
        with opened(part) as file:
            known_columns(file, columns, part)
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                here = waiting[bisect_left(waiting, first) : bisect_left(waiting, after)]
                if here:
                    table = file.read_row_group(group, columns=columns).take([row - first for row in here])
                    found |= dict(zip(here, table.to_pylist(), strict=True))
                first = after
    return found


def rows_with(
    path: str | Path, wanted: str, *names: str, columns: list[str] | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Rows where one of the columns `names` equals `wanted`."""

    def test(keys: pa.Table) -> Any:
        passed = pc.equal(keys[names[0]], wanted)
        for name in names[1:]:
            passed = pc.or_kleene(passed, pc.equal(keys[name], wanted))
        return passed

    return find_rows(path, list(names), test, columns, limit)


def rows_at(path: str | Path, source: str, line: int | None) -> list[dict[str, Any]]:
    """Rows of a ledger for a place in a source: `line` None asks for the file as a whole.

    A source is named in full (`dataset/folder/file`) or by its last parts (`file`, `folder/file`).
    """

    def test(keys: pa.Table) -> Any:
        place = pc.is_null(keys["line"]) if line is None else pc.equal(keys["line"], line)
        named = pc.or_kleene(pc.equal(keys["source"], source), pc.ends_with(keys["source"], f"/{source}"))
        return pc.and_kleene(place, named)

    return find_rows(path, ["source", "line"], test)


def nearest(path: str | Path, wanted: str, name: str = "id", count: int = 3) -> list[str]:
    """The values of a column that look most like `wanted`, likest first; case does not count.

    What two values share at their beginning and end, taken over whole columns at once, chooses a short list; difflib
    orders it. So a typing error, a cut or a swap is found among millions in less than a second.
    """
    shortlist: list[tuple[int, str]] = []
    for values in column_of(path, name):
        scores = shared_ends(values, wanted.lower())
        best = pc.array_sort_indices(scores, order="descending")[:SHORT_LIST]
        shortlist += zip(scores.take(best).to_pylist(), values.take(best).to_pylist())
        shortlist = sorted(set(shortlist), key=lambda entry: (-entry[0], entry[1]))[:SHORT_LIST]
    matcher = difflib.SequenceMatcher(b=wanted.lower(), autojunk=False)
    ranked = []
    for _, value in shortlist:
        matcher.set_seq1(value.lower())
        if matcher.real_quick_ratio() >= NEAR_ENOUGH and (ratio := matcher.ratio()) >= NEAR_ENOUGH:
            ranked.append((-ratio, value))
    return [value for _, value in sorted(ranked)[:count]]


def shared_ends(values: pa.Array, wanted: str) -> pa.Array:
    """For each value the characters that it shares with `wanted` from its start, and those from its end."""
    lowered = pc.utf8_lower(values)
    score = pa.repeat(pa.scalar(0, pa.int64()), len(values))
    for backward in (False, True):
        going = pa.repeat(pa.scalar(True), len(values))
        for place in range(min(len(wanted), WIDEST)):
            at = -1 - place if backward else place
            piece = pc.utf8_slice_codeunits(lowered, at, (at + 1) or None)
            going = pc.and_(going, pc.equal(piece, wanted[at]))
            if not pc.any(going).as_py():
                break
            score = pc.add(score, going.cast(pa.int64()))
    return score


def column_of(path: str | Path, name: str) -> Iterator[pa.Array]:
    """A string column, nulls left out, a row group at a time."""
    for part in parts_of(path):
        with opened(part) as file:
            known_columns(file, [name], part)
            for group in range(file.num_row_groups):
                values = file.read_row_group(group, columns=[name])[name].combine_chunks().drop_null()
                if len(values):
                    yield values


def parts_of(path: str | Path) -> list[Path]:
    """The files of a shard folder, or the one file. Raises DaymillError for a folder without shards."""
    path = Path(path)
    return shard_files(path) if path.is_dir() else [path]
