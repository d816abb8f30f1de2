"""Of a large bucket few pairs are told, and they say what comparing all with all would have decided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.candidates import buckets
from data.dedup.jaccard import jaccard
from data.dedup.leaders import Leaders
from data.dedup.stars import stars
from data.dedup.verify import Sets, Verified


def sets_of(rows: list[list[int]], prints: list[int] | None = None) -> Sets:
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    values = np.array([value for row in rows for value in sorted(row)], np.uint64)
    fingerprints = np.array(prints or [0] * len(rows), np.uint64)
    return Sets(values, ends - [len(row) for row in rows], ends, fingerprints, (Path("none"),), np.empty((0, 3)))


ENOUGH = 4


def followed(sets: Sets, rounds: int, times: int = 1, enough: int = ENOUGH) -> list[Verified]:
    leaders = Leaders(sets, 0.5, 0.8, enough)
    found = buckets(np.zeros(len(sets.begins), np.uint64))
    return [leaders.follow(found, 0, rounds) for _ in range(times)]


ROWS = st.lists(st.sets(st.integers(0, 9), min_size=1).map(list), min_size=2, max_size=20)


@settings(deadline=None)  # the first call loads a kernel
@given(ROWS, st.integers(1, 5))
def test_survivors_are_those_of_all_pairs(rows: list[list[int]], enough: int) -> None:
    sets = sets_of(rows)
    (found,) = followed(sets, rounds=20, enough=enough)
    places = np.arange(len(rows))
    a, b = np.triu_indices(len(rows), 1)
    similarity = jaccard(sets.values, sets.begins, sets.ends, a, b)
    assert np.array_equal(found.similarity, jaccard(sets.values, sets.begins, sets.ends, found.a, found.b))
    near, strong = similarity >= 0.8, found.similarity >= 0.8
    expected = stars(places, a[near], b[near], similarity[near])
    got = stars(places, found.a[strong], found.b[strong], found.similarity[strong])
    assert set(got.members) <= set(b[near])
    if enough == 1:  # whoever leads stays: the same stars
        assert got.members.tolist() == expected.members.tolist()
        assert got.survivors.tolist() == expected.survivors.tolist()


def test_a_thousand_alike_tell_few_pairs() -> None:
    sets = sets_of([[*range(20), 100 + at] for at in range(1000)])
    found = followed(sets, rounds=64, times=16)
    assert sum(len(part.a) for part in found) <= ENOUGH * 1000
    assert set(found[0].b) == set(range(1, 1000))
    assert found[1].b.max() < ENOUGH  # all but the first few have followed enough


def test_the_best_of_those_who_follow_nobody_leads_next() -> None:
    rows = [list(range(at * 10, at * 10 + 9)) for at in (0, 1, 0, 1, 2)]
    (found,) = followed(sets_of([[*row, 1000 + at] for at, row in enumerate(rows)]), rounds=3)
    assert list(zip(found.a.tolist(), found.b.tolist(), strict=True)) == [(0, 2), (1, 3)]
    (found,) = followed(sets_of(rows), rounds=1)
    assert found.b.tolist() == [2]


def test_weak_pairs_are_told_but_nobody_follows_for_them() -> None:
    (found,) = followed(sets_of([[*range(20), *range(100 + at * 10, 106 + at * 10)] for at in range(40)]), rounds=40)
    assert (found.similarity < 0.8).all() and np.bincount(found.b).max() == ENOUGH


def test_fingerprints_that_meet_by_accident_stay_apart() -> None:
    (found,) = followed(sets_of([[1, 2, 3]] * 4, prints=[7, 8, 7, 8]), rounds=4)
    assert list(zip(found.a.tolist(), found.b.tolist(), strict=True)) == [(0, 2), (1, 3)]
