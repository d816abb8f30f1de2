"""Decisions as columns: what a batch of records adds to the record shards, to the ledger and to the quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from data.intake import Batch
from data.ledger import ledger_table
from data.shards import RECORD_SCHEMA

STAGE = "ingest"


class Refusal(NamedTuple):
    """A quarantined record: where it is, why, and its first bytes; `size` is its full length."""

    line: int | None
    offset: int | None
    rule: str
    note: str | None
    raw: bytes
    size: int


@dataclass(frozen=True)
class Decided:
    """Decisions in the order of the file. `cursor` (byte, line) is where a JSON Lines file goes on."""

    source: str
    records: pa.Table  # RECORD_SCHEMA: the kept ones
    ledger: pa.Table  # LEDGER_SCHEMA: all
    refused: list[Refusal]
    cursor: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self.ledger.num_rows


def decided(batch: Batch, cursor: tuple[int, int] | None = None) -> Decided:
    """A settled batch as columns."""
    return Decided(batch.source, kept_records(batch), decisions(batch), refusals(batch), cursor)


def kept_records(batch: Batch) -> pa.Table:
    if not batch.kept:
        return RECORD_SCHEMA.empty_table()
    ids, texts, labels, groups, entities, dates, extras, _ = zip(*batch.kept)
    columns = [pa.array(column, pa.string()) for column in (ids, texts, labels, groups, entities, dates)]
    return record_table([*columns, pa.array(extras, pa.string())], batch.source)


def record_table(columns: list[pa.Array], source: str) -> pa.Table:
    """Columns of RECORD_SCHEMA without `source`, which is the same for all, as a table."""
    *fields, extra = columns
    return pa.table([*fields, repeated(source, len(extra)), extra], schema=RECORD_SCHEMA)


def repeated(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def decisions(batch: Batch) -> pa.Table:
    columns = {
        "source": batch.source,
        "line": batch.lines,
        "offset": batch.offsets,
        "id": batch.ids,
        "verdict": batch.verdicts,
        "rule": batch.rules,
        "note": batch.notes,
    }
    return ledger_table(columns, len(batch), STAGE)


def refusals(batch: Batch) -> list[Refusal]:
    return [
        Refusal(batch.lines[place], batch.offsets[place], batch.rules[place], batch.notes[place], *batch.refused[place])
        for place in sorted(batch.refused)
    ]
