"""Quantization-aware training: calibrate, train with rounding in the loop, calibrate again, freeze, train on.

The second calibration is on the weights that have got used to rounding; after it neither activation ranges nor weight
scales move, so the last stretch trains exactly the model that is exported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compression.distill import Teacher
from compression.importance import Batch
from compression.quantize import FULL_RANGE, freeze_ranges, prepare
from compression.ranges import calibrate
from compression.recovery import Recovery, recover, watch
from data.errors import DaymillError
from training.checkpoint import Card, load_card, load_tensors, save_checkpoint
from training.listeners import Bar
from training.model import Classifier

Ranges = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class QatPlan:
    """Recovery while ranges still move and after they are frozen; how ranges are taken."""

    moving: Recovery
    frozen: Recovery
    percentile: float = 99.99
    weight_max: int = FULL_RANGE


@dataclass(frozen=True)
class Quantized:
    """A model with frozen ranges, (low, high) of every linear's input, and what each stretch of training did."""

    model: Classifier
    ranges: Ranges
    stretches: dict[str, Any]


def train_quantized(
    model: Classifier,
    card: Card,
    plan: QatPlan,
    calibration: Sequence[Batch],
    teacher: Teacher,
    work: Path,
    progress: Bar | None = None,
) -> Quantized:
    """Quantize a copy of `model` and train it.

    `work` keeps the model between the two stretches: a killed run goes on from there and ends with the same weights.
    """
    quantized = prepare(model, plan.weight_max)
    halfway, note = work / "moving", work / "moving.json"  # the note first: the folder says that both are there
    before = watch(model, teacher, plan.moving.precision)
    if halfway.exists():
        restore(quantized, halfway, card)
        moved = json.loads(note.read_text(encoding="utf-8"))
        if progress is not None:
            progress.advance(plan.moving.steps * plan.moving.rows)
    else:
        calibrate(quantized, calibration, plan.percentile)
        moved = recover(quantized, teacher, plan.moving, progress)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(moved), encoding="utf-8")
        save_checkpoint(halfway, quantized, card, "{}")
    ranges = calibrate(quantized, calibration, plan.percentile)
    freeze_ranges(quantized)
    recovered = recover(quantized, teacher, replace(plan.frozen, seed=plan.frozen.seed + 1), progress)
    return Quantized(quantized.eval(), ranges, {"before": before, "moving": moved, "frozen": recovered})


def restore(quantized: Classifier, folder: Path, card: Card) -> None:
    if load_card(folder) != card:
        raise DaymillError(f"{folder}: belongs to another model; remove it and run again")
    quantized.load_state_dict(load_tensors(folder), strict=True)
