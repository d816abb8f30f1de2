"""Train, valid and test: related records stay on one side, and tomorrow's records move none of today's.

By group, a record's part is a hash of its own key (its entity, or else the template of its text), so it depends on no
other record, but for near duplicates: templates that they connect are one cluster. By date, the latest records are the
test. In both, no cluster and no entity crosses a boundary: where one would, the side that is not `keep` loses those
records, counted and named in the ledger.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from data.dedup.exact import exact_key
from data.errors import DaymillError
from data.text import letters, template, without_title

PARTS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(3)
DROPPED = -1
# Below this many letters a template says too little (a series of numbers is "0 0 0"): the exact text decides.
MIN_TEMPLATE_LETTERS = 12
NO_DATE = -(2**63)


@dataclass(frozen=True)
class SplitConfig:
    """How to split; see params.yaml for the meaning of each knob."""

    by: Literal["group", "date"] = "group"
    shares: tuple[float, float, float] = (0.7, 0.1, 0.2)
    salt: str = "daymill"
    keep: Literal["test", "train"] = "test"
    undated: Literal["train", "drop"] = "train"
    valid_from: str | None = None
    test_from: str | None = None
    label_share_tolerance: float = 0.1
    skip_title: bool = True
    on_missing_label: Literal["error", "warn"] = "error"


@dataclass
class Keys:
    """What a split needs to know of each record, in the records' order; texts are not held."""

    ids: list[str] = field(default_factory=list)
    clusters: list[bytes] = field(default_factory=list)  # templates, until `join_near` widens them
    near: dict[str, list[int]] = field(default_factory=dict)  # rows that near duplicates connect
    entities: list[bytes | None] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    dates: list[int] = field(default_factory=list)

    def add(
        self,
        ids: Iterable[str],
        texts: Iterable[str],
        labels: Iterable[str | None],
        entities: Iterable[str | None],
        dates: Iterable[str | None],
        skip_title: bool = True,
        near: Iterable[str | None] | None = None,
    ) -> None:
        ids = list(ids)
        near = [None] * len(ids) if near is None else near
        for row_id, text, label, entity, date, cluster in zip(ids, texts, labels, entities, dates, near, strict=True):
            if cluster is not None:
                self.near.setdefault(cluster, []).append(len(self.ids))
            self.ids.append(row_id)
            self.clusters.append(template_key(text, row_id, skip_title))
            self.entities.append(None if entity is None else _digest("entity", entity))
            self.labels.append(label)
            self.dates.append(to_microseconds(date))

    def join_near(self) -> None:
        """Templates that share a near-duplicate cluster become one, named by the smallest of their keys."""
        parent: dict[bytes, bytes] = {}

        def root(key: bytes) -> bytes:
            while (up := parent.get(key, key)) != key:
                parent[key] = parent.get(up, up)
                key = up
            return key

        for rows in self.near.values():
            roots = {root(self.clusters[row]) for row in rows}
            least = min(roots)
            parent.update(dict.fromkeys(roots, least))
        if parent:
            self.clusters = [root(key) for key in self.clusters]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Assignment:
    """The part of each record: 0 train, 1 valid, 2 test, -1 dropped, and then the rule that dropped it."""

    parts: NDArray[np.int8]
    rules: list[str | None]
    warnings: list[str]


def template_key(text: str, row_id: str, skip_title: bool = True) -> bytes:
    """16 bytes that records of one template share, from content only; a text of nothing is alone with its id.

    With `skip_title` the first paragraph does not count where enough follows it: the same letter under another
    subject is the same letter.
    """
    for part in (without_title(text), text) if skip_title else (text,):
        masked = template(part)
        if letters(masked) >= MIN_TEMPLATE_LETTERS:
            return _digest("template", masked)
    return exact_key(text) or _digest("id", row_id)


def split(keys: Keys, config: SplitConfig) -> Assignment:
    """Assign every record to a part. Raises DaymillError when a part would be empty or lack a label."""
    if len(keys) == 0:
        raise DaymillError("split: there are no records; look at the ledger of the clean stage for what dropped them")
    warnings: list[str] = []
    rules: list[str | None] = [None] * len(keys)
    parts = _by_group(keys, config) if config.by == "group" else _by_date(keys, config)
    labelled = np.array([label is not None for label in keys.labels])
    if labelled.any():
        # they serve pretraining; no metric could be computed on them
        parts[~labelled & (parts != DROPPED)] = TRAIN
    else:
        warnings.append("no record has a label: all of them are split, and only pretraining can use them")
    for row in np.flatnonzero(parts == DROPPED).tolist():
        rules[row] = "undated"
    for row in _straddling(keys, parts, config.keep):
        parts[row] = DROPPED
        rules[row] = "straddles"
    warnings += _check_labels(keys, parts, config)
    return Assignment(parts, rules, warnings)


def label_shares(labels: Sequence[str | None], parts: NDArray[np.int8]) -> dict[str, dict[str, float]]:
    """Part -> label -> its share among the part's labelled records."""
    return {
        name: {label: count / sum(counts.values()) for label, count in counts.items()}
        for name, counts in label_counts(labels, parts).items()
    }


def label_counts(labels: Sequence[str | None], parts: NDArray[np.int8]) -> dict[str, dict[str, int]]:
    """Part -> label -> number of records, labels sorted, zeros left out."""
    counts: dict[str, dict[str, int]] = {name: {} for name in PARTS}
    for label, part in zip(labels, parts.tolist(), strict=True):
        if label is not None and part != DROPPED:
            counts[PARTS[part]][label] = counts[PARTS[part]].get(label, 0) + 1
    return {name: dict(sorted(found.items())) for name, found in counts.items()}


