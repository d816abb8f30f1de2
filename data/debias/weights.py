"""Per-record weights that turn the labels' odds into those of a network that an adversary made forget the group.

A record weighs q / p: the probabilities of its own label, given its text, by a network trained against an adversary and
by a plain one. In data weighted so, the share of a label among equal texts is q; a model of whatever kind that learns
from it heads for the debiased network's answers without ever seeing the network. Over the labels of a text the weights
average to 1, so that no text gains or loses importance as such, and since they follow from text and label, a record
whose group is unknown has one as well. Both networks answer records that they did not learn from, and the plain one
stops early: with p overfitted or underfitted the quotient is noise, or moves the odds too far.

What was tried beside it, on Adult: weights of 1 / P(group | text, label), which make the group unpredictable, change
nothing, since summed over groups the odds of the labels given the text stay as they were. Weights by group and label
alone (Kamiran and Calders 2012; searched for as by Jiang and Nachum 2020) move the thresholds of groups: one of the two
gaps of equal odds closes and the other one opens, and how far depends on the model, where q / p takes information out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from data.debias.nets import Trained, answer

Floats = NDArray[np.float64]


def log_ratio(plain: Trained, blind: Trained, x: csr_matrix, labels: NDArray[np.int64]) -> Floats:
    """log(q / p) [N] of each row's own label."""
    p, q = (answer(net.encoder, x)[1][np.arange(len(labels)), labels] for net in (plain, blind))
    return np.asarray(q - p, dtype=np.float64)


def bounded(ratio: Floats, largest: float) -> Floats:
    """Weights of mean 1 between 1 / largest and largest, in proportion to `ratio` in between."""
    low, high = -60.0, 60.0
    for _ in range(100):  # the mean grows with the scale: halve the interval until it is 1
        scale = (low + high) / 2
        mean = np.clip(ratio * np.exp(scale), 1 / largest, largest).mean()
        low, high = (scale, high) if mean < 1 else (low, scale)
    return np.clip(ratio * np.exp(low), 1 / largest, largest)


def spread(weights: Floats) -> dict[str, float]:
    """How far weights are from all alike: the effective share is that of rows of equal weight with as little noise."""
    return {
        "smallest": float(weights.min()),
        "largest": float(weights.max()),
        "effective_share": float(weights.sum() ** 2 / (weights**2).sum() / len(weights)),
    }
