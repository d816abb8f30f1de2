"""The block index finds what comparing all with all finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.blocks import fitting_blocks, near_pairs


def by_brute_force(prints: list[int], distance: int) -> list[tuple[int, int]]:
    first: dict[int, int] = {}
    pairs = [(first[value], row) for row, value in enumerate(prints) if first.setdefault(value, row) != row]
    rows = list(first.values())
    pairs += [(a, b) for at, b in enumerate(rows) for a in rows[:at] if (prints[a] ^ prints[b]).bit_count() <= distance]
    return sorted(pairs)


FLIPS = st.lists(st.integers(0, 63), max_size=5)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 3), FLIPS), max_size=30),
    st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4),
    st.sampled_from([(3, 4), (3, 5), (3, 6), (2, 3), (1, 4), (5, 7)]),
)
def test_all_pairs_are_found(edits: list[tuple[int, list[int]]], bases: list[int], kind: tuple[int, int]) -> None:
    prints = []
    for base, flips in edits:
        value = bases[base]
        for bit in flips:
            value ^= 1 << bit
        prints.append(value)
    distance, blocks = kind
    found = near_pairs(np.array(prints, np.uint64), distance, blocks)
    assert list(map(tuple, found.tolist())) == by_brute_force(prints, distance)


def test_all_pairs_of_many_are_found() -> None:
    random = np.random.default_rng(0)
    prints = random.integers(0, 2**64, 400, dtype=np.uint64)
    for copy in range(100, 400):  # many within reach of each other
        prints[copy] = prints[copy % 7] ^ (np.uint64(1) << random.integers(64, dtype=np.uint64))
    expected = by_brute_force(prints.tolist(), 3)
    assert len(expected) > 3000
    for blocks in (4, 5, 6):
        assert list(map(tuple, near_pairs(prints, blocks=blocks).tolist())) == expected


def test_full_batches_go_on_where_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    prints = np.array([0, 1, 2, 4, 8, 16, 32, 3, 5, 6], np.uint64)
    whole = near_pairs(prints)
    monkeypatch.setattr("data.dedup.blocks.FOUND", 1)
    assert np.array_equal(near_pairs(prints), whole)


def test_a_thousand_equal_ones_are_a_star() -> None:
    pairs = near_pairs(np.full(1000, 7, np.uint64))
    assert pairs.tolist() == [[0, row] for row in range(1, 1000)]


def test_a_limit_bounds_pairs_of_each() -> None:
    prints = np.arange(2048, dtype=np.uint64)  # 11 bits: a million pairs at distance 3 or less
    pairs = near_pairs(prints, limit=4)
    assert len(pairs) <= 4 * 4 * 2048
    assert {tuple(pair) for pair in pairs.tolist()} < set(by_brute_force(prints.tolist()[:2048], 3))


def test_more_fingerprints_take_more_blocks() -> None:
    assert [fitting_blocks(count) for count in (10, 3_000_000, 3_000_001, 10**9)] == [4, 4, 5, 6]


def test_nothing_and_nonsense() -> None:
    assert near_pairs(np.empty(0, np.uint64)).shape == (0, 2)
    with pytest.raises(ValueError, match="distance < blocks"):
        near_pairs(np.zeros(2, np.uint64), 3, 3)
