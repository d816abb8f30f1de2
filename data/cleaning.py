"""Cleaning decides from what was measured, then writes what stays: texts are read once, and no score is computed here.

Levels speak in order: what a person decided, quality, exact duplicates, near duplicates. A record that an earlier level
drops is nobody's duplicate, so the survivor of a cluster is always a record that is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.dedup.exact import Member, OnLabelConflict, merge
from data.dedup.stars import components, stars
from data.errors import DaymillError
from data.ledger import Ledger, ledger_table
from data.quality.review import ReviewDecision
from data.quality.rules import Rule, decide
from data.shards import KEPT_SCHEMA, RECORD_SCHEMA, ShardWriter

LARGEST = 10  # clusters that are told
MEMBERS = 20  # of each


class Dropped(NamedTuple):
    """Why a record goes: the rule, the number it compared, and for a duplicate the record that stays."""

    rule: str
    score: float | None = None
    partner: int | None = None
    similarity: float | None = None


class Relabelled(NamedTuple):
    """A record that stays with another label, or with none, and why."""

    label: str | None
    rule: str
    note: str
    partner: int | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Facts:
    """What decisions rest on: for each record its identity and label, in the records' order."""

    ids: list[str]
    labels: list[str | None]
    keys: NDArray[np.bytes_]  # exact_key, b"" where a text is nothing
    digests: NDArray[np.bytes_]  # of the text as it stands
    lengths: NDArray[np.int64]  # characters
    reviewed: frozenset[int] = frozenset()  # rows whose label a person decided on

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, measures: pa.Table, labels: Iterable[str | None]) -> Facts:
        keys = measures["exact_key"].to_pylist()
        return cls(
            ids=measures["id"].to_pylist(),
            labels=list(labels),
            keys=np.array([key or b"" for key in keys], dtype="S16"),
            digests=np.array(measures["digest"].to_pylist(), dtype="S16"),
            lengths=measures["length"].to_numpy().astype(np.int64),
        )

    def positions(self) -> NDArray[np.int64]:
        """The order in which records survive: with a label, longest, smallest hash, smallest id."""
        table = pa.table(
            {
                "unlabelled": pa.array([label is None for label in self.labels], pa.bool_()).cast(pa.int8()),
                "shorter": pa.array(-self.lengths),
                "digest": pa.array(self.digests.tolist(), pa.binary()),
                "id": pa.array(self.ids, pa.string()),
            }
        )
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        return position

    def member(self, row: int) -> Member:
        rank = (-int(self.lengths[row]), bytes(self.digests[row]))
        return Member(row, self.ids[row], self.labels[row], rank, row in self.reviewed)


@dataclass(frozen=True)
class CleanConfig:
    """Thresholds and policies; see params.yaml."""

    rules: Sequence[Rule]
    similarity: float = 0.8
    on_label_conflict: OnLabelConflict = "majority"
    review: Mapping[str, ReviewDecision] = field(default_factory=dict)


@dataclass
class Decisions:
    """What becomes of every record, by row number; a row that is in neither mapping is kept as it is."""

    rows: int
    dropped: dict[int, Dropped] = field(default_factory=dict)
    relabelled: dict[int, Relabelled] = field(default_factory=dict)
    clusters: dict[int, str] = field(default_factory=dict)
    weights: NDArray[np.float32] | None = None
    conflicts: int = 0
    vetoed: Counter[str] = field(default_factory=Counter)  # near duplicates that were kept apart, by kind
    linked: int = 0  # verified pairs, vetoed ones among them

    @property
    def kept(self) -> int:
        return self.rows - len(self.dropped)

    def dropped_by_rule(self) -> dict[str, int]:
        return dict(sorted(Counter(dropped.rule for dropped in self.dropped.values()).items()))

    def labels_after(self, labels: Sequence[str | None]) -> list[str | None]:
        """The labels that the records have from here on."""
        return [self.relabelled[row].label if row in self.relabelled else label for row, label in enumerate(labels)]

    def keeps(self) -> NDArray[np.bool_]:
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[list(self.dropped)] = False
        return mask


def decide_all(facts: Facts, measures: pa.Table, pairs: pa.Table, config: CleanConfig) -> Decisions:
    """Decide on every record from its measures (rows as in `facts`) and the verified pairs (row numbers)."""
    found = Decisions(len(facts))
    labels = list(facts.labels)
    obey_review(facts, config.review, found, labels)
    judge_quality(measures, config.rules, found)
    reviewed = (row for row, row_id in enumerate(facts.ids) if row_id in config.review) if config.review else ()
    judged = replace(facts, labels=labels, reviewed=frozenset(reviewed))
    drop_exact(judged, config.on_label_conflict, found)
    drop_near(judged, pairs, config.similarity, found)
    return found


