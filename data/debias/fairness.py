"""How differently a classifier treats groups: equal odds, with what chance and resampling say about it. Numpy only.

Equal odds (Hardt et al. 2016): of the records whose true label is y, every group is given the label c equally often.
The gap is the largest difference between two groups over all y and c; with two labels that is the larger one of the
differences in true and in false positive rates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

DRAWS = 2_000
SHUFFLES = 200


class Change(NamedTuple):
    """A figure before and after, and their difference with its 95 % interval on the same resampled rows."""

    before: float
    after: float
    difference: float
    low: float
    high: float


def counts_of(groups: Codes, truth: Codes, predicted: Codes, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Records [G, C, C] by group, true and predicted label."""
    group_count, classes = shape
    flat = (groups * classes + truth) * classes + predicted
    return np.bincount(flat, minlength=group_count * classes**2).reshape(group_count, classes, classes)


def rates_of(counts: NDArray[np.number], min_cell: int) -> Floats:
    """Share [..., G, C, C] of each predicted label by group and true label; NaN for fewer than `min_cell` records."""
    total = counts.sum(-1, keepdims=True)
    shares = np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total >= max(1, min_cell))
    return np.asarray(shares, dtype=np.float64)


def gaps_of(rates: Floats) -> Floats:
    """For each true label the largest difference [..., C] between two groups; NaN where fewer than two have a rate."""
    known = ~np.isnan(rates)
    largest = np.where(known, rates, -np.inf).max(-3)
    smallest = np.where(known, rates, np.inf).min(-3)
    enough = known.sum(-3) >= 2
    return np.where(enough, np.where(enough, largest, 0) - np.where(enough, smallest, 0), np.nan).max(-1)


def equal_odds(counts: NDArray[np.number], min_cell: int) -> float:
    """The equal-odds gap; NaN where no label has two groups that can be compared."""
    gaps = gaps_of(rates_of(counts, min_cell))
    return float(np.nanmax(gaps)) if not np.isnan(gaps).all() else float("nan")


def chance_gap(
    groups: Codes, truth: Codes, predicted: Codes, shape: tuple[int, int], min_cell: int, seed: int = 0
) -> float:
    """The gap that 95 % of random groups stay below: groups shuffled among the records of the same label."""
    rng = np.random.default_rng(seed)
    order = np.argsort(truth, kind="stable")
    groups, truth, predicted = groups[order], truth[order], predicted[order]
    found = []
    for _ in range(SHUFFLES):
        shuffled = groups[np.lexsort((rng.random(len(truth)), truth))]
        found.append(equal_odds(counts_of(shuffled, truth, predicted, shape), min_cell))
    return float(np.quantile(found, 0.95))


def compare(
    groups: Codes, truth: Codes, before: Codes, after: Codes, shape: tuple[int, int], min_cell: int, seed: int = 0
) -> tuple[Change, Change]:
    """Equal-odds gap and accuracy before and after, on the same rows: (gap, accuracy)."""
    gap, accuracy = resampled(groups, truth, before, after, shape, min_cell, seed)
    return _change(*gap), _change(*accuracy)


def resampled(
    groups: Codes, truth: Codes, before: Codes, after: Codes, shape: tuple[int, int], min_cell: int, seed: int = 0
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """(gap before, after), (accuracy before, after), each [1 + DRAWS]: as found, then with the rows drawn again.

    Counts of the distinct (group, truth, before, after) are drawn, which is the same as drawing rows.
    """
    group_count, classes = shape
    cells, observed = np.unique(((groups * classes + truth) * classes + before) * classes + after, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(truth), observed / len(truth), size=DRAWS)
    drawn = np.vstack([observed[None], drawn])
    after_of, rest = cells % classes, cells // classes
    before_of, rest = rest % classes, rest // classes
    truth_of, group_of = rest % classes, rest // classes
    known = counts_of(groups, truth, before, shape).sum(-1) >= max(1, min_cell)  # [G, C]

    def gap(predicted: Codes) -> Floats:
        largest = np.zeros(DRAWS + 1)
        for label in np.unique(truth_of):
            counts = np.zeros((DRAWS + 1, group_count, classes))
            for column in np.flatnonzero(truth_of == label):
                counts[:, group_of[column], predicted[column]] += drawn[:, column]
            rates = np.where(known[:, label, None], rates_of(counts, 1), np.nan)
            largest = np.fmax(largest, gaps_of(rates[:, :, None])[:, 0])
        return largest

    def right(predicted: Codes) -> Floats:
        return np.asarray(drawn[:, truth_of == predicted].sum(1) / len(truth))

    return (gap(before_of), gap(after_of)), (right(before_of), right(after_of))


def _change(before: Floats, after: Floats) -> Change:
    difference = after - before
    low, high = np.quantile(difference[1:], [0.025, 0.975])
    return Change(float(before[0]), float(after[0]), float(difference[0]), float(low), float(high))
