"""Pipeline stages: the best contiguous partition, by every partition there is."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import DaymillError
from training.parallel.partition import balanced, part_costs


def every_partition(layers: int, parts: int) -> list[list[int]]:
    found = []
    for cuts in combinations(range(1, layers), parts - 1):
        edges = [0, *cuts, layers]
        found.append([end - begin for begin, end in pairwise(edges)])
    return found


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.integers(1, 9))
def test_no_partition_is_better(costs: list[float], parts: int) -> None:
    if parts > len(costs):
        with pytest.raises(DaymillError, match="pipeline stages"):
            balanced(costs, parts)
        return
    sizes = balanced(costs, parts)
    assert sum(sizes) == len(costs) and len(sizes) == parts and min(sizes) >= 1
    others = [part_costs(costs, other) for other in every_partition(len(costs), parts)]
    least = min(map(max, others))
    ours = part_costs(costs, sizes)
    assert max(ours) <= least * (1 + 1e-9)
    evenest = min(sum(c * c for c in other) for other in others if max(other) <= least * (1 + 1e-12))
    assert sum(c * c for c in ours) <= evenest * (1 + 1e-9)


def test_a_heavy_head_gets_fewer_layers() -> None:
    costs = [0.5, *[1.0] * 12, 3.0]  # embedding, blocks, head with its loss
    sizes = balanced(costs, 4)
    assert part_costs(costs, sizes) == [3.5, 4.0, 4.0, 4.0]
    skewed = max(part_costs(costs, [9, 2, 1, 2]))
    assert skewed / max(part_costs(costs, sizes)) > 2  # a step of less than half the time


def test_a_cost_below_zero_is_refused() -> None:
    with pytest.raises(DaymillError, match="costs of 0 or more"):
        balanced([1, -1], 2)
