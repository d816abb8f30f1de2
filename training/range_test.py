"""A learning-rate range test: one short run whose rate rises from far too small to far too large.

The rate at which the loss falls fastest is a good peak, the one from which it rises is too much (Smith,
arXiv:1506.01186, with the exponential sweep and smoothed loss that became usual later). The run is the trainer's own
step, nothing of it is kept, and the same inputs give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from data.errors import DaymillError
from training.step import Trainer

SMOOTHING = 0.95  # decay of the moving average of the losses
BLOWN_UP = 4.0  # times the way down from the first loss that the loss may rise above its least before the sweep ends
RISEN = 0.1  # of the way down: so far above its least, the smoothed loss is said to rise
SKIPPED = 5  # steps in a row whose gradients were not finite, before the sweep ends: a loss scale needs some to settle
NEIGHBORS = 10  # points on each side that a slope is taken over
LEAST_POINTS = 3 * NEIGHBORS


@dataclass(frozen=True)
class Sweep:
    """Rates in rising order and the losses met with, up to where the loss blew up."""

    rates: list[float]
    losses: list[float]

    @property
    def smoothed(self) -> list[float]:
        """The moving average of the losses, freed of the zero that it starts from."""
        average, found = 0.0, []
        for number, loss in enumerate(self.losses, start=1):
            average = SMOOTHING * average + (1 - SMOOTHING) * loss
            found.append(average / (1 - SMOOTHING**number))
        return found


@dataclass(frozen=True)
class Advice:
    """What a sweep says: the rate of the steepest descent, of the least loss, and from where on the loss rises."""

    steepest: float
    least: float
    rises: float | None  # None: it did not rise up to the highest rate


def rates_between(low: float, high: float, steps: int) -> list[float]:
    """`steps` rates from `low` to `high`, each the same number of times the one before."""
    if not 0 < low < high:
        raise DaymillError(f"rates from {low:g} to {high:g}; expected two numbers above 0, the lower one first")
    if steps < LEAST_POINTS:
        raise DaymillError(f"{steps} steps are too few to see where a loss falls; expected at least {LEAST_POINTS}")
    return [low * (high / low) ** (step / (steps - 1)) for step in range(steps)]


def sweep(
    trainer: Trainer,
    batches: Callable[[int], Sequence[Any]],
    loss_sum: Callable[[Any], Tensor],
    weight: Callable[[Any], float],
    rates: Sequence[float],
    on_step: Callable[[int, float, float], None] | None = None,
) -> Sweep:
    """One step a rate, of the micro-batches that `batches(step)` gives; ends early where the loss blows up.

    `on_step(step, rate, loss)` is called after each.
    """
    found, skipped = Sweep([], []), 0
    for step, rate in enumerate(rates):
        report = trainer.step(batches(step), loss_sum, weight, rate)
        skipped = 0 if report.updated else skipped + 1
        if not math.isfinite(report.loss) or skipped > SKIPPED:
            break
        if skipped:  # a loss scale that is still too large
            continue
        found.rates.append(rate)
        found.losses.append(report.loss)
        if on_step is not None:
            on_step(step, rate, report.loss)
        smoothed = found.smoothed
        way = max(smoothed[0] - min(smoothed), 0.05 * abs(smoothed[0]))
        if len(smoothed) >= LEAST_POINTS and smoothed[-1] > min(smoothed) + BLOWN_UP * way:
            break
    return found


def advise(found: Sweep) -> Advice:
    """Raises DaymillError where the sweep ended too soon, or the loss fell nowhere."""
    if len(found.rates) < LEAST_POINTS:
        raise DaymillError(
            f"the loss was not finite after {len(found.rates)} steps, at a rate of "
            f"{found.rates[-1] if found.rates else 0:.1e}; begin lower (--low)"
        )
    smoothed = np.array(found.smoothed)
    least = int(smoothed.argmin())
    slopes = slopes_of(np.log(np.array(found.rates)), smoothed)
    falling = slopes[: least + 1]
    if least == 0 or falling.min() >= 0:
        raise DaymillError("the loss fell at none of the rates; begin lower (--low), or give it more --steps")
    way = smoothed[0] - smoothed[least]
    above = np.flatnonzero(smoothed[least:] > smoothed[least] + RISEN * way)
    return Advice(
        steepest=found.rates[int(falling.argmin())],
        least=found.rates[least],
        rises=found.rates[least + int(above[0])] if len(above) else None,
    )


def slopes_of(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The slope of the straight line through each point's neighbors."""
    found = np.empty(len(x))
    for at in range(len(x)):
        near = slice(max(0, at - NEIGHBORS), at + NEIGHBORS + 1)
        across = x[near] - x[near].mean()
        found[at] = (across * (y[near] - y[near].mean())).sum() / (across**2).sum()
    return found


def rounded(rate: float) -> float:
    """A rate in one digit and a half: 1, 1.5, 2, 3, 5, 7 times a power of ten, never above the rate."""
    power = 10.0 ** math.floor(math.log10(rate))
    steps = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0]
    return float(f"{max(step for step in steps if step * power <= rate * (1 + 1e-9)) * power:.2g}")
