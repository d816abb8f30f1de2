"""adapt: from a pool of texts and 20 to 200 examples of a target domain to weights of the pool, or a choice from it.

Everything is cross-fitted in five parts: no text's ratio comes from a model that has seen it, and the gain on a target
example comes from an adaptation that has not. Parts, samples and noise follow from the texts' content and the seed, so
the order of the records changes nothing. The pool may come in batches, twice; only a sample of its texts is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from data.adapt.features import Words, ngram_rows, tokens_of
from data.adapt.gain import Gain, accuracy_gain, perplexity_gain
from data.adapt.perplexity import gather
from data.adapt.ratios import Calibration, calibrate, chosen, effective_size, weights_of
from data.adapt.sampling import (
    FOLDS,
    Examples,
    Pool,
    Ranks,
    Sample,
    folds_of,
    gumbel,
    in_batches,
    numbered,
    sample_pool,
    target_examples,
)
from data.adapt.scorers import Method, Scorer, fit
from data.errors import DaymillError

MIN_POOL = 50  # texts, below which there is nothing to weigh or to choose from
MIN_LABELLED = 20  # target examples and pool texts with labels, from which accuracy can be told


@dataclass(frozen=True)
class AdaptConfig:
    """How to adapt; `keep_share` and `gumbel` are for mode "select", `max_weight` for mode "weights"."""

    method: Method = "discriminator"
    mode: Literal["weights", "select"] = "weights"
    metric: Literal["auto", "accuracy", "perplexity"] = "auto"  # auto: accuracy where both sides have labels
    max_weight: float = 20.0  # times the mean; the effective sample size is at least the pool over this
    keep_share: float = 0.3  # of the pool
    gumbel: bool = False  # draw the share in proportion to the ratios instead of taking the highest
    sample: int = 10_000  # texts of the pool that models learn from
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            (self.max_weight <= 1, f"max_weight is {self.max_weight}; expected a number above 1"),
            (not 0 < self.keep_share <= 1, f"keep_share is {self.keep_share}; expected above 0 and at most 1"),
            (self.sample < MIN_POOL, f"sample is {self.sample}; expected at least {MIN_POOL} texts"),
        ]
        found = [text for is_wrong, text in wrong if is_wrong]
        if found:
            raise DaymillError("domain adaptation: " + "; ".join(found))


@dataclass(frozen=True)
class Adapted:
    """What was learned, one entry a record of the pool in its order.

    `weights` float32 of mean 1 (all 1 in mode "select" and where it is off), `keep` bool (all True in mode "weights"
    and where it is off), `log_ratios` float32 log(p_target / p_pool), given
    also where it is off. `report` goes to JSON.
    """

    on: bool
    weights: NDArray[np.float32]
    keep: NDArray[np.bool_]
    log_ratios: NDArray[np.float32]
    report: dict[str, Any]


@dataclass(frozen=True)
class Learned:
    """A scorer a fold, each blind to its fold of both sides, and one calibration for all."""

    scorers: list[Scorer]
    calibration: Calibration

    def log_ratios(self, rows: csr_matrix, folds: NDArray[np.int64]) -> NDArray[np.float64]:
        """0 where a text has no words: nothing speaks for or against it."""
        empty = np.diff(rows.indptr) == 0
        return np.where(empty, 0.0, self.calibration.log_ratios(held_out_scores(self.scorers, rows, folds)))


def adapt(
    pool: Pool,
    target: Sequence[str],
    config: AdaptConfig | None = None,
    *,
    labels: Sequence[str | None] | None = None,
    pool_labels: Sequence[str | None] | None = None,
) -> Adapted:
    """Adapt the pool (texts, or a function that gives batches of them and can be called twice) to the target.

    Switched off (weights 1, nothing dropped) where the lower bound of the gain on held-out target examples is not above
    zero. Target examples that stand in the pool too teach neither model of the comparison. Raises DaymillError for
    fewer than 20 distinct target texts, and where accuracy is asked for and there are too few labels to tell it.
    """
    config = config or AdaptConfig()
    examples = target_examples(target, labels, config.seed)
    batches = in_batches(pool)
    sample = sample_pool(batches, pool_labels, examples.keys, config.sample, config.seed)
    metric = metric_of(config, examples, sample)
    count = len(sample.every_rank)
    if len(sample.texts) < MIN_POOL:
        reason = f"the pool has {len(sample.texts):,} texts that are no target examples; it needs {MIN_POOL}"
        return switched_off(np.zeros(count, np.float32), config, examples, sample, None, reason)
    memo = Words()
    asked = tokens_of(examples.texts, memo)
    tokens = [tokens_of(batch, memo) for _, batch in numbered(in_batches(sample.texts)())]
    target_rows = ngram_rows(asked)
    pool_rows = csr_matrix(vstack([ngram_rows(part) for part in tokens], format="csr"))
    weights = cross_fitted_weights(target_rows, pool_rows, sample.ranks, config)
    if metric == "perplexity":
        found = perplexity_gain(gather(tokens, asked), target_folds(len(asked)), weights, config.seed)
    else:
        known = (pool_rows, sample.labels, target_rows, examples.labels)
        found = accuracy_gain(*known, target_folds(len(asked)), weights, config.seed)
    del tokens, weights
    learned = learn(config.method, target_rows, pool_rows, folds_of(sample.ranks))
    scored = [
        learned.log_ratios(ngram_rows(tokens_of(batch, memo)), folds_of(sample.every_rank[begin : begin + len(batch)]))
        for begin, batch in numbered(batches())
    ]
    log_ratios = np.concatenate(scored).astype(np.float32)
    if not found.low > 0:
        reason = "the lower bound of the gain is not above zero: the pool stays as it is"
        return switched_off(log_ratios, config, examples, sample, found, reason)
    chosen_weights, keep = decide(log_ratios, sample.every_rank, config)
    report = report_of(config, examples, sample, found, True, "the lower bound of the gain is above zero")
    report |= {"effective_sample_size": round(effective_size(chosen_weights[keep]), 1), "kept": int(keep.sum())}
    return Adapted(True, chosen_weights, keep, log_ratios, report)


def decide(
    log_ratios: NDArray[np.float32], ranks: Ranks, config: AdaptConfig
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Weights and what stays, from ratios alone: another threshold needs no new measuring."""
    ratios = log_ratios.astype(np.float64)
    if config.mode == "weights":
        return weights_of(ratios, config.max_weight), np.ones(len(ratios), bool)
    noise = gumbel(ranks) if config.gumbel else None
    return np.ones(len(ratios), np.float32), chosen(ratios, config.keep_share, noise)


