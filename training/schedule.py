"""The learning rate: a pure function of the step, so that resume, world size and accumulation cannot move it."""

from __future__ import annotations

import math


def learning_rate(step: int, total: int, peak: float, warmup: int, floor: float = 0.1) -> float:
    """Linear warm-up to `peak` at step `warmup`, then a cosine down to `floor` x `peak` at step `total - 1`."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, total - 1 - warmup))
    if total - 1 <= warmup:
        done = 1.0 if step > warmup else 0.0
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))
