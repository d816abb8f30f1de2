"""The learning rate: a pure function of the step, so that resume, world size and accumulation cannot move it."""

from __future__ import annotations

import math
from typing import Literal

Decay = Literal["cosine", "linear"]

LONGEST_WARMUP = 0.5  # of a run, where the warm-up is given in steps


def learning_rate(
    step: int, total: int, peak: float, warmup: int, floor: float = 0.1, decay: Decay = "cosine", hold: float = 0.0
) -> float:
    """Linear warm-up to `peak` at step `warmup`, then down to `floor` x `peak` at step `total - 1`.

    The peak is held for the share `hold` (0 to below 1) of the steps behind the warm-up; a floor of 1 keeps it for all.
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    begin, last = warmup + hold * max(0, total - 1 - warmup), total - 1
    if step <= begin:
        return peak
    done = min(1.0, (step - begin) / (last - begin)) if last > begin else 1.0
    left = 1 - done if decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * (floor + (1 - floor) * left)


def warmup_steps(warmup: float, total: int) -> int:
    """Steps of the warm-up of a run of `total` steps: a share of them below 1, else a count.

    A count is meant for long runs; of a short one it takes half at the most, so that the rate reaches its peak and
    comes down again. Raises ValueError for a count that is not whole.
    """
    if warmup < 1:
        return round(warmup * total)
    if warmup != int(warmup):
        raise ValueError(f"a warm-up of {warmup}: expected a share below 1, or a whole number of steps")
    return min(int(warmup), int(LONGEST_WARMUP * total))