def obey_review(facts: Facts, review: Mapping[str, ReviewDecision], found: Decisions, labels: list[str | None]) -> None:
    """What a person decided goes before every rule; `labels` becomes what the records say from here on."""
    if not review:
        return
    for row, row_id in enumerate(facts.ids):
        decision = review.get(row_id)
        if decision is None:
            continue
        if decision.given and labels[row] is not None and decision.given != labels[row]:
            raise DaymillError(
                f"the review of record {row_id} is of another label than the record has now; mend its row in the "
                "review file, or empty its cell `given`"
            )
        if decision.action == "drop":
            found.dropped[row] = Dropped("reviewed")
        elif decision.action == "relabel" and decision.label != labels[row]:
            labels[row] = decision.label
            found.relabelled[row] = Relabelled(decision.label, "reviewed", "relabelled by review")


def judge_quality(measures: pa.Table, rules: Sequence[Rule], found: Decisions) -> None:
    broken, scores = decide(measures, rules)
    for row in np.flatnonzero(broken >= 0).tolist():
        found.dropped.setdefault(row, Dropped(rules[int(broken[row])].rule, float(scores[row])))


def drop_exact(facts: Facts, policy: OnLabelConflict, found: Decisions) -> None:
    """One survivor of each set of equal texts; labels in conflict by `policy`."""
    candidates = np.flatnonzero(found.keeps() & (facts.keys != b""))
    candidates = candidates[np.argsort(facts.keys[candidates], kind="stable")]
    keys = facts.keys[candidates]
    equals = np.split(candidates, np.flatnonzero(keys[1:] != keys[:-1]) + 1)
    row_of: dict[str, int] = {}

    def members() -> Iterator[list[Member]]:
        for rows in equals:
            if len(rows) > 1:
                cluster = [facts.member(row) for row in rows.tolist()]
                row_of.update((member.id, member.row) for member in cluster)
                yield cluster

    decided = merge(members(), policy, lambda _survivor, _member: 1.0, rule="exact_duplicate")
    found.conflicts += decided.conflicts
    for row, twin in decided.dropped.items():
        found.dropped[row] = Dropped(twin.rule, None, row_of[twin.partner], twin.similarity)
        found.relabelled.pop(row, None)
    for row, twin in decided.unlabelled.items():
        note = "label removed: an equal text says otherwise as often"
        found.relabelled[row] = Relabelled(None, twin.rule, note, row_of[twin.partner], twin.similarity)
        facts.labels[row] = None


def drop_near(facts: Facts, pairs: pa.Table, similarity: float, found: Decisions) -> None:
    """Stars over the verified pairs at or above `similarity`; the vetoed ones only share a cluster."""
    a, b, near, vetoes = among_kept(facts, pairs, similarity, found)
    for index in range(len(a)):
        if vetoes[index] is None and contradict(facts.labels[a[index]], facts.labels[b[index]]):
            vetoes[index] = "label"  # one of them lies, and nobody knows which
    free = np.array([veto is None for veto in vetoes], dtype=np.bool_)
    found.vetoed.update(veto for veto in vetoes if veto is not None)
    found.linked = len(a)
    position = facts.positions()
    merged = stars(position, a[free], b[free], near[free])
    for member, survivor, score in zip(
        merged.members.tolist(), merged.survivors.tolist(), merged.similarity.tolist(), strict=True
    ):
        found.dropped[member] = Dropped("near_duplicate", None, survivor, score)
        found.relabelled.pop(member, None)
    name_clusters(facts, a, b, position, found)


