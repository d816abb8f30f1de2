"""From a classifier's margin to a probability that keeps its word, and the figures that tell whether it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RELIABILITY_BINS = 10
CLIP = 1e-4  # no example proves more than that
LOSSES = (0.005, 0.01, 0.02)  # shares of the good examples
THRESHOLDS = (0.03, 0.05, 0.08, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Calibration:
    """A rising line through points: margins in the first row, probabilities of being good in the second."""

    points: NDArray[np.float64]

    @staticmethod
    def of(margins: NDArray[np.float64], truth: NDArray[np.int64], noise: float = 0.0) -> Calibration:
        """Isotonic regression over held-out margins, laid through the middle of its steps.

        Between the steps' middles the probability rises, so that a threshold can part any two margins. `noise` is how
        many noisy texts the good examples hold for each bad example (noise_among): where it is above 0 the odds of
        being labelled good become those of being good, (odds - noise) / (1 + noise).
        """
        from sklearn.isotonic import IsotonicRegression

        order = np.argsort(margins, kind="stable")
        steps = IsotonicRegression(y_min=CLIP, y_max=1 - CLIP).fit(margins[order], truth[order]).predict(margins[order])
        values, starts, counts = np.unique(steps, return_index=True, return_counts=True)
        middles = np.array([margins[order][at : at + n].mean() for at, n in zip(starts, counts)])
        odds = np.maximum(values / (1 - values) - noise, CLIP) / (1 + noise)
        chances = np.maximum.accumulate(np.clip(odds / (1 + odds), CLIP, 1 - CLIP))
        ends = np.concatenate([[margins.min() - 1], middles, [margins.max() + 1]])
        return Calibration(np.vstack([ends, np.concatenate([[CLIP / 2], chances, [1 - CLIP / 2]])]))

    def probability(self, margins: NDArray[Any]) -> NDArray[np.float64]:
        return np.interp(margins, self.points[0], self.points[1])


def noise_among(margins: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Noisy texts among the good examples, a bad example.

    Where the lower half of the bad examples lies, sound texts are not (learning from positive and unlabelled examples,
    Elkan and Noto 2008): what is labelled good there is noise, and noise is taken to lie as the bad examples do.
    """
    middle = np.median(margins[truth == 0])
    low = margins < middle
    return float((low & (truth == 1)).sum() / max(1, (low & (truth == 0)).sum()))


def validation_of(
    margins: NDArray[np.float64], truth: NDArray[np.int64], fold: NDArray[np.int64], noise: float
) -> dict[str, Any]:
    """What held-out examples say: each fold's probabilities come from a model and a calibration that never saw it.

    auc, average_precision (of bad), brier, ece (expected calibration error) and its reliability table are of the labels
    as they were given. noise_among_good is the share of the good examples that seem to be noise. The thresholds are of
    the score, and tell what each would cost of the good examples, that noise included, and catch of the bad ones.
    """
    from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

    labelled, score = np.empty(len(margins)), np.empty(len(margins))
    for number in np.unique(fold):
        inside, outside = fold != number, fold == number
        for chance, share in ((labelled, 0.0), (score, noise)):
            chance[outside] = Calibration.of(margins[inside], truth[inside], share).probability(margins[outside])
    table = reliability(labelled, truth)
    ece = sum(abs(row["mean_probability"] - row["share_good"]) * row["examples"] for row in table) / len(labelled)
    good, bad = int(truth.sum()), int((1 - truth).sum())
    return {
        "good": good,
        "bad": bad,
        "noise_among_good": round(min(1.0, noise * bad / good), 4),
        "auc": round(float(roc_auc_score(truth, labelled)), 4),
        "average_precision": round(float(average_precision_score(1 - truth, 1 - labelled)), 4),
        "brier": round(float(brier_score_loss(truth, labelled)), 4),
        "ece": round(float(ece), 4),
        "reliability": table,
        "good_loss": [threshold_at(score, truth, loss) for loss in LOSSES],
        "thresholds": [loss_at(score, truth, threshold) for threshold in THRESHOLDS],
    }


def reliability(chance: NDArray[np.float64], truth: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Ten bins of probability: how many examples, the mean probability, the share that is good."""
    bins = np.minimum((chance * RELIABILITY_BINS).astype(int), RELIABILITY_BINS - 1)
    rows = []
    for number in range(RELIABILITY_BINS):
        inside = bins == number
        if inside.any():
            rows.append(
                {
                    "from": number / RELIABILITY_BINS,
                    "examples": int(inside.sum()),
                    "mean_probability": round(float(chance[inside].mean()), 4),
                    "share_good": round(float(truth[inside].mean()), 4),
                }
            )
    return rows


def threshold_at(chance: NDArray[np.float64], truth: NDArray[np.int64], loss: float) -> dict[str, float]:
    """The threshold that costs a share of the good examples, and what it catches of the bad ones."""
    good = np.sort(chance[truth == 1])
    return loss_at(chance, truth, float(good[int(loss * len(good))]))


def loss_at(chance: NDArray[np.float64], truth: NDArray[np.int64], threshold: float) -> dict[str, float]:
    """What a threshold costs of the good examples, and what it catches of the bad ones."""
    return {
        "threshold": round(threshold, 6),
        "good_lost": round(float((chance[truth == 1] < threshold).mean()), 4),
        "bad_caught": round(float((chance[truth == 0] < threshold).mean()), 4),
    }
