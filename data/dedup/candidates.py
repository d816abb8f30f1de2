"""Pairs worth verifying: what shares a bucket.

Rows are named by their place in the order of content, so that nothing here depends on how records came in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

PAIRS = 1 << 22  # at once; also looked at in one bucket, whatever its size


class Buckets(NamedTuple):
    """Rows with equal keys: bucket i is `order[starts[i]:starts[i] + sizes[i]]`, the smallest place first."""

    order: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def only(self, which: np.ndarray) -> Buckets:
        return Buckets(self.order, self.starts[which], self.sizes[which])


def shared(keys: np.ndarray) -> np.ndarray:
    """[n] bool: which keys are there more than once."""
    order = np.argsort(keys)
    equal = keys[order[1:]] == keys[order[:-1]]
    result = np.zeros(len(keys), bool)
    result[order[1:][equal]] = True
    result[order[:-1][equal]] = True
    return result


def buckets(keys: np.ndarray) -> Buckets:
    """The buckets of two rows and more."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    starts, sizes = edges[:-1], np.diff(edges)
    return Buckets(order, starts[sizes > 1], sizes[sizes > 1])


def all_pairs(found: Buckets) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All pairs of each bucket, in batches."""
    return _pairs(found, found.sizes - 1)


def star_pairs(found: Buckets) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The first row of each bucket with all others in it, in batches."""
    return _pairs(found, np.ones_like(found.sizes))


def _pairs(found: Buckets, centers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of the first `centers[i]` rows of bucket i with all that come after them, in batches of about PAIRS."""
    counts = centers * found.sizes - centers * (centers + 1) // 2
    parts = np.cumsum(counts) // PAIRS
    for part in np.split(np.arange(len(counts)), np.flatnonzero(np.diff(parts)) + 1) if len(counts) else ():
        a, b = (np.empty(counts[part].sum(), found.order.dtype) for _ in range(2))
        _stars(found.order, found.starts[part], found.sizes[part], centers[part], a, b)
        yield a, b


def connected(count: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[count] the smallest place that pairs connect each place with."""
    parent = np.arange(count)
    _connect(parent, a, b, np.arange(len(a)), np.zeros(len(a), bool))
    while (parent != parent[parent]).any():
        parent = parent[parent]
    return parent


def spanning_forest(count: int, a: np.ndarray, b: np.ndarray, order: np.ndarray) -> np.ndarray:
    """[m] bool: the pairs that connect what earlier ones in `order` did not (Kruskal).

    In order of falling similarity, what is left connects at every threshold what all pairs would connect.
    """
    keep = np.zeros(len(a), bool)
    _connect(np.arange(count), a, b, order, keep)
    return keep


@njit(cache=True, nogil=True)
def _stars(order, starts, sizes, centers, a, b):  # type: ignore[no-untyped-def]
    count = 0
    for bucket in range(len(starts)):
        start, end = starts[bucket], starts[bucket] + sizes[bucket]
        for i in range(start, start + centers[bucket]):
            for j in range(i + 1, end):
                a[count], b[count] = order[i], order[j]
                count += 1


@njit(cache=True, nogil=True)
def _connect(parent, a, b, order, keep):  # type: ignore[no-untyped-def]
    for pair in order:
        x, y = a[pair], b[pair]
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        if x != y:
            keep[pair] = True
            parent[max(x, y)] = min(x, y)