def among_kept(
    facts: Facts, pairs: pa.Table, similarity: float, found: Decisions
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], list[str | None]]:
    """Pairs between records that are still kept: pairs were verified between one record of each text, whose equals
    may be the ones that stayed."""
    enough = pairs.filter(pc.greater_equal(pairs["similarity"], similarity))
    kept = np.flatnonzero(found.keeps() & (facts.keys != b""))
    kept = kept[np.argsort(facts.keys[kept], kind="stable")]
    keys = facts.keys[kept]
    sides = []
    for name in ("a_row", "b_row"):
        rows = enough[name].to_numpy().astype(np.int64)
        wanted = facts.keys[rows]
        sides.append((np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")))
    values, said = enough["similarity"].to_pylist(), enough["veto"].to_pylist()
    a, b, near, vetoes = [], [], [], []
    (a_from, a_to), (b_from, b_to) = [(start.tolist(), end.tolist()) for start, end in sides]
    for index in range(len(values)):
        for left in range(a_from[index], a_to[index]):
            for right in range(b_from[index], b_to[index]):
                a.append(int(kept[left]))
                b.append(int(kept[right]))
                near.append(values[index])
                vetoes.append(said[index])
    return np.array(a, dtype=np.int64), np.array(b, dtype=np.int64), np.array(near, dtype=np.float64), vetoes


def contradict(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def name_clusters(
    facts: Facts, a: NDArray[np.int64], b: NDArray[np.int64], position: NDArray[np.int64], found: Decisions
) -> None:
    """A name for each set of two or more kept records that near pairs connect: the hash of its first text."""
    if not len(a):
        return
    roots = components(len(facts), position, a, b)
    kept = found.keeps()
    for row in np.flatnonzero(kept & (np.bincount(roots[kept], minlength=len(facts))[roots] > 1)).tolist():
        found.clusters[row] = bytes(facts.digests[roots[row]]).ljust(16, b"\0").hex()


def largest_clusters(facts: Facts, found: Decisions) -> list[dict[str, object]]:
    """The largest ten sets of merged records: survivor, size, members by id, and how similar the least similar is."""
    members: dict[int, list[tuple[int, float]]] = {}
    for row, dropped in found.dropped.items():
        if dropped.partner is not None:
            members.setdefault(dropped.partner, []).append((row, dropped.similarity or 0.0))
    largest = sorted(members, key=lambda row: (-len(members[row]), facts.ids[row]))[:LARGEST]
    linked = Counter(found.clusters.values())
    return [
        {
            "survivor": facts.ids[row],
            "size": len(members[row]) + 1,
            "similarity_min": min(similarity for _, similarity in members[row]),
            "members": sorted(facts.ids[member] for member, _ in members[row])[:MEMBERS],
            "linked": linked.get(found.clusters.get(row, ""), 1) - 1,
        }
        for row in largest
    ]


@dataclass
class Kept:
    """Of each kept record what the expectations look at: its fields, and the length of its text."""

    columns: dict[str, list[object]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        for name in batch.schema.names:
            if name == "text":
                self.columns.setdefault("chars", []).extend(len(text or "") for text in batch["text"].to_pylist())
            elif name != "extra":
                self.columns.setdefault(name, []).extend(batch.column(name).to_pylist())


def write_kept(
    batches: Iterable[pa.RecordBatch],
    facts: Facts,
    decisions: Decisions,
    records: ShardWriter,
    ledger: Ledger,
    done: Callable[[int], None] = lambda _rows: None,
) -> Kept:
    """Kept records to `records` (KEPT_SCHEMA), every decision to `ledger`."""
    kept, first = Kept(), 0
    for batch in batches:
        rows = range(first, first + batch.num_rows)
        ledger.extend(ledger_rows(batch, rows, facts, decisions))
        chosen = kept_rows(batch, rows, decisions)
        records.write(chosen)
        kept.add(chosen)
        first += batch.num_rows
        done(batch.num_rows)
    return kept


def kept_rows(batch: pa.RecordBatch, rows: range, decisions: Decisions) -> pa.RecordBatch:
    labels = batch.column("label").to_pylist()
    for index, row in enumerate(rows):
        if row in decisions.relabelled:
            labels[index] = decisions.relabelled[row].label
    batch = batch.set_column(batch.schema.get_field_index("label"), "label", pa.array(labels, pa.string()))
    weights = decisions.weights
    chosen = np.ones(len(rows), np.float32) if weights is None else weights[rows.start : rows.stop]
    clusters = pa.array([decisions.clusters.get(row) for row in rows], pa.string())
    columns = [*batch.select(RECORD_SCHEMA.names).columns, clusters, pa.array(chosen, pa.float32())]
    whole = pa.RecordBatch.from_arrays(columns, schema=KEPT_SCHEMA)
    return whole.filter(pa.array([row not in decisions.dropped for row in rows], pa.bool_()))


def ledger_rows(batch: pa.RecordBatch, rows: range, facts: Facts, decisions: Decisions) -> pa.Table:
    columns: dict[str, object] = {"source": batch.column("source"), "id": batch.column("id")}
    told: list[tuple[object, ...]] = []
    for row in rows:
        gone, other = decisions.dropped.get(row), decisions.relabelled.get(row)
        if gone:
            partner = None if gone.partner is None else facts.ids[gone.partner]
            told.append(("dropped", gone.rule, gone.score, partner, gone.similarity, None))
        elif other:
            partner = None if other.partner is None else facts.ids[other.partner]
            told.append(("repaired", other.rule, None, partner, other.similarity, other.note))
        else:
            told.append(("kept", "", None, None, None, None))
    names = ("verdict", "rule", "score", "partner", "similarity", "note")
    columns |= {name: list(values) for name, values in zip(names, zip(*told), strict=False)}
    return ledger_table(columns, batch.num_rows, "clean")
