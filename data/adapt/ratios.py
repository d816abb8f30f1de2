"""From scores to density ratios, and from ratios to weights or to a choice.

A weight is bounded: with weights of mean 1 none above `max_weight`, the effective sample size, (sum w)^2 / sum w^2, is
at least the number of records over `max_weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEPS = 60  # halvings of an interval: double precision


@dataclass(frozen=True)
class Calibration:
    """log(p_target / p_pool) = slope * (score - center) / spread + offset."""

    slope: float
    offset: float
    center: float
    spread: float

    def log_ratios(self, scores: Floats) -> Floats:
        return self.slope * (scores - self.center) / self.spread + self.offset


def calibrate(target: Floats, pool: Floats, ridge: float = 1.0) -> Calibration:
    """A logistic curve from scores to log density ratios, both sides weighing the same (Platt 1999).

    The scores are of texts that their scorer has not seen. The ridge (in examples) and Platt's softened answers keep
    the slope finite where the two sides do not overlap, which with 20 examples says little.
    """
    center, spread = float(np.mean(np.sort(pool))), float(np.std(np.sort(pool))) or 1.0
    scores = (np.concatenate([np.sort(target), np.sort(pool)]) - center) / spread
    count = len(target)
    yes, no = (count + 1) / (count + 2), 1 / (count + 2)
    answers = np.concatenate([np.full(count, yes), np.full(len(pool), no)])
    # the pool counts as much as the target, and not for more than the few examples there are
    weights = np.concatenate([np.ones(count), np.full(len(pool), count / len(pool))])
    slope = offset = 0.0
    for _ in range(100):
        guess = 1 / (1 + np.exp(-np.clip(slope * scores + offset, -30, 30)))
        error, bend = weights * (guess - answers), weights * np.maximum(guess * (1 - guess), 1e-9)
        # sums, not BLAS products, whose order of adding depends on the number of threads
        gradient = np.array([np.sum(error * scores) + ridge * slope, np.sum(error)])
        across = np.sum(bend * scores)
        hessian = np.array([[np.sum(bend * scores**2) + ridge, across], [across, np.sum(bend) + 1e-9]])
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))  # Newton far from its end overshoots
        slope, offset = slope - float(step[0]), offset - float(step[1])
        if np.abs(step).max() < 1e-10:
            break
    # a target that scores below the pool was not learned: the ratio is then 1 everywhere, not upside down
    return Calibration(slope, offset, center, spread) if slope > 0 else Calibration(0.0, 0.0, center, spread)


def weights_of(log_ratios: Floats, max_weight: float) -> NDArray[np.float32]:
    """float32 [records] of mean 1, in proportion to the ratios as far as none passes `max_weight` (above 1)."""
    if not len(log_ratios):
        return np.zeros(0, np.float32)
    top = float(log_ratios.max())
    ordered = np.sort(log_ratios - top)  # sums in one order, whatever the order of the records
    low, high = -800.0, 800.0  # log of the factor that makes the mean 1: more factor, more mean
    for _ in range(STEPS):
        middle = (low + high) / 2
        mean = float(np.mean(np.minimum(np.exp(np.minimum(ordered + middle, 700.0)), max_weight)))
        low, high = (middle, high) if mean < 1 else (low, middle)
    return np.minimum(np.exp(np.minimum(log_ratios - top + high, 700.0)), max_weight).astype(np.float32)


def chosen(log_ratios: Floats, keep_share: float, noise: Floats | None = None) -> NDArray[np.bool_]:
    """Which records stay: the share with the highest ratios.

    With Gumbel noise a draw without replacement in proportion to the ratios (as DSIR resamples). Records that tie at
    the border all stay, so that the order of the records decides nothing.
    """
    if not len(log_ratios):
        return np.zeros(0, bool)
    values = log_ratios if noise is None else log_ratios + noise
    count = max(1, round(keep_share * len(values)))
    return values >= np.partition(values, len(values) - count)[len(values) - count]


def effective_size(weights: NDArray[np.float32]) -> float:
    """(sum w)^2 / sum w^2, in records (Kish)."""
    if not len(weights):
        return 0.0
    ordered = np.sort(weights.astype(np.float64))
    return float(ordered.sum() ** 2 / np.square(ordered).sum())
