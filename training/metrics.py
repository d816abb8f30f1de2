"""Metrics with their uncertainty: F1, macro F1, accuracy, bootstrap intervals, paired bootstrap.

Only numpy, so that the release gate can use it. Labels are integer codes. Rows are resampled by drawing
multinomial counts of the distinct (truth, prediction) cells: for metrics that depend on the confusion counts
alone this is the very same distribution, and thousands of times cheaper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.number]


class Interval(NamedTuple):
    """A metric and the ends of its percentile bootstrap interval."""

    value: float
    low: float
    high: float


def confusion(truth: ArrayLike, predicted: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Counts [C, C]: row = truth, column = prediction."""
    truth, predicted = np.asarray(truth, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if truth.shape != predicted.shape:
        raise ValueError(f"{truth.shape} labels for {predicted.shape} predictions")
    return np.bincount(truth * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def f1_per_class(counts: Counts) -> NDArray[np.float64]:
    """F1 [..., C] of confusion counts [..., C, C]; a class that is neither true nor predicted has 0."""
    hits = np.diagonal(counts, axis1=-2, axis2=-1).astype(np.float64)
    total = counts.sum(-1) + counts.sum(-2)
    return np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)


def headline(counts: Counts, positive: int | None) -> NDArray[np.float64]:
    """The metric a model is judged by: F1 of the positive class, or macro F1 over the classes that occur."""
    scores = f1_per_class(counts)
    if positive is not None:
        return scores[..., positive]
    occurs = (counts.sum(-1) + counts.sum(-2)) > 0
    return np.where(occurs, scores, 0).sum(-1) / np.maximum(occurs.sum(-1), 1)


def f1(truth: ArrayLike, predicted: ArrayLike, positive: int = 1) -> float:
    """F1 of the class `positive`; 0 where it is neither true nor predicted."""
    classes = max(_classes(truth, predicted), positive + 1)
    return float(headline(confusion(truth, predicted, classes), positive))


def macro_f1(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Mean F1 over the classes that occur in truth or prediction."""
    return float(headline(confusion(truth, predicted, _classes(truth, predicted)), None))


def accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Share of rows predicted right; 0 without rows."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    return float((truth == predicted).mean()) if len(truth) else 0.0


def bootstrap_interval(
    truth: ArrayLike,
    predicted: ArrayLike,
    positive: int | None = 1,
    metric: str = "f1",
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """The metric ("f1": of `positive`, macro where None; or "accuracy") with its percentile interval."""
    classes = max(_classes(truth, predicted), (positive or 0) + 1)
    counts = confusion(truth, predicted, classes)
    rows = int(counts.sum())
    if rows == 0:
        return Interval(0.0, 0.0, 0.0)
    drawn = np.random.default_rng(seed).multinomial(rows, counts.ravel() / rows, size=draws)
    drawn = drawn.reshape(draws, classes, classes)
    low, high = _percentiles(_metric(drawn, positive, metric), level)
    return Interval(float(_metric(counts, positive, metric)), low, high)


def paired_bootstrap(
    truth: ArrayLike,
    pred_a: ArrayLike,
    pred_b: ArrayLike,
    positive: int | None = 1,
    metric: str = "f1",
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """metric(A) - metric(B) on the same rows, with its interval: both models see the same resampled rows."""
    truth, pred_a, pred_b = (np.asarray(x, dtype=np.int64) for x in (truth, pred_a, pred_b))
    if not truth.shape == pred_a.shape == pred_b.shape:
        raise ValueError(f"{truth.shape} labels for {pred_a.shape} and {pred_b.shape} predictions")
    classes = max(_classes(truth, pred_a), _classes(truth, pred_b), (positive or 0) + 1)
    if len(truth) == 0:
        return Interval(0.0, 0.0, 0.0)
    cells, counts = np.unique((truth * classes + pred_a) * classes + pred_b, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(truth), counts / len(truth), size=draws)
    counts_a, counts_b = np.zeros((2, draws + 1, classes, classes))
    for cell, column in zip(cells, np.vstack([counts[None], drawn]).T, strict=True):
        row, a, b = cell // classes**2, cell // classes % classes, cell % classes
        counts_a[:, row, a] += column
        counts_b[:, row, b] += column
    difference = _metric(counts_a, positive, metric) - _metric(counts_b, positive, metric)
    low, high = _percentiles(difference[1:], level)
    return Interval(float(difference[0]), low, high)


def best_threshold(truth: ArrayLike, scores: ArrayLike, smooth: float = 0.01) -> float:
    """Threshold on P(positive) that maximizes F1 of truth (1 = positive), chosen robustly.

    A single best cut on a small validation split follows noise. The middle of the widest run of cuts whose F1
    is within `smooth` of the best one is steadier; with rows of one class only it is 0.5.
    """
    truth, scores = np.asarray(truth, dtype=np.int64), np.asarray(scores, dtype=np.float64)
    if truth.sum() == 0 or truth.all():
        return 0.5
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    upper = scores[order]
    lower = np.append(upper[1:], -1e-9)  # a threshold of 0 calls every row positive
    # Any threshold in (lower[k], upper[k]] calls exactly the first k + 1 rows positive; this is their F1.
    curve = 2 * hits / (np.arange(1, len(order) + 1) + truth.sum())
    distinct = upper > lower
    upper, lower, curve = upper[distinct], lower[distinct], curve[distinct]
    good = np.concatenate([[False], curve >= curve.max() - smooth, [False]])
    starts = np.flatnonzero(good[1:] & ~good[:-1])
    ends = np.flatnonzero(good[:-1] & ~good[1:]) - 1
    widest = int(np.argmax(upper[starts] - lower[ends]))
    return float(max(0.0, (upper[starts[widest]] + lower[ends[widest]]) / 2))


def _metric(counts: Counts, positive: int | None, metric: str) -> NDArray[np.float64]:
    if metric == "f1":
        return headline(counts, positive)
    if metric == "accuracy":
        return np.trace(counts, axis1=-2, axis2=-1) / np.maximum(counts.sum((-2, -1)), 1)
    raise ValueError(f"metric {metric!r}; expected 'f1' or 'accuracy'")


def _percentiles(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _classes(truth: ArrayLike, predicted: ArrayLike) -> int:
    return int(max(np.max(truth, initial=0), np.max(predicted, initial=0))) + 1
