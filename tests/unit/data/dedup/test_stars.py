"""Stars, not chains; one survivor a cluster, whatever the order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data.dedup.stars import components, stars


def merged(position: list[int], pairs: list[tuple[int, int]]) -> dict[int, int]:
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    found = stars(np.array(position), a, b, np.full(len(pairs), 0.9))
    return dict(zip(found.members.tolist(), found.survivors.tolist(), strict=True))


def test_two_verified_pairs_are_two_clusters() -> None:
    assert merged([0, 1, 2, 3], [(0, 2), (1, 3)]) == {2: 0, 3: 1}


def test_a_chain_is_not_merged_through_its_middle() -> None:
    assert merged([0, 1, 2], [(0, 1), (1, 2)]) == {1: 0}  # 2 was never compared with 0
    assert merged([1, 0, 2], [(0, 1), (1, 2)]) == {0: 1, 2: 1}  # 1 survives and was compared with both


EDGES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] != pair[1]), unique=True)


@given(EDGES, st.permutations(range(12)), st.permutations(range(12)))
def test_members_are_verified_survivors_survive_and_the_naming_of_rows_changes_nothing(
    pairs: list[tuple[int, int]], position: list[int], renamed: list[int]
) -> None:
    found = merged(position, pairs)
    known = {frozenset(pair) for pair in pairs}
    for member, survivor in found.items():
        assert frozenset((member, survivor)) in known
        assert survivor not in found
        assert position[survivor] < position[member]
    moved = [0] * 12
    for row, name in enumerate(renamed):
        moved[name] = position[row]
    again = merged(moved, [(renamed[b], renamed[a]) for a, b in reversed(pairs)])
    assert again == {renamed[member]: renamed[survivor] for member, survivor in found.items()}


def test_components_are_named_by_their_first_row() -> None:
    a, b = np.array([0, 3, 4]), np.array([1, 4, 5])
    assert components(7, np.array([1, 0, 2, 5, 4, 3, 6]), a, b).tolist() == [1, 1, 2, 5, 5, 5, 6]
