"""What adapting gains on target examples that it has not seen, with an interval that holds for twenty of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.stats import beta, norm, t
from sklearn.linear_model import LogisticRegression

from data.adapt.perplexity import Evidence, losses, token_counts
from data.adapt.scorers import rarity, scaled, unit

Metric = Literal["accuracy", "perplexity"]
Weights = NDArray[np.float32]
Floats = NDArray[np.float64]

RESAMPLES = 4_000
CONFIDENCE = 0.95
MAX_CLASSIFIED = 4_000  # labelled texts of the pool that a classifier learns from, for each of six classifiers
REGULARIZATION = 10.0


@dataclass(frozen=True)
class Gain:
    """`difference` and its interval are positive where adapting helps: accuracy won, or perplexity lost."""

    metric: Metric
    before: float
    after: float
    difference: float
    low: float
    high: float
    examples: int

    def as_json(self) -> dict[str, float | int | str]:
        shown = {name: round(getattr(self, name), 6) for name in ("before", "after", "difference", "low", "high")}
        return {"metric": self.metric, **shown, "examples": self.examples, "confidence": CONFIDENCE}


def perplexity_gain(evidence: Evidence, folds: NDArray[np.int64], weights: Sequence[Weights], seed: int) -> Gain:
    """Perplexity (token-exact: one sum of losses over one sum of tokens) of each fold under the model without it.

    `weights[k]` are of the pool's texts, learned without the target texts of fold k. Both models take the smoothing
    that is best for them on the texts outside the fold.
    """
    tokens = token_counts(evidence)
    plain = losses(evidence, np.ones(evidence.grams[0].shape[0], np.float32))
    before, after = np.zeros(evidence.texts), np.zeros(evidence.texts)
    for fold, learned in enumerate(weights):
        adapted, held = losses(evidence, learned), folds == fold
        for result, found in ((before, plain), (after, adapted)):
            result[held] = found[np.argmin(found[:, ~held].sum(axis=1))][held]
    there = tokens > 0
    before, after, tokens = before[there], after[there], tokens[there]

    def of(counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        total = counts @ tokens
        return np.exp(counts @ before / total), np.exp(counts @ after / total)

    every = np.ones((1, len(tokens)), np.int64)
    (was,), (now,) = of(every)
    was_again, now_again = of(resampled(len(tokens), seed))
    low, high = bounds(was_again - now_again, len(tokens))
    return Gain("perplexity", float(was), float(now), float(was - now), low, high, len(tokens))


def accuracy_gain(
    pool: csr_matrix,
    pool_labels: Sequence[str | None],
    target: csr_matrix,
    labels: Sequence[str | None],
    folds: NDArray[np.int64],
    weights: Sequence[Weights],
    seed: int,
) -> Gain:
    """Accuracy on each labelled target example of a classifier of the pool's labelled texts, weighed without its fold.

    The interval is the wider of the paired bootstrap's and the exact one (Clopper and Pearson on the examples that
    only one of the two gets right): where few answers change, resampling them alone is too sure.
    """
    given = np.array([row for row, label in enumerate(pool_labels) if label is not None][:MAX_CLASSIFIED], np.int64)
    names = np.array([pool_labels[row] for row in given], object)
    asked = np.array([row for row, label in enumerate(labels) if label is not None], np.int64)
    truth = np.array([labels[row] for row in asked], object)
    scale = rarity(pool)
    learned_from, asked_rows = unit(scaled(pool[given], scale)), unit(scaled(target[asked], scale))
    before = answers(learned_from, names, np.ones(len(given), np.float32), asked_rows) == truth
    after = np.zeros(len(asked), bool)
    for fold, learned in enumerate(weights):
        held = folds[asked] == fold
        if held.any():
            after[held] = answers(learned_from, names, learned[given], asked_rows[held]) == truth[held]
    change = after.astype(np.int64) - before.astype(np.int64)
    low, high = bounds(resampled(len(asked), seed) @ change / len(asked), len(asked))
    exact_low, exact_high = exact_bounds(int((change > 0).sum()), int((change < 0).sum()), len(asked))
    was, now = float(before.mean()), float(after.mean())
    return Gain("accuracy", was, now, now - was, min(low, exact_low), max(high, exact_high), len(asked))


def answers(rows: csr_matrix, names: NDArray[np.object_], weights: Weights, asked: csr_matrix) -> NDArray[np.object_]:
    used = weights > 0
    distinct = sorted(set(names[used]))
    if len(distinct) < 2:
        return np.full(asked.shape[0], distinct[0] if distinct else "", object)
    model = LogisticRegression(C=REGULARIZATION, solver="lbfgs", max_iter=100, tol=1e-3)
    model.fit(rows[used], names[used], sample_weight=weights[used].astype(np.float64))
    return np.asarray(model.predict(asked), object)


def resampled(count: int, seed: int) -> NDArray[np.int64]:
    """int64 [RESAMPLES, count]: how often each example is in each bootstrap sample."""
    return np.random.Generator(np.random.PCG64(seed)).multinomial(count, np.full(count, 1 / count), RESAMPLES)


def bounds(found: Floats, count: int) -> tuple[float, float]:
    """The bootstrap's percentile interval, expanded (Hesterberg 2015).

    The plain one is too narrow for few examples: it lacks Student's t and the n / (n - 1) of a sample's variance.
    """
    if count < 2:
        return -np.inf, np.inf
    tail = float(norm.cdf(t.ppf((1 - CONFIDENCE) / 2, count - 1) * sqrt(count / (count - 1))))
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def exact_bounds(won: int, lost: int, count: int) -> tuple[float, float]:
    """An interval of (won - lost) / count, given how many answers changed; above zero where a sign test says so."""
    changed, tail = won + lost, (1 - CONFIDENCE) / 2
    if not changed:
        return 0.0, 0.0
    low = float(beta.ppf(tail, won, lost + 1)) if won else 0.0
    high = float(beta.ppf(1 - tail, won + 1, lost)) if lost else 1.0
    return (2 * low - 1) * changed / count, (2 * high - 1) * changed / count
