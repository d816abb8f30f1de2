"""Knobs, result and refusals of debiasing; light, so that a stage can name them without loading torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from data.errors import DaymillError

Mode = Literal["weights", "representation"]


@dataclass(frozen=True)
class DebiasConfig:
    """How to debias; shares are of 1."""

    mode: Mode = "weights"
    goal: float = 0.5  # share of the equal-odds gap that may remain, for the verdict
    accuracy_budget: float = 0.015  # of held-out accuracy that may be lost; more is refused
    leak_tolerance: float = 0.03  # by which a probe may tell the group better than by always guessing the largest one
    max_weight: float = 5.0  # of a record; the smallest is its inverse
    min_group: int = 50  # labelled records; smaller groups are neither judged nor hidden
    min_cell: int = 10  # records of a group and label that a rate is told of
    strength: float = 5.0  # of the reversed gradient
    adversary_steps: int = 3  # of the adversary for one of the encoder, so that it is worth fooling
    adversary_lr: float = 5e-3
    lr: float = 5e-3
    epochs: int = 20
    rows: int = 1_024  # of one step; the adversary's gradient is noise in small ones
    hidden: int = 64  # units of the hidden layers
    width: int = 8  # of the representation
    features: int = 2**16  # hash buckets of words and word pairs
    max_chars: int = 2_000  # of a text that are looked at
    folds: int = 2  # a record's weight comes from networks that did not see it
    held_out: float = 0.3  # of the records, only to judge by
    max_records: int = 100_000  # that networks are trained on; the others are answered by them
    threads: int = 1  # of torch; with more, small networks are no faster and the last bits of the result are others
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {getattr(self, name)}, expected {expected}"
            for name, expected, holds in (
                ("goal", "0 to 1", 0 <= self.goal <= 1),
                ("accuracy_budget", "0 to 1", 0 <= self.accuracy_budget <= 1),
                ("leak_tolerance", "0 to 1", 0 <= self.leak_tolerance <= 1),
                ("max_weight", "more than 1", self.max_weight > 1),
                ("held_out", "more than 0, less than 1", 0 < self.held_out < 1),
                ("folds", "2 or more", self.folds >= 2),
                ("strength", "more than 0", self.strength > 0),
                ("threads", "1 or more", self.threads >= 1),
            )
            if not holds
        ]
        if wrong:
            raise DaymillError(f"debiasing cannot be done like this: {'; '.join(wrong)}")


@dataclass(frozen=True)
class Debiased:
    """What debiasing gives for N records, in their order; no record is changed or left out.

    `weights` [N] have mean 1 over the labelled records and lie within max_weight and its inverse; a record without a
    label weighs 1, as do all in mode "representation". `features` [N, D] are for that mode alone.
    """

    weights: NDArray[np.float32]
    features: NDArray[np.float32] | None
    report: dict[str, Any]


class DebiasRefused(DaymillError):
    """Debiasing did not do what it promises; `report` says how far it came."""

    def __init__(self, message: str, report: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.report = report or {}


class AdversaryCollapsed(DebiasRefused):
    """The adversary tells no group any more though the group is still there to be told (AIF360#51)."""


class AccuracyBudget(DebiasRefused):
    """Held-out accuracy fell by more than the budget."""


class BiasRemains(DebiasRefused):
    """The representation still tells the group, or the gap between the groups grew."""
