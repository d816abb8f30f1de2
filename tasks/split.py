"""split: kept records -> train, valid and test, no cluster and no entity across a boundary."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from data.ledger import Ledger, check_conservation, ledger_table
from data.shards import KEPT_SCHEMA, ShardWriter, count_rows, read_shards
from data.split import DROPPED, NO_DATE, PARTS, Assignment, Keys, SplitConfig, label_counts, label_shares, split
from tasks.params import Params
from tasks.stage import Context, Result, run

RECORDS = Path("artifacts/clean/records")
OUT = Path("artifacts/split")
COLUMNS = ["id", "text", "label", "entity", "date", "cluster"]


class Shares(Params):
    """Shares of the clusters that the parts get; they add up to 1."""

    train: float = Field(gt=0, lt=1)
    valid: float = Field(gt=0, lt=1)
    test: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def add_up(self) -> Shares:
        total = self.train + self.valid + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"train, valid and test add up to {total:g}; expected 1")
        return self


class Split(Params):
    """How the kept records are divided."""

    by: Literal["group", "date"] = Field(description="by hash of entity or cluster, or by date")
    shares: Shares
    salt: str = Field(description="another salt draws other parts")
    skip_title: bool = Field(description="the first paragraph does not count for the cluster")
    keep: Literal["test", "train"] = Field(description="which side keeps a cluster or entity that straddles a boundary")
    undated: Literal["train", "drop"] = Field(description="by date: where records without a date go")
    valid_from: str | None = Field(description="by date: first day of valid; null: where the shares say")
    test_from: str | None = Field(description="by date: first day of test; null: where the shares say")
    label_share_tolerance: float = Field(ge=0, le=1, description="warn when a label's share differs more between parts")
    on_missing_label: Literal["error", "warn"] = Field(description="a part that lacks a label")


def main(params: Split, ctx: Context) -> Result:
    knobs = params.model_dump() | {"shares": (params.shares.train, params.shares.valid, params.shares.test)}
    with ctx.progress(2 * count_rows(RECORDS), unit="records") as bar:
        keys = Keys()
        for batch in read_shards(RECORDS, COLUMNS):
            ids, texts, labels, entities, dates, near = (batch.column(name).to_pylist() for name in COLUMNS)
            keys.add(ids, texts, labels, entities, dates, params.skip_title, near)
            bar.advance(batch.num_rows)
        keys.join_near()
        assignment = split(keys, SplitConfig(**knobs))
        for warning in assignment.warnings:
            print(f"warning: split: {warning}", file=sys.stderr, flush=True)
        with ExitStack() as stack:
            folders = [stack.enter_context(ctx.out(OUT / name)) for name in PARTS]
            ledger = stack.enter_context(ctx.out(OUT / "ledger.parquet"))
            with ExitStack() as writing:
                writers = [writing.enter_context(ShardWriter(folder, KEPT_SCHEMA)) for folder in folders]
                book = writing.enter_context(Ledger(ledger))
                first = 0
                for batch in read_shards(RECORDS):
                    rows = slice(first, first + batch.num_rows)
                    write_batch(batch, keys.clusters[rows], assignment, rows, writers, book)
                    first += batch.num_rows
                    bar.advance(batch.num_rows)
            counts = check_conservation(len(keys), ledger)
    report = describe(keys, assignment, params)
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sizes = " / ".join(f"{report['parts'][name]['rows']:,}" for name in PARTS)
    metrics = {
        "clusters": report["clusters"],
        "dropped": counts["dropped"],
        "label_share_difference": report["label_share_difference"],
        "warnings": len(assignment.warnings),
    } | {f"{name}_rows": report["parts"][name]["rows"] for name in PARTS}
    return Result(len(keys), counts["kept"], f"{sizes} in {report['clusters']:,} clusters", metrics)


def write_batch(
    batch: pa.RecordBatch,
    clusters: list[bytes],
    assignment: Assignment,
    rows: slice,
    writers: list[ShardWriter],
    book: Ledger,
) -> None:
    parts, rules = assignment.parts[rows], assignment.rules[rows]
    table = pa.Table.from_batches([batch])
    at = table.schema.get_field_index("cluster")
    table = table.set_column(at, "cluster", pa.array([key.hex() for key in clusters], pa.string()))
    for index, writer in enumerate(writers):
        writer.write(table.filter(pa.array(parts == index)))
    columns = {
        "source": batch.column("source"),
        "id": batch.column("id"),
        "verdict": ["dropped" if part == DROPPED else "kept" for part in parts],
        "rule": [rule or "" for rule in rules],
        "note": [None if part == DROPPED else PARTS[part] for part in parts],
    }
    book.extend(ledger_table(columns, batch.num_rows, "split"))


def describe(keys: Keys, assignment: Assignment, params: Split) -> dict[str, Any]:
    """The report: sizes, labels and a hash of the ids of each part, and what did not fit."""
    parts = assignment.parts
    counts, shares = label_counts(keys.labels, parts), label_shares(keys.labels, parts)
    every = sorted({label for found in counts.values() for label in found})
    spans = [[share.get(label, 0.0) for share in shares.values()] for label in every]
    sizes = Counter(keys.clusters)
    return {
        "by": params.by,
        "salt": params.salt,
        "clusters": len(sizes),
        "largest_cluster": max(sizes.values()),
        "dropped": dict(sorted(Counter(rule for rule in assignment.rules if rule).items())),
        "label_share_difference": round(max((max(span) - min(span) for span in spans), default=0.0), 6),
        "warnings": assignment.warnings,
        "parts": {
            name: {
                "rows": int((parts == index).sum()),
                "labels": counts[name],
                "label_shares": {label: round(share, 6) for label, share in shares[name].items()},
                "clusters": len({keys.clusters[row] for row in np.flatnonzero(parts == index)}),
                "dates": span_of_dates(keys, parts == index),
                "ids_hash": hash_of(keys.ids[row] for row in np.flatnonzero(parts == index)),
            }
            for index, name in enumerate(PARTS)
        },
    }


def span_of_dates(keys: Keys, mask: Any) -> list[str] | None:
    """First and last date of a part, or None where no record has one."""
    dates = np.array(keys.dates, dtype=np.int64)[mask]
    dates = dates[dates != NO_DATE]
    return [f"{np.datetime64(int(date), 'us')}Z" for date in (dates.min(), dates.max())] if len(dates) else None


def hash_of(ids: Any) -> str:
    """Hash of a set of ids, whatever their order: two splits with equal hashes hold the same records."""
    return hashlib.sha256("\n".join(sorted(ids)).encode("utf-8", "replace")).hexdigest()


if __name__ == "__main__":
    run("split", Split, main)