def metric_of(config: AdaptConfig, examples: Examples, sample: Sample) -> Literal["accuracy", "perplexity"]:
    """Accuracy needs labels that both sides know; where they lack, perplexity tells."""
    if config.metric == "perplexity":
        return "perplexity"
    known = {label for label in sample.labels if label is not None}
    labelled = [label for label in examples.labels if label in known]
    enough = (
        len(labelled) >= MIN_LABELLED
        and len(known) >= 2
        and sum(label is not None for label in sample.labels) >= MIN_POOL
    )
    if not enough and config.metric == "accuracy":
        raise DaymillError(
            f"domain adaptation: metric accuracy needs {MIN_LABELLED} target examples with labels that the pool has, "
            f"and {MIN_POOL} labelled texts of two labels in the pool; found {len(labelled)} examples and {len(known)} "
            "labels: give labels, or set the metric to perplexity"
        )
    return "accuracy" if enough else "perplexity"


def cross_fitted_weights(
    target: csr_matrix, pool: csr_matrix, ranks: Ranks, config: AdaptConfig
) -> list[NDArray[np.float32]]:
    """Of each fold of the target the pool's weights (0 for what is not kept) as learned without that fold."""
    folds, pool_folds, found = target_folds(target.shape[0]), folds_of(ranks), []
    for fold in range(FOLDS):
        learned = learn(config.method, target[folds != fold], pool, pool_folds)
        weights, keep = decide(learned.log_ratios(pool, pool_folds).astype(np.float32), ranks, config)
        found.append(np.where(keep, weights, 0).astype(np.float32))
    return found


def learn(method: Method, target: csr_matrix, pool: csr_matrix, pool_folds: NDArray[np.int64]) -> Learned:
    folds = target_folds(target.shape[0])
    scorers = [fit(method, target[folds != k], pool[pool_folds != k]) for k in range(FOLDS)]
    of_target = held_out_scores(scorers, target, folds)
    of_pool = held_out_scores(scorers, pool, pool_folds)
    return Learned(scorers, calibrate(of_target, of_pool))


def target_folds(count: int) -> NDArray[np.int64]:
    return np.arange(count) % FOLDS  # examples are in the order of their hashes


def held_out_scores(scorers: Sequence[Scorer], rows: csr_matrix, folds: NDArray[np.int64]) -> NDArray[np.float64]:
    scores = np.zeros(rows.shape[0])
    for fold, scorer in enumerate(scorers):
        own = folds == fold
        scores[own] = scorer.scores(rows[own])
    return scores


def switched_off(
    log_ratios: NDArray[np.float32],
    config: AdaptConfig,
    examples: Examples,
    sample: Sample,
    found: Gain | None,
    reason: str,
) -> Adapted:
    count = len(log_ratios)
    report = report_of(config, examples, sample, found, False, reason)
    report |= {"effective_sample_size": float(count), "kept": count}
    return Adapted(False, np.ones(count, np.float32), np.ones(count, bool), log_ratios, report)


def report_of(
    config: AdaptConfig, examples: Examples, sample: Sample, found: Gain | None, on: bool, reason: str
) -> dict[str, Any]:
    return {
        "method": config.method,
        "mode": config.mode,
        "target": len(examples.texts),
        "target_given": examples.given,
        "target_in_pool": sample.twins,
        "pool": len(sample.every_rank),
        "learned_from": len(sample.texts),
        "gain": found.as_json() if found else None,
        "on": on,
        "reason": reason,
    }
