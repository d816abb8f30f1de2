"""From logits to labels: the one rule that training, parity checks and the server share.

Only numpy, so that the server stays free of torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def softmax(logits: Floats) -> NDArray[np.float64]:
    """Probabilities [N, C] of logits [N, C], in float64 so that ties and thresholds do not depend on the engine."""
    shifted = np.asarray(logits, dtype=np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    exp = np.exp(shifted)
    return exp / exp.sum(axis=-1, keepdims=True)


def decide(
    logits: Floats, labels: Sequence[str], positive: str | None = None, threshold: float = 0.5
) -> NDArray[np.int64]:
    """Index into `labels` for each row of logits [N, C].

    Two labels with a `positive` one: positive where P(positive) >= threshold. Otherwise the most probable label.
    Raises ValueError when `positive` is not among `labels`.
    """
    probabilities = softmax(logits)
    if positive is not None and positive not in labels:
        raise ValueError(f"positive label {positive!r} is not among the labels {list(labels)}")
    if positive is None or len(labels) != 2:
        return probabilities.argmax(axis=-1)
    yes = labels.index(positive)
    return np.where(probabilities[:, yes] >= threshold, yes, 1 - yes).astype(np.int64)


def score(
    logits: Floats,
    labels: Sequence[str],
    positive: str | None = None,
    chosen: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Score [N]: P(positive) for two labels with a positive one, otherwise the probability of the chosen label."""
    probabilities = softmax(logits)
    if positive is not None and len(labels) == 2:
        return probabilities[:, labels.index(positive)]
    picked = probabilities.argmax(axis=-1) if chosen is None else chosen
    return np.take_along_axis(probabilities, picked[:, None], axis=-1)[:, 0]
