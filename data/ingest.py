"""Files in, record shards, quarantine and ledger out, in one pass and bounded memory."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from data.drift import schema_drift
from data.errors import DaymillError
from data.intake import Batch, FileTally, Intake
from data.ledger import Ledger, check_conservation, ledger_table
from data.readers.item import Limits
from data.shards import RECORD_SCHEMA, ShardWriter, count_rows
from data.validate import FieldMap

STAGE = "ingest"
EXAMPLES = 5
METRIC_FILES = 200  # files that are listed one by one in the metrics

Advance = Callable[[int, str], None]  # records done, note


@dataclass(frozen=True)
class Places:
    """Where the outputs of an ingest go."""

    records: Path
    quarantine: Path
    ledger: Path


@dataclass
class IngestReport:
    """What came in and what became of it."""

    rows_in: int
    kept: int
    quarantined: int
    tallies: list[FileTally]

    def metrics(self) -> dict[str, Any]:
        """Counts by rule and by file, and what is worth knowing of the files."""
        rules: Counter[str] = Counter()
        for tally in self.tallies:
            rules.update(tally.rules)
        files = {
            tally.source: {"kept": tally.kept, "quarantined": tally.quarantined}
            for tally in self.tallies[:METRIC_FILES]
        }
        return {
            "kept": self.kept,
            "quarantined": self.quarantined,
            "repaired": sum(tally.repairs.total() for tally in self.tallies),
            "made_ids": sum(tally.made_ids for tally in self.tallies),
            "blank_lines": sum(tally.notes.blank_lines for tally in self.tallies),
            "byte_order_marks": sum(tally.notes.bom for tally in self.tallies),
            "file_count": len(self.tallies),
            "rules": dict(sorted(rules.items())),
            "files": files,
            "schema_drift": schema_drift(self.tallies),
        }


def ingest(
    files: Sequence[tuple[str, Path]],
    places: Places,
    names: FieldMap,
    limits: Limits,
    shard_rows: int = 50_000,
    advance: Advance | None = None,
) -> IngestReport:
    """Decide every record of the files, in their order, and write what was decided.

    quarantine.jsonl has one line a refused record: source, line, offset, rule, note, `bytes` (its full length) and
    `raw` (its first bytes in base64, up to the limit). The same files give the same bytes. Raises DaymillError where a
    mapped field is in no record, where nothing is kept, and where records are not conserved.
    """
    intake = Intake(names, limits)
    examples: list[str] = []
    with (
        ShardWriter(places.records, shard_rows=shard_rows) as shards,
        Ledger(places.ledger) as ledger,
        places.quarantine.open("wb") as quarantine,
    ):
        for source, path in files:
            for batch in intake.decide(source, path):
                if batch.kept:
                    shards.write(record_batch(batch))
                ledger.extend(decisions(batch))
                write_quarantine(batch, quarantine)
                examples += examples_of(batch, EXAMPLES - len(examples))
                if advance:
                    advance(len(batch), source)
        intake.complain()
    tallies = intake.tallies
    rows_in = sum(tally.found for tally in tallies)
    counts = check_conservation(rows_in, places.ledger)
    stored = count_rows(places.records)
    if stored != counts["kept"]:
        raise DaymillError(f"{counts['kept']:,} records were kept but {stored:,} are stored: a defect, do not use them")
    if not stored:
        raise DaymillError(nothing_kept(rows_in, examples, len(tallies)))
    return IngestReport(rows_in, stored, counts["quarantined"], tallies)


def record_batch(batch: Batch) -> pa.RecordBatch:
    """The kept records of a batch with the columns of RECORD_SCHEMA."""
    ids, texts, labels, groups, entities, dates, extras, _ = zip(*batch.kept)
    source = pa.repeat(pa.scalar(batch.source, pa.string()), len(ids))
    columns = [pa.array(column, pa.string()) for column in (ids, texts, labels, groups, entities, dates)]
    return pa.RecordBatch.from_arrays([*columns, source, pa.array(extras, pa.string())], schema=RECORD_SCHEMA)


def decisions(batch: Batch) -> pa.Table:
    """A batch as rows of the ledger."""
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


def write_quarantine(batch: Batch, file: BinaryIO) -> None:
    for place in sorted(batch.refused):
        raw, size = batch.refused[place]
        entry = {
            "source": batch.source,
            "line": batch.lines[place],
            "offset": batch.offsets[place],
            "rule": batch.rules[place],
            "note": batch.notes[place],
            "bytes": size,
            "raw": base64.b64encode(raw).decode(),
        }
        file.write(orjson.dumps(entry) + b"\n")


def examples_of(batch: Batch, wanted: int) -> list[str]:
    """Places and rules of a batch's first refused records, without anything of their text."""
    found = []
    for place in sorted(batch.refused)[: max(wanted, 0)]:
        line = f":{batch.lines[place]}" if batch.lines[place] else ""
        found.append(f"{batch.source}{line}: {batch.rules[place]} ({batch.notes[place]})")
    return found


def nothing_kept(rows_in: int, examples: list[str], files: int) -> str:
    if not rows_in:
        return f"no record at all in {files} file(s); expected at least one"
    listed = "\n  ".join(examples)
    return (
        f"none of {rows_in:,} records was kept; the first ones:\n  {listed}\n"
        "see every one with `daymill check FILE`, and check ingest.fields in params.yaml"
    )


def read_quarantine(path: Path) -> list[dict[str, Any]]:
    """Entries of a quarantine file, `raw` as bytes."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [entry | {"raw": base64.b64decode(entry["raw"])} for entry in entries]
