"""Exact Jaccard similarity of pairs of sets: what decides, whatever proposed the pair."""

from __future__ import annotations

import numpy as np
from numba import njit


def jaccard(values: np.ndarray, begins: np.ndarray, ends: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|A and B| / |A or B| of each pair (a[i], b[i]), float64 [m].

    Set s is `values[begins[s]:ends[s]]`: sorted uint64 without repeats (`tokens.distinct`), in memory or mapped from a
    file. Two empty sets are not similar: 0.
    """
    result = np.empty(len(a), np.float64)
    _overlaps(values, begins, ends, a, b, result)
    return result


@njit(cache=True, nogil=True)
def overlap(values, begin, end, other_begin, other_end):  # type: ignore[no-untyped-def]
    """The similarity of two sets, for other kernels."""
    i, end_i = np.uint64(begin), np.uint64(end)
    j, end_j = np.uint64(other_begin), np.uint64(other_end)
    size, common = (end_i - i) + (end_j - j), np.uint64(0)
    while i < end_i and j < end_j:  # without branches: which of two hashes is smaller cannot be predicted
        x, y = values[i], values[j]
        common += np.uint64(x == y)
        i += np.uint64(x <= y)
        j += np.uint64(y <= x)
    return float(common) / float(size - common) if size else 0.0


@njit(cache=True, nogil=True)
def _overlaps(values, begins, ends, a, b, result):  # type: ignore[no-untyped-def]
    for pair in range(len(a)):
        result[pair] = overlap(values, begins[a[pair]], ends[a[pair]], begins[b[pair]], ends[b[pair]])
