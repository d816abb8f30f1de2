"""How good a compressed model is on labelled rows, beside the unpruned one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compression.distill import Logits
from training.checkpoint import Card
from training.decision import decide, score
from training.metrics import Interval, best_threshold, bootstrap_interval, paired_bootstrap
from training.rows import Rows


@dataclass(frozen=True)
class Verdict:
    """Decisions [N] on the rows, and their F1 (of the positive label, else macro) with its interval."""

    predicted: NDArray[np.int64]
    f1: Interval

    def to_json(self) -> dict[str, float]:
        return {"f1": self.f1.value, "f1_low": self.f1.low, "f1_high": self.f1.high}


def positive_index(card: Card) -> int | None:
    return None if card.positive is None else card.labels.index(card.positive)


def recalibrate(card: Card, valid: Rows, logits: Logits) -> Card:
    """The card with the threshold that suits these validation logits: pruning and rounding shift the scores."""
    positive = positive_index(card)
    if positive is None or len(card.labels) != 2:
        return card
    scores = score(logits, card.labels, card.positive)
    return replace(card, threshold=best_threshold(valid.labels == positive, scores))


def judge(card: Card, rows: Rows, logits: Logits) -> Verdict:
    """Decide the rows as the server would, and score the decisions."""
    predicted = decide(logits, card.labels, card.positive, card.threshold)
    return Verdict(predicted, bootstrap_interval(rows.labels, predicted, positive_index(card)))


def loss_of(card: Card, rows: Rows, ours: Verdict, reference: Verdict) -> Interval:
    """F1 of ours minus F1 of the reference on the same rows, with a paired interval: negative is a loss."""
    return paired_bootstrap(rows.labels, ours.predicted, reference.predicted, positive_index(card))
