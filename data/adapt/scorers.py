"""Two ways to tell the target from the pool, both linear in hashed n-grams: a score a text, higher where it is nearer.

`ngram` follows DSIR (Xie et al. 2023, Data Selection for Language Models via Importance Resampling): the log-likelihood
ratio of two bags of hashed n-grams. `discriminator` is a logistic regression between the two sets of texts. Scores are
means over a text's n-grams, so a long text is not more of anything for being long; data/adapt/ratios.py makes density
ratios of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression

Method = Literal["discriminator", "ngram"]

# How many n-grams of the target the pool's distribution counts for; the data choose one.
PRIORS = (100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0, 300_000.0)
REGULARIZATION = 10.0  # inverse strength of the penalty, on rows of length 1
NEGATIVES = 2_000  # texts of the pool that a discriminator learns from: more change nothing against 200 of the target


@dataclass(frozen=True)
class Scorer:
    """score = (row / norm of the row) @ vector + offset; `scale` weighs the columns before the norm is taken."""

    vector: NDArray[np.float64]
    offset: float
    norm: Literal["l1", "l2"]
    scale: NDArray[np.float64] | None = None

    def scores(self, rows: csr_matrix) -> NDArray[np.float64]:
        """float64 [texts]; 0 for a text without n-grams."""
        weighed = rows if self.scale is None else scaled(rows, self.scale)
        sums = weighed @ self.vector
        norms = np.asarray(weighed.sum(axis=1)).ravel() if self.norm == "l1" else lengths(weighed)
        there = norms > 0
        return np.where(there, sums / np.where(there, norms, 1) + self.offset, 0.0)


def fit(method: Method, target: csr_matrix, pool: csr_matrix) -> Scorer:
    """A scorer from rows of both sides, each [texts, buckets] of data/adapt/features.ngram_rows."""
    return fit_ngram(target, pool) if method == "ngram" else fit_discriminator(target, pool[:NEGATIVES])


def fit_ngram(target: csr_matrix, pool: csr_matrix) -> Scorer:
    """log p_target / p_pool of each bucket, for words and for pairs of words apart.

    Twenty texts fill few buckets, so p_target is their counts on top of the pool's distribution (a Dirichlet prior),
    as strong as predicts each target text best from the others: little for words, much for pairs, most of which come
    once and never again.
    """
    half = pool.shape[1] // 2
    parts = [log_ratios(target[:, part], pool[:, part]) for part in (slice(0, half), slice(half, None))]
    return Scorer(np.concatenate(parts), 0.0, "l1")


def log_ratios(target: csr_matrix, pool: csr_matrix) -> NDArray[np.float64]:
    background = seen_or_not(np.asarray(pool.sum(axis=0), np.float64).ravel())
    counts = np.asarray(target.sum(axis=0), np.float64).ravel()
    prior = max(PRIORS, key=lambda strength: left_out_likelihood(target, counts, background, strength))
    return np.log((counts + prior * background) / (counts.sum() + prior)) - np.log(background)


def seen_or_not(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """A distribution in which what was never seen has, all together, the share of what was seen once (Good 1953).

    Without it a bucket that one target text fills by chance and the pool never would decide the ratio of a text.
    """
    unseen = counts == 0
    if not unseen.any() or not counts.any():
        return (counts + 1) / (counts + 1).sum()
    once = float(counts[(counts > 0) & (counts < 1.5)].sum())
    missing = min(max(once / counts.sum(), 1e-3), 0.9)
    return np.where(unseen, missing / unseen.sum(), (1 - missing) * counts / counts.sum())


def left_out_likelihood(
    target: csr_matrix, counts: NDArray[np.float64], background: NDArray[np.float64], prior: float
) -> float:
    """Log likelihood of every target text under the counts of the others."""
    totals = np.asarray(target.sum(axis=1), np.float64).ravel()
    rows = np.repeat(np.arange(target.shape[0]), np.diff(target.indptr))
    columns, own = target.indices, target.data.astype(np.float64)
    others = np.maximum(counts[columns] - own, 0) + prior * background[columns]
    return float(np.sum(own * (np.log(others) - np.log(counts.sum() - totals[rows] + prior))))


def fit_discriminator(target: csr_matrix, pool: csr_matrix) -> Scorer:
    """The log odds of a logistic regression on TF-IDF rows of length 1, both sides weighing the same."""
    scale = rarity(pool)
    rows = unit(scaled(csr_matrix(vstack([target, pool], format="csr")), scale))
    sides = np.concatenate([np.ones(target.shape[0]), np.zeros(pool.shape[0])])
    # liblinear's primal Newton method draws nothing at random and is quicker than lbfgs on these few rows
    model = LogisticRegression(C=REGULARIZATION, class_weight="balanced", solver="liblinear", tol=1e-3)
    model.fit(rows, sides)
    return Scorer(model.coef_[0].astype(np.float64), float(model.intercept_[0]), "l2", scale)


def rarity(rows: csr_matrix) -> NDArray[np.float64]:
    """The inverse document frequency of each column, smoothed."""
    seen = np.bincount(rows.indices, minlength=rows.shape[1])
    return np.log((1 + rows.shape[0]) / (1 + seen)) + 1


def scaled(rows: csr_matrix, columns: NDArray[np.float64]) -> csr_matrix:
    return csr_matrix((rows.data * columns[rows.indices], rows.indices, rows.indptr), shape=rows.shape)


def unit(rows: csr_matrix) -> csr_matrix:
    """Rows of length 1; a row of nothing stays so."""
    norms = lengths(rows)
    data = rows.data / np.repeat(np.where(norms > 0, norms, 1), np.diff(rows.indptr))
    return csr_matrix((data, rows.indices, rows.indptr), shape=rows.shape)


def lengths(rows: csr_matrix) -> NDArray[np.float64]:
    squares = csr_matrix((np.square(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    return np.sqrt(squares @ np.ones(rows.shape[1]))
