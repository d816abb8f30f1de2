"""Duplicates: which records say the same, and which one of them stays.

Every cluster is a star: its members point at one survivor, chosen by content alone, so that shard count, worker count
and input order change nothing. Labels of one cluster should agree; what happens where they do not is a policy.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from data.text import normalize

OnLabelConflict = Literal["majority", "drop_all", "keep_all"]


def exact_key(text: str) -> bytes | None:
    """16 bytes that two texts share when they differ in case, width, composition or white space only.

    None for a text of nothing: two empty texts are not duplicates of each other, they are empty.
    """
    normalized = normalize(text)
    if not normalized:
        return None
    return hashlib.blake2b(normalized.encode("utf-8", "replace"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Member:
    """One record of a cluster, without its text. `rank` orders records by content: the smallest survives."""

    row: int
    id: str
    label: str | None
    rank: tuple[int, bytes]
    reviewed: bool = False  # a person decided on its label

    @classmethod
    def of(cls, row: int, row_id: str, text: str, label: str | None) -> Member:
        """Longest text first, then the smallest hash of the text as it stands."""
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
        return cls(row, row_id, label, (-len(text), digest))

    @property
    def order(self) -> tuple[bool, int, bytes, str, str]:
        # a label is worth more than length, and equal texts are told apart by what else the record says
        return (self.label is None, *self.rank, self.id, self.label or "")

    @property
    def says(self) -> str | None:
        """The label that a person decided on."""
        return self.label if self.reviewed else None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A record that goes: the rule, the record that says the same, and how similar the two are (1.0 is equal)."""

    rule: str
    partner: str
    similarity: float


@dataclass
class Decisions:
    """Rows to drop, rows to keep without their label (it is contradicted as often as confirmed), and a count."""

    dropped: dict[int, Duplicate] = field(default_factory=dict)
    unlabelled: dict[int, Duplicate] = field(default_factory=dict)
    conflicts: int = 0


def exact_duplicates(members: Iterable[tuple[bytes | None, Member]], policy: OnLabelConflict) -> Decisions:
    """Decide on records with their exact keys; those without a key are nobody's duplicates."""
    clusters: dict[bytes, list[Member]] = {}
    for key, member in members:
        if key is not None:
            clusters.setdefault(key, []).append(member)
    return merge(clusters.values(), policy, lambda _survivor, _member: 1.0, rule="exact_duplicate")


def merge(
    clusters: Iterable[Sequence[Member]],
    policy: OnLabelConflict,
    similarity: Callable[[Member, Member], float],
    rule: str,
) -> Decisions:
    """One survivor a cluster; labels in conflict by `policy`.

    majority: the most frequent label wins and its best record survives; on a tie the best record survives without a
    label; where people reviewed some of the labels, only theirs count. keep_all: one survivor for each label. drop_all:
    nothing of a contradictory cluster survives. Records without a label contradict nothing.
    """
    decisions = Decisions()
    for cluster in clusters:
        if len(cluster) == 1:
            continue
        ordered = sorted(cluster, key=lambda member: member.order)
        votes = Counter(member.label for member in ordered if member.label is not None)
        if len(votes) < 2:
            _drop_all_but(ordered[0], ordered, similarity, rule, decisions)
            continue
        decisions.conflicts += 1
        if policy == "keep_all":
            best = {member.label: member for member in reversed(ordered) if member.label is not None}
            for member in ordered:
                survivor = ordered[0] if member.label is None else best[member.label]
                _drop_all_but(survivor, [member], similarity, rule, decisions)
        elif policy == "drop_all":
            for member in ordered:
                other = next(o for o in ordered if o.label is not None and o.label != member.label)
                decisions.dropped[member.row] = Duplicate("label_conflict", other.id, similarity(other, member))
        else:
            said = Counter(member.says for member in ordered if member.says is not None)
            _by_majority(ordered, said or votes, similarity, rule, decisions)
    return decisions


def _by_majority(
    ordered: Sequence[Member],
    votes: Counter[str],
    similarity: Callable[[Member, Member], float],
    rule: str,
    decisions: Decisions,
) -> None:
    (label, most), *others = votes.most_common(2)
    tie = any(most == second for _, second in others)
    winners = [member for member in ordered if member.label == label]
    survivor = ordered[0] if tie else next((member for member in winners if member.reviewed), winners[0])
    if tie:
        other = next(o for o in ordered if o.label is not None and o.label != survivor.label)
        decisions.unlabelled[survivor.row] = Duplicate("label_tie", other.id, similarity(other, survivor))
    _drop_all_but(survivor, ordered, similarity, rule, decisions)


def _drop_all_but(
    survivor: Member,
    members: Sequence[Member],
    similarity: Callable[[Member, Member], float],
    rule: str,
    decisions: Decisions,
) -> None:
    for member in members:
        if member.row != survivor.row:
            decisions.dropped[member.row] = Duplicate(rule, survivor.id, similarity(survivor, member))
