"""The ledger: one row for every input record and decision of a stage, so that no record is lost unseen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.errors import DaymillError
from data.shards import conform, parquet_writer

LEDGER_SCHEMA = pa.schema(
    [
        ("source", pa.string()),  # dataset/file, as in the records
        ("line", pa.int64()),  # 1-based, lines end at LF only; the row number for Parquet
        ("offset", pa.int64()),  # byte in the (decompressed) file; null for Parquet
        ("id", pa.string()),  # null where it could not be read
        ("verdict", pa.string()),
        ("stage", pa.string()),
        ("rule", pa.string()),  # "" where no rule spoke
        ("score", pa.float64()),
        ("partner", pa.string()),  # the id that a duplicate is a duplicate of
        ("similarity", pa.float64()),
        ("note", pa.string()),
    ]
)
VERDICTS = ("kept", "dropped", "quarantined", "repaired")
FLUSH_ROWS = 50_000


class Ledger:
    """Writes a ledger file in bounded memory; the file appears under its name when complete.

    `with Ledger(path) as ledger: ledger.add(...)`. On an exception inside the block no file is left.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self.counts = dict.fromkeys(VERDICTS, 0)
        self._beside = self.path.with_name(f".{self.path.name}.part")
        self._writer = parquet_writer(self._beside, LEDGER_SCHEMA)
        self._added: list[tuple[Any, ...]] = []
        self._tables: list[pa.Table] = []
        self._waiting = 0

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._writer.close()
            self._beside.unlink(missing_ok=True)

    def add(
        self,
        *,
        source: str,
        verdict: str,
        stage: str,
        id: str | None = None,
        line: int | None = None,
        offset: int | None = None,
        rule: str = "",
        score: float | None = None,
        partner: str | None = None,
        similarity: float | None = None,
        note: str | None = None,
    ) -> None:
        """One decision. Raises ValueError for a verdict that is none of VERDICTS."""
        if verdict not in self.counts:
            raise ValueError(f"verdict {verdict!r} is none of {VERDICTS}")
        self._added.append((source, line, offset, id, verdict, stage, rule, score, partner, similarity, note))
        if len(self._added) >= FLUSH_ROWS:
            self._take_added()

    def extend(self, table: pa.Table | pa.RecordBatch) -> None:
        """Many decisions at once: columns as LEDGER_SCHEMA. Raises ValueError for an unknown verdict."""
        self._take_added()
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        self._take(conform(table, LEDGER_SCHEMA))

    def close(self) -> None:
        self._take_added()
        self._flush()
        self._writer.close()
        self._beside.rename(self.path)

    def _take_added(self) -> None:
        if self._added:
            columns = zip(*self._added)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, LEDGER_SCHEMA)]
            self._added = []
            self._take(pa.table(arrays, schema=LEDGER_SCHEMA))

    def _take(self, table: pa.Table) -> None:
        for verdict, count in verdict_counts(table).items():
            self.counts[verdict] += count
        self.rows += table.num_rows
        self._tables.append(table)
        self._waiting += table.num_rows
        if self._waiting >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._tables).combine_chunks())
            self._tables, self._waiting = [], 0


def ledger_table(columns: Mapping[str, Any], rows: int, stage: str) -> pa.Table:
    """A table for `Ledger.extend` from some of its columns (lists, or one value for all rows); the rest are null."""
    arrays = []
    for field in LEDGER_SCHEMA:
        values = stage if field.name == "stage" else columns.get(field.name)
        if values is None or isinstance(values, str | int | float):
            values = pa.repeat(pa.scalar(values, field.type), rows)
        elif not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values, field.type)
        arrays.append(values)
    return pa.table(arrays, schema=LEDGER_SCHEMA)


def read_ledger(path: str | Path, columns: list[str] | None = None) -> pa.Table:
    """A ledger file as a table. Raises DaymillError where it is missing or unreadable."""
    try:
        return pq.read_table(path, columns=columns)
    except FileNotFoundError:
        raise DaymillError(f"no ledger at {path}: run the stage that writes it") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DaymillError(f"{path} is not a readable ledger ({error}); run the stage that wrote it again") from None


def check_conservation(rows_in: int, ledger: pa.Table | str | Path) -> dict[str, int]:
    """Counts by verdict, after checking that rows_in = kept + dropped + quarantined.

    A repaired record is a kept one: `kept` includes it, `repaired` says how many of the kept. `ledger` is a table of
    one stage's decisions, one row a record, or the path of its file. Raises DaymillError where a record is missing or
    counted twice.
    """
    table = ledger if isinstance(ledger, pa.Table) else read_ledger(ledger, ["verdict"])
    counts = verdict_counts(table)
    decided = sum(counts.values())
    if decided != rows_in:
        what = "has no decision" if decided < rows_in else "was decided twice"
        parts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS)
        raise DaymillError(
            f"records are not conserved: {rows_in:,} in, {decided:,} decided ({parts}): some record {what}; "
            "this is a defect of the stage, its output is not used"
        )
    counts["kept"] += counts["repaired"]
    return counts


def verdict_counts(table: pa.Table) -> dict[str, int]:
    counts = dict.fromkeys(VERDICTS, 0)
    for entry in pc.value_counts(table["verdict"]).to_pylist():
        if entry["values"] not in counts:
            raise ValueError(f"verdict {entry['values']!r} is none of {VERDICTS}")
        counts[entry["values"]] = entry["counts"]
    return counts
