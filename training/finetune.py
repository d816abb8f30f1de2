"""From a checkpoint to a classifier that is judged: labels, training, threshold, logits of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from data.errors import DaymillError
from training.checkpoint import Card
from training.decision import softmax
from training.metrics import best_threshold
from training.model import Classifier, Transformer
from training.rows import Rows


def positive_label(rows: Rows, wanted: str | None) -> str | None:
    """The label whose F1 counts: the wanted one, else the rarer of two; None with more than two labels."""
    if wanted is not None and wanted not in rows.names:
        raise DaymillError(f"finetune.positive is {wanted!r}; the labels of the train split are {rows.names}")
    if len(rows.names) != 2:
        return None
    if wanted is not None:
        return wanted
    counts = np.bincount(rows.labels, minlength=2)
    return rows.names[int(np.argmin(counts))]


def classifier_from(backbone: Transformer, labels: int, dropout: float, causal: bool, seed: int) -> Classifier:
    """A classifier on the weights of `backbone`, with its own dropout and attention direction and a fresh head."""
    torch.manual_seed(seed)
    config = replace(backbone.config, dropout=dropout, causal=causal, tied=True)
    model = Classifier(Transformer(config), labels)
    tensors = backbone.state_dict()
    tensors.pop("output.weight", None)  # an output embedding of its own is for next tokens, which nobody asks for here
    model.backbone.load_state_dict(tensors)
    return model


def calibrate(logits: NDArray[np.float32], rows: Rows, positive: str | None) -> float:
    """Threshold on P(positive) from validation rows; 0.5 where there is no positive label."""
    if positive is None:
        return 0.5
    at = rows.names.index(positive)
    return round(best_threshold(rows.labels == at, softmax(logits)[:, at]), 4)


@dataclass(frozen=True)
class Labelled:
    """The labelled rows of the three parts, with one list of label names."""

    train: Rows
    valid: Rows
    test: Rows

    def check(self) -> None:
        """Raises DaymillError where a part cannot be trained on or judged."""
        for name in ("train", "valid", "test"):
            if not len(getattr(self, name)):
                raise DaymillError(f"the {name} split has no labelled rows; finetuning needs labels in all three parts")
        if len(self.train.names) < 2:
            raise DaymillError(f"the train split has the labels {self.train.names}; expected at least two")


def make_card(
    model: Classifier, names: Sequence[str], positive: str | None, threshold: float, preprocess: dict
) -> Card:
    return Card(
        model=model.backbone.config,
        task="classify",
        labels=list(names),
        positive=positive,
        threshold=threshold,
        preprocess=preprocess,
    )
