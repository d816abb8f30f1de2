"""Buckets, their caps, and forests that connect what all links would."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.candidates import PAIRS, all_pairs, buckets, connected, shared, spanning_forest, star_pairs

KEYS = st.lists(st.integers(0, 5), max_size=25)


def pairs_of(batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> list[tuple[int, int]]:
    return [pair for a, b in batches for pair in zip(a.tolist(), b.tolist(), strict=True)]


@settings(deadline=None)  # the first call loads a kernel
@given(KEYS)
def test_shared_keys(keys: list[int]) -> None:
    assert shared(np.array(keys, np.uint64)).tolist() == [keys.count(key) > 1 for key in keys]


@settings(deadline=None)
@given(KEYS)
def test_a_bucket_gives_all_its_pairs_once(keys: list[int]) -> None:
    places = range(len(keys))
    found = pairs_of(all_pairs(buckets(np.array(keys, np.uint64))))
    assert sorted(found) == [(a, b) for a in places for b in places[a + 1 :] if keys[a] == keys[b]]


@settings(deadline=None)
@given(KEYS)
def test_a_star_has_the_best_of_a_bucket_in_its_middle(keys: list[int]) -> None:
    found = pairs_of(star_pairs(buckets(np.array(keys, np.uint64))))
    firsts = [(keys.index(key), place) for place, key in enumerate(keys)]
    assert sorted(found) == sorted((first, place) for first, place in firsts if first != place)


def test_batches_stay_small() -> None:
    found = buckets(np.repeat(np.arange(40_000, dtype=np.uint64), 32))
    sizes = [len(a) for a, _ in all_pairs(found)]
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


@settings(deadline=None)
@given(EDGES)
def test_what_is_connected_shares_its_smallest_place(edges: list[tuple[int, int, int]]) -> None:
    a, b, _ = np.array(edges, np.int64).reshape(-1, 3).T
    assert connected(10, a, b).tolist() == [min(part) for place in range(10) for part in parts(a, b) if place in part]


def parts(a: np.ndarray, b: np.ndarray) -> set[frozenset[int]]:
    groups = {node: frozenset([node]) for node in range(10)}
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        union = groups[x] | groups[y]
        for node in union:
            groups[node] = union
    return set(groups.values())
