"""What the ledgers add up to: counts by stage, level, rule and source, checked, with examples of every rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from data.ledger import VERDICTS, read_ledger

KEYS = ["stage", "rule", "verdict", "source"]
DUPLICATES = ("exact_duplicate", "near_duplicate", "label_conflict", "label_tie")


@dataclass(frozen=True)
class Expected:
    """A ledger, and what other outputs say of its records: how many came in, and how many the stage stored."""

    stage: str
    path: Path
    rows_in: int | None
    rows_out: int | None


@dataclass(frozen=True)
class Balance:
    """One stage's records: in = kept + dropped + quarantined, where `kept` includes the repaired ones."""

    stage: str
    rows_in: int
    kept: int
    repaired: int
    dropped: int
    quarantined: int
    complaint: str | None  # what does not add up

    @property
    def line(self) -> str:
        return f"{self.rows_in:,} in = {self.kept:,} kept + {self.dropped:,} dropped + {self.quarantined:,} quarantined"


@dataclass(frozen=True)
class Count:
    """Records of one stage, rule, verdict and source, and some of them."""

    stage: str
    level: str
    rule: str
    verdict: str
    source: str
    records: int


@dataclass
class Tally:
    balances: list[Balance] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    samples: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)  # by stage and rule

    @property
    def conserved(self) -> bool:
        return all(balance.complaint is None for balance in self.balances)


def tally(ledgers: Sequence[Expected], rule: str | None = None, source: str | None = None, samples: int = 0) -> Tally:
    """Counts of the ledgers. `source` names one in full or by its last parts; `rule` and `source` narrow counts and
    samples, never the balance, which is of the whole stage. Samples are spread evenly over the ledger, the same ones
    each time. Raises DaymillError for an unreadable ledger.
    """
    result = Tally()
    for expected in ledgers:
        columns = [*KEYS, *(["id", "line", "score", "partner", "similarity"] if samples else [])]
        table = read_ledger(expected.path, columns)
        result.balances.append(balance(expected, table))
        table = narrowed(table, rule, source)
        grouped = table.group_by(KEYS).aggregate([([], "count_all")])
        for row in grouped.sort_by([(name, "ascending") for name in ("rule", "verdict", "source")]).to_pylist():
            count = row.pop("count_all")
            result.counts.append(Count(level=level_of(row["stage"], row["rule"]), records=count, **row))
        if samples:
            result.samples |= examples(table, expected.stage, samples)
    return result


def balance(expected: Expected, table: pa.Table) -> Balance:
    found = dict.fromkeys(VERDICTS, 0)
    for entry in pc.value_counts(table["verdict"]).to_pylist():
        found[entry["values"]] = found.get(entry["values"], 0) + entry["counts"]
    kept = found["kept"] + found["repaired"]
    rows_in = len(table) if expected.rows_in is None else expected.rows_in
    complaint = None
    decided = kept + found["dropped"] + found["quarantined"]
    if decided != rows_in or len(table) != rows_in:
        complaint = f"{rows_in:,} records came in, {decided:,} were decided"
    elif expected.rows_out is not None and expected.rows_out != kept:
        complaint = f"{kept:,} records were kept, {expected.rows_out:,} are stored"
    return Balance(expected.stage, rows_in, kept, found["repaired"], found["dropped"], found["quarantined"], complaint)


def narrowed(table: pa.Table, rule: str | None, source: str | None) -> pa.Table:
    if rule is not None:
        table = table.filter(pc.equal(table["rule"], rule))
    if source is not None:
        named = pc.or_(pc.equal(table["source"], source), pc.ends_with(table["source"], f"/{source}"))
        table = table.filter(named)
    return table


def examples(table: pa.Table, stage: str, wanted: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """For each rule that spoke up to `wanted` rows, spread evenly over the ledger."""
    found = {}
    for rule in sorted(set(pc.unique(table["rule"]).to_pylist()) - {""}):
        spoke = pc.indices_nonzero(pc.equal(table["rule"], rule))
        picked = sorted({len(spoke) * place // wanted for place in range(wanted)})
        rows = table.take(spoke.take(pa.array(picked, pa.int64())))
        found[stage, rule] = rows.drop_columns(["stage", "rule"]).to_pylist()
    return found


def level_of(stage: str, rule: str) -> str:
    """The level of cleaning that a rule belongs to; the stage's name where it is none of the five."""
    if stage == "ingest":
        return "format"
    if stage != "clean":
        return stage
    if not rule:
        return "clean"
    if rule in DUPLICATES:
        return "redundancy"
    return LEVELS.get(rule.split("_")[0], "quality")


LEVELS: Mapping[str, str] = {"reviewed": "labels", "domain": "domain", "bias": "bias"}