def to_microseconds(date: str | None) -> int:
    """ISO 8601 as microseconds since 1970 (UTC where no zone is named), or NO_DATE where it cannot be read."""
    if not date:
        return NO_DATE
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return NO_DATE
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _digest(kind: str, value: str) -> bytes:
    return hashlib.blake2b(f"{kind}\0{value}".encode("utf-8", "replace"), digest_size=16).digest()


def _by_group(keys: Keys, config: SplitConfig) -> NDArray[np.int8]:
    # an entity's records stay together whatever they say; without one, the text's own cluster decides
    salt = hashlib.blake2b(config.salt.encode(), digest_size=16).digest()
    ends = np.cumsum(config.shares)[:2]
    draws = np.fromiter(
        (_uniform(entity or cluster, salt) for entity, cluster in zip(keys.entities, keys.clusters, strict=True)),
        dtype=np.float64,
        count=len(keys),
    )
    return np.searchsorted(ends, draws, side="right").astype(np.int8)


def _uniform(key: bytes, salt: bytes) -> float:
    """A number in [0, 1) that follows from key and salt alone."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8, salt=salt).digest(), "big") / 2**64


def _by_date(keys: Keys, config: SplitConfig) -> NDArray[np.int8]:
    dates = np.array(keys.dates, dtype=np.int64)
    known = dates != NO_DATE
    if not known.any():
        raise DaymillError(
            "split: by date, but no record has a date; name its field in ingest.fields or split by group"
        )
    valid_from, test_from = _cuts(np.sort(dates[known]), config)
    parts = np.full(len(keys), TRAIN, dtype=np.int8)
    parts[dates >= valid_from] = VALID
    parts[dates >= test_from] = TEST
    parts[~known] = TRAIN if config.undated == "train" else DROPPED
    return parts


def _cuts(dates: NDArray[np.int64], config: SplitConfig) -> tuple[int, int]:
    """First moment of valid and of test: given, or where the sorted dates reach the shares. One moment, one side."""
    cuts = []
    for name, given, share in (
        ("valid_from", config.valid_from, config.shares[0]),
        ("test_from", config.test_from, config.shares[0] + config.shares[1]),
    ):
        cut = to_microseconds(given) if given is not None else int(dates[min(int(share * len(dates)), len(dates) - 1)])
        if cut == NO_DATE:
            raise DaymillError(f"split: {name} is {given!r}; expected an ISO 8601 date such as 2026-01-31")
        cuts.append(cut)
    if cuts[0] >= cuts[1]:
        raise DaymillError(
            "split: by date, valid would begin at or after test: too few distinct dates, or valid_from >= test_from; "
            "give both dates, or split by group"
        )
    return cuts[0], cuts[1]


def _straddling(keys: Keys, parts: NDArray[np.int8], keep: str) -> list[int]:
    """Rows whose cluster or entity also stands in a part that is kept before theirs."""
    winner: dict[bytes, int] = {}
    better = max if keep == "test" else min
    held = [
        [key for key in (cluster, entity) if key is not None]
        for cluster, entity in zip(keys.clusters, keys.entities, strict=True)
    ]
    for own, part in zip(held, parts.tolist(), strict=True):
        if part != DROPPED:
            for key in own:
                winner[key] = better(winner.get(key, part), part)
    return [
        row
        for row, (own, part) in enumerate(zip(held, parts.tolist(), strict=True))
        if part != DROPPED and any(winner[key] != part for key in own)
    ]


def _check_labels(keys: Keys, parts: NDArray[np.int8], config: SplitConfig) -> list[str]:
    """Warnings on label shares; raises where a part has no records or, by policy, lacks a label."""
    counts = label_counts(keys.labels, parts)
    every = sorted({label for label in keys.labels if label is not None})
    for index, name in enumerate(PARTS):
        if not counts[name] if every else not (parts == index).any():
            raise DaymillError(
                f"{name} would have no {'labelled ' if every else ''}records of {len(keys)}; "
                "give more records, other shares, or (if many straddle a boundary) the other value of split.keep"
            )
    warnings = []
    for name in PARTS:
        missing = len(every) - len(counts[name])
        if missing:
            # labels are content of records: how many, never which
            message = f"{name} has no record of {missing} of the {len(every)} labels"
            if config.on_missing_label == "error":
                few = sorted(Counter(label for label in keys.labels if label is not None).values())
                other = "" if config.by == "group" else " or by: group"
                raise DaymillError(
                    f"{message} (the rarest labels have {', '.join(map(str, few[:5]))} records); give more records of "
                    f"them, another split.salt{other}, or accept it with split.on_missing_label: warn"
                )
            warnings.append(message)
    shares = label_shares(keys.labels, parts).values()
    spans = [[share.get(label, 0.0) for share in shares] for label in every]
    widest = max((max(span) - min(span) for span in spans), default=0.0)
    if widest > config.label_share_tolerance:
        hint = "by: group spreads them evenly" if config.by == "date" else "a few large clusters can do this"
        warnings.append(
            f"label shares of the parts differ by up to {widest:.3f} (tolerance {config.label_share_tolerance:g}): "
            f"metrics of one part say little about another; {hint}"
        )
    return warnings
