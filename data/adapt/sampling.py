"""Which texts models learn from: the target's distinct examples, and a sample of the pool by content.

A hash of a text's content and the seed ranks it; samples are the smallest ranks, folds and noise follow from them too,
so that neither the order of the records nor their number of batches decides anything.
"""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.adapt.features import MAX_CHARS
from data.dedup.exact import exact_key
from data.errors import DaymillError

Pool = Sequence[str] | Callable[[], Iterable[Sequence[str]]]
Ranks = NDArray[np.uint64]

FOLDS = 5
MIN_TARGET, MAX_TARGET = 20, 200
BATCH = 1_000  # texts at a time


@dataclass(frozen=True)
class Examples:
    """The target: distinct texts in an order that the seed and their content decide."""

    texts: list[str]
    labels: list[str | None]
    keys: frozenset[bytes]  # of all that were given, also those beyond MAX_TARGET
    given: int


@dataclass(frozen=True)
class Sample:
    """A sample of the pool by content, without the target's own texts, and what is needed of all the others."""

    texts: list[str]
    labels: list[str | None]
    ranks: Ranks
    every_rank: Ranks  # of all records of the pool, in their order
    twins: int  # records of the pool that are target examples


def target_examples(texts: Sequence[str], labels: Sequence[str | None] | None, seed: int) -> Examples:
    given = list(zip(texts, labels if labels is not None else [None] * len(texts), strict=True))
    distinct: dict[bytes, tuple[str, str | None]] = {}
    # of texts that say the same the labelled one stands for all, whatever their order
    for text, label in sorted(given, key=lambda item: (item[1] is None, item[1] or "", item[0])):
        key = exact_key(text)
        if key is not None:
            distinct.setdefault(key, (text, label))
    if len(distinct) < MIN_TARGET:
        raise DaymillError(
            f"domain adaptation: {len(distinct)} distinct target examples with text (of {len(given)} given); expected "
            f"at least {MIN_TARGET}: add examples, or switch the level off"
        )
    order = sorted(distinct, key=lambda key: rank_of(key, seed))[:MAX_TARGET]
    return Examples(
        [distinct[key][0] for key in order], [distinct[key][1] for key in order], frozenset(distinct), len(given)
    )


def sample_pool(
    batches: Callable[[], Iterator[Sequence[str]]],
    labels: Sequence[str | None] | None,
    keys: frozenset[bytes],
    size: int,
    seed: int,
) -> Sample:
    """One pass over the pool: a rank from each text's content, and the texts of the smallest ranks.

    Texts of nothing and texts whose key is in `keys` are ranked, never sampled.
    """
    ranks, twins = array("Q"), 0
    held: list[tuple[int, str, str]] = []  # a heap, its largest rank first; equal ranks are told apart by content
    for begin, batch in numbered(batches()):
        for place, text in enumerate(batch):
            key = exact_key(text)
            rank = rank_of(key or b"", seed)
            ranks.append(rank)
            if key is None or key in keys:
                twins += key in keys
                continue
            label = labels[begin + place] if labels is not None else None
            if len(held) < size:
                heapq.heappush(held, (-rank, text[:MAX_CHARS], label or ""))
            elif -rank >= held[0][0]:
                heapq.heappushpop(held, (-rank, text[:MAX_CHARS], label or ""))
    if labels is not None and len(labels) != len(ranks):
        raise ValueError(f"{len(labels)} labels for {len(ranks)} texts of the pool")
    held.sort(key=lambda entry: (-entry[0], *entry[1:]))
    return Sample(
        [text for _, text, _ in held],
        [label or None for _, _, label in held],
        np.array([-rank for rank, _, _ in held], np.uint64),
        np.array(ranks, np.uint64),
        twins,
    )


def in_batches(pool: Pool) -> Callable[[], Iterator[Sequence[str]]]:
    if callable(pool):
        return lambda: (batch for batch in pool() if len(batch))
    return lambda: (pool[begin : begin + BATCH] for begin in range(0, len(pool), BATCH))


def numbered(batches: Iterable[Sequence[str]]) -> Iterator[tuple[int, Sequence[str]]]:
    """(number of the first text, batch)."""
    begin = 0
    for batch in batches:
        yield begin, batch
        begin += len(batch)


def rank_of(key: bytes, seed: int) -> int:
    """A number below 2^64 that content and seed decide."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest())


def folds_of(ranks: Ranks) -> NDArray[np.int64]:
    return (mixed(ranks, 1) % np.uint64(FOLDS)).astype(np.int64)


def gumbel(ranks: Ranks) -> NDArray[np.float64]:
    """Standard Gumbel noise, the same for the same rank."""
    uniform = ((mixed(ranks, 2) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


def mixed(ranks: Ranks, stream: int) -> Ranks:
    """splitmix64: sampled ranks are all small, their mixed values are not."""
    with np.errstate(over="ignore"):
        value = ranks + np.uint64(stream) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))
