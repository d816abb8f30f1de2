"""Quantization-aware training: calibrate, train with rounding in the loop, calibrate again, freeze, train on.

The second calibration is on the weights that have got used to rounding; after it neither activation ranges nor weight
scales move, so the last stretch trains exactly the model that is exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from compression.importance import Batch
from compression.quantize import FULL_RANGE, freeze_ranges, prepare
from compression.ranges import calibrate
from compression.recovery import Lessons, Recovery, recover
from data.batching import budget_batches
from data.errors import DaymillError
from data.tokens import pad
from training.checkpoint import Card, load_card, load_tensors, save_checkpoint
from training.classify import Bar
from training.model import Classifier
from training.rows import Rows

Ranges = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class QatPlan:
    """Recovery while ranges still move and after they are frozen; how ranges are taken."""

    moving: Recovery
    frozen: Recovery
    percentile: float = 99.99
    weight_max: int = FULL_RANGE


def train_quantized(
    model: Classifier,
    card: Card,
    plan: QatPlan,
    calibration: Sequence[Batch],
    lessons: Lessons,
    work: Path,
    progress: Bar | None = None,
) -> tuple[Classifier, Ranges]:
    """A quantized model with frozen ranges, and the (low, high) of every linear's input.

    `work` keeps the model between the two stretches: a killed run goes on from there and ends with the same weights.
    """
    quantized = prepare(model, plan.weight_max)
    halfway = work / "moving"
    if halfway.exists():
        restore(quantized, halfway, card)
        if progress is not None:
            progress.advance(plan.moving.steps * plan.moving.rows)
    else:
        calibrate(quantized, calibration, plan.percentile)
        recover(quantized, lessons, plan.moving, progress)
        save_checkpoint(halfway, quantized, card, "{}")
    ranges = calibrate(quantized, calibration, plan.percentile)
    freeze_ranges(quantized)
    recover(quantized, lessons, replace(plan.frozen, seed=plan.frozen.seed + 1), progress)
    return quantized.eval(), ranges


def restore(quantized: Classifier, folder: Path, card: Card) -> None:
    if load_card(folder) != card:
        raise DaymillError(f"{folder}: belongs to another model; remove it and run again")
    quantized.load_state_dict(load_tensors(folder), strict=True)


def calibration_batches(rows: Rows, count: int, seed: int, max_tokens: int = 4096) -> list[Batch]:
    """`count` rows drawn without replacement (all, where fewer), in batches of similar length."""
    chosen = np.random.default_rng(seed).permutation(len(rows))[:count]
    tokens = [rows.tokens[i] for i in chosen]
    batches = []
    for members in budget_batches([len(row) for row in tokens], max_tokens):
        ids, mask = pad([tokens[i] for i in members])
        batches.append((torch.from_numpy(ids), torch.from_numpy(mask)))
    return batches
