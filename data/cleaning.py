"""Cleaning in two passes over the shards: the first decides on every record, the second writes what stays.

Only decisions are held between them, never texts. Whatever comes to decide as well (near duplicates, a learned score)
adds to the same decisions before the second pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from data.dedup.exact import Duplicate, Member, OnLabelConflict, exact_duplicates, exact_key
from data.ledger import Ledger, ledger_table
from data.quality.rules import Rule, Verdict, judge
from data.shards import ShardWriter

COLUMNS = ["id", "text", "label"]


@dataclass
class Survey:
    """What is known of every record after the first pass, by row number: drops, and labels to remove."""

    rows: int = 0
    poor: dict[int, Verdict] = field(default_factory=dict)
    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    unlabelled: dict[int, Duplicate] = field(default_factory=dict)
    conflicts: int = 0

    def dropped_by_rule(self) -> dict[str, int]:
        rules = [verdict.rule for verdict in self.poor.values()]
        rules += [duplicate.rule for duplicate in self.duplicates.values()]
        return dict(sorted(Counter(rules).items()))

    @property
    def kept(self) -> int:
        return self.rows - len(self.poor) - len(self.duplicates)


@dataclass
class Kept:
    """Of each kept record what the expectations look at: its fields, and the length of its text."""

    columns: dict[str, list[object]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        for name in batch.schema.names:
            if name == "text":
                self.columns.setdefault("chars", []).extend(map(len, _texts(batch)))
            elif name != "extra":
                self.columns.setdefault(name, []).extend(batch.column(name).to_pylist())


def survey(
    batches: Iterable[pa.RecordBatch],
    rules: Sequence[Rule],
    policy: OnLabelConflict,
    done: Callable[[int], None] = lambda _rows: None,
) -> Survey:
    """First pass, over batches with COLUMNS: quality, then exact duplicates among what it keeps.

    A poor record is nobody's duplicate, so the one survivor of a cluster is always a record that is kept.
    """
    result = Survey()

    def candidates() -> Iterator[tuple[bytes | None, Member]]:
        for batch in batches:
            ids, labels = batch.column("id").to_pylist(), batch.column("label").to_pylist()
            for row_id, text, label in zip(ids, _texts(batch), labels, strict=True):
                verdict = judge(text, rules)
                if verdict.keep:
                    yield exact_key(text), Member.of(result.rows, row_id, text, label)
                else:
                    result.poor[result.rows] = verdict
                result.rows += 1
            done(batch.num_rows)

    decisions = exact_duplicates(candidates(), policy)
    result.duplicates, result.unlabelled = decisions.dropped, decisions.unlabelled
    result.conflicts = decisions.conflicts
    return result


def write_kept(
    batches: Iterable[pa.RecordBatch],
    surveyed: Survey,
    records: ShardWriter,
    ledger: Ledger,
    done: Callable[[int], None] = lambda _rows: None,
) -> Kept:
    """Second pass, over the same batches with all columns: kept records to `records`, every decision to `ledger`."""
    kept, first = Kept(), 0
    for batch in batches:
        rows = range(first, first + batch.num_rows)
        stays = [row not in surveyed.poor and row not in surveyed.duplicates for row in rows]
        ledger.extend(_decisions(batch, rows, surveyed))
        chosen = _without_contradicted_labels(batch, rows, surveyed).filter(pa.array(stays, pa.bool_()))
        records.write(chosen)
        kept.add(chosen)
        first += batch.num_rows
        done(batch.num_rows)
    return kept


def _texts(batch: pa.RecordBatch) -> list[str]:
    return [text or "" for text in batch.column("text").to_pylist()]


def _without_contradicted_labels(batch: pa.RecordBatch, rows: range, surveyed: Survey) -> pa.RecordBatch:
    if not any(row in surveyed.unlabelled for row in rows):
        return batch
    labels = batch.column("label").to_pylist()
    labels = [None if row in surveyed.unlabelled else label for row, label in zip(rows, labels, strict=True)]
    at = batch.schema.get_field_index("label")
    return batch.set_column(at, batch.schema.field(at), pa.array(labels, pa.string()))


def _decisions(batch: pa.RecordBatch, rows: range, surveyed: Survey) -> pa.Table:
    verdicts, rules, scores, partners, similarities, notes = [], [], [], [], [], []
    for row in rows:
        poor, removed = surveyed.poor.get(row), surveyed.unlabelled.get(row)
        twin = surveyed.duplicates.get(row) or removed
        verdicts.append("repaired" if removed else "dropped" if poor or twin else "kept")
        rules.append(poor.rule if poor else twin.rule if twin else "")
        scores.append(poor.score if poor else None)
        partners.append(twin.partner if twin else None)
        similarities.append(twin.similarity if twin else None)
        notes.append("label removed: an equal text says otherwise as often" if removed else None)
    columns = {
        "source": batch.column("source"),
        "id": batch.column("id"),
        "verdict": verdicts,
        "rule": rules,
        "score": scores,
        "partner": partners,
        "similarity": similarities,
        "note": notes,
    }
    return ledger_table(columns, batch.num_rows, "clean")
