"""Buckets, their caps, and forests that connect what all links would."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.candidates import PAIRS, bucket_pairs, buckets, representatives, shared, spanning_forest

KEYS = st.lists(st.integers(0, 5), max_size=25)


def pairs_of(keys: list[int], cap: int) -> set[tuple[int, int]]:
    found = buckets(np.array(keys, np.uint64))
    return {
        pair
        for a, b in bucket_pairs(found, representatives(found.sizes, cap))
        for pair in zip(a.tolist(), b.tolist(), strict=True)
    }


@settings(deadline=None)  # the first call loads a kernel
@given(KEYS)
def test_shared_keys(keys: list[int]) -> None:
    assert shared(np.array(keys, np.uint64)).tolist() == [keys.count(key) > 1 for key in keys]


@settings(deadline=None)
@given(KEYS)
def test_a_small_bucket_gives_all_its_pairs(keys: list[int]) -> None:
    places = range(len(keys))
    assert pairs_of(keys, cap=25) == {(a, b) for b in places for a in range(b) if keys[a] == keys[b]}


@settings(deadline=None)
@given(KEYS, st.integers(1, 4))
def test_a_large_bucket_gives_pairs_with_its_best(keys: list[int], cap: int) -> None:
    found = pairs_of(keys, cap)
    for key in set(keys):
        places = [at for at, other in enumerate(keys) if other == key]
        centers = places[:cap]
        assert {pair for pair in found if keys[pair[0]] == key} == {(a, b) for a in centers for b in places if a < b}


def test_ten_thousand_of_a_kind_stay_few() -> None:
    found = buckets(np.zeros(10_000, np.uint64))
    assert sum(len(a) for a, _ in bucket_pairs(found, representatives(found.sizes, 64))) < 64 * 10_000
    assert representatives(np.array([2, 64, 65, 10**6, 10**9]), 64).tolist() == [1, 63, 64, 4, 1]


def test_batches_stay_small() -> None:
    found = buckets(np.repeat(np.arange(40_000, dtype=np.uint64), 32))
    sizes = [len(a) for a, _ in bucket_pairs(found, representatives(found.sizes, 64))]
    assert sum(sizes) == 40_000 * 32 * 31 // 2 and max(sizes) <= PAIRS + 32 * 31 // 2


EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(7, 10)), max_size=40)


@settings(deadline=None)
@given(EDGES)
def test_a_forest_connects_at_every_threshold(edges: list[tuple[int, int, int]]) -> None:
    a, b, similarity = np.array(edges, np.int64).reshape(-1, 3).T
    keep = spanning_forest(10, a, b, np.argsort(-similarity, kind="stable"))
    assert keep.sum() <= 9
    for threshold in range(7, 11):
        strong = similarity >= threshold
        assert parts(a[strong], b[strong]) == parts(a[strong & keep], b[strong & keep])


def parts(a: np.ndarray, b: np.ndarray) -> set[frozenset[int]]:
    groups = {node: frozenset([node]) for node in range(10)}
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        union = groups[x] | groups[y]
        for node in union:
            groups[node] = union
    return set(groups.values())
