"""Layers into pipeline stages: contiguous parts whose costliest is as cheap as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from data.errors import DaymillError

ROUNDING = 1 + 1e-12  # sums of the same costs in another order


def balanced(costs: Sequence[float], parts: int, slowness: Sequence[float] | None = None) -> list[int]:
    """Layers of each part; no contiguous partition has a cheaper costliest part, and of those that have the same this
    is the most even one (least sum of squares). Every part has a layer.

    `costs` are 0 or more, in any unit; `slowness` says how many times as long each part's device takes for a layer.
    Raises DaymillError for a negative cost and for fewer layers than parts.
    """
    if not 1 <= parts <= len(costs):
        raise DaymillError(f"{len(costs)} layers cannot make {parts} pipeline stages; expected 1 to {len(costs)}")
    if min(costs) < 0:
        raise DaymillError(f"a layer costs {min(costs)}; expected costs of 0 or more")
    times = slowness or [1.0] * parts
    limit = cheapest_limit(costs, times) * ROUNDING
    before = [0.0, *accumulate(costs)]
    never = (float("inf"), -1)
    # least[n]: sum of squares of the first n layers in k parts, none above the limit, and where the last part begins
    least = [(0.0, 0)] + [never] * len(costs)
    begins: list[list[int]] = []
    for k in range(1, parts + 1):
        found = [never] * (len(costs) + 1)
        for end in range(k, len(costs) + 1):
            for begin in range(end - 1, k - 2, -1):
                cost = (before[end] - before[begin]) * times[k - 1]
                if cost > limit:
                    break
                found[end] = min(found[end], (least[begin][0] + cost * cost, begin))
        least = found
        begins.append([begin for _, begin in found])
    sizes, end = [], len(costs)
    for starts in reversed(begins):
        sizes.append(end - starts[end])
        end = starts[end]
    return sizes[::-1]


def cheapest_limit(costs: Sequence[float], slowness: Sequence[float]) -> float:
    """The cost of the costliest part where that is as low as it can be, each part having a layer."""
    before = [0.0, *accumulate(costs)]
    best = [0.0] + [float("inf")] * len(costs)
    for times in slowness:
        best = [
            min((max(best[begin], (before[end] - before[begin]) * times) for begin in range(end)), default=float("inf"))
            for end in range(len(before))
        ]
    return best[-1]


def part_costs(costs: Sequence[float], sizes: Sequence[int], slowness: Sequence[float] | None = None) -> list[float]:
    """Cost of every part."""
    ends = list(accumulate(sizes))
    times = slowness or [1.0] * len(sizes)
    return [sum(costs[end - size : end]) * t for size, end, t in zip(sizes, ends, times, strict=True)]
