"""How good a compressed model is on labelled rows, beside the unpruned one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from compression.distill import Logits
from data.errors import DaymillError
from training.checkpoint import Card
from training.decision import decide
from training.finetune import calibrate
from training.metrics import Interval, bootstrap_interval, paired_bootstrap
from training.model import Classifier
from training.precision import Precision
from training.predict import predict_logits
from training.rows import Rows


@dataclass(frozen=True)
class Verdict:
    """Decisions [N] on the rows, and their F1 (of the positive label, else macro) with its interval."""

    predicted: NDArray[np.int64]
    f1: Interval

    def to_json(self) -> dict[str, float]:
        return {"f1": self.f1.value, "f1_low": self.f1.low, "f1_high": self.f1.high}


@dataclass(frozen=True)
class Appraisal:
    """A model's card with the threshold fitted, its test logits [N, C] and the verdict on them."""

    card: Card
    logits: Logits
    verdict: Verdict


def positive_index(card: Card) -> int | None:
    return None if card.positive is None else card.labels.index(card.positive)


def recalibrate(card: Card, valid: Rows, logits: Logits) -> Card:
    """The card with the threshold that suits these validation logits: pruning and rounding shift the scores."""
    return replace(card, threshold=calibrate(logits, valid, card.positive))


def judge(card: Card, rows: Rows, logits: Logits) -> Verdict:
    """Decide the rows as the server would, and score the decisions."""
    predicted = decide(logits, card.labels, card.positive, card.threshold)
    return Verdict(predicted, bootstrap_interval(rows.labels, predicted, positive_index(card)))


def appraise(model: Classifier, card: Card, valid: Rows, test: Rows, precision: Precision = "fp32") -> Appraisal:
    """Fit the threshold of a compressed model on validation rows and judge it on test rows."""
    answers = predict_logits(model, valid.tokens, precision=precision)
    fitted = recalibrate(card.with_model(model.backbone.config), valid, answers)
    logits = predict_logits(model, test.tokens, precision=precision)
    return Appraisal(fitted, logits, judge(fitted, test, logits))


def read_verdict(path: Path, part: str, card: Card, rows: Rows) -> Verdict:
    """The verdict on a model from its predictions.parquet (id, predicted, part) for exactly these rows."""
    table = pq.read_table(path, columns=["id", "predicted"], filters=[("part", "=", part)])
    named = dict(zip(table["id"].to_pylist(), table["predicted"].to_pylist(), strict=True))
    missing = [key for key in rows.ids if key not in named]
    if missing or len(named) != len(rows):
        raise DaymillError(
            f"{path}: holds {len(named)} predictions of part {part} for {len(rows)} rows ({len(missing)} missing, "
            f"first {missing[:5]}); run the finetune stage again"
        )
    predicted = np.array([card.labels.index(named[key]) for key in rows.ids], dtype=np.int64)
    return Verdict(predicted, bootstrap_interval(rows.labels, predicted, positive_index(card)))


def loss_of(card: Card, rows: Rows, ours: Verdict, reference: Verdict) -> Interval:
    """F1 of ours minus F1 of the reference on the same rows, with a paired interval: negative is a loss."""
    return paired_bootstrap(rows.labels, ours.predicted, reference.predicted, positive_index(card))
