"""The knobs of training runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from training.precision import Kernel, Precision, Scaling
from training.schedule import Decay, warmup_steps


@dataclass(frozen=True)
class PretrainConfig:
    """Knobs of a run; a step sees rows x length x accumulate token places."""

    tokens: int  # token places to train on; 0 leaves the random weights
    length: int = 256  # places of a packed row
    rows: int = 16  # rows of a micro-batch
    accumulate: int = 1  # micro-batches of a step
    lr: float = 2e-3
    warmup: float = 0.1  # share of the steps; 1 and more: steps
    floor: float = 0.05  # last learning rate as a share of the peak
    decay: Decay = "cosine"  # from the peak to the floor
    hold: float = 0.0  # share of the steps behind the warm-up that keep the peak, before the rate comes down
    weight_decay: float = 0.1
    clip: float = 1.0
    smoothing: float = 0.0  # of the targets, in training alone
    theta_ramp: float = 0.0  # share of the steps in which D-SReLU's scheduled theta rises from 0; 0: it holds at once
    skip: Literal["none", "neurons", "tokens"] = "none"  # what leaves D-SReLU's backward passes
    skip_share: float = 0.6
    seed: int = 0
    evaluations: int = 4  # validations on the way, the last one at the end
    valid_tokens: int = 50_000  # token places of a validation; 0: all
    save_every_s: float = 15.0
    save_share: float = 0.02  # of the wall time that checkpoints may take; 0: no limit
    patience: int = 0  # validations without a lower loss before the run ends; 0: none ends it
    keep_best: bool = False  # the state also holds the weights of the lowest validation loss, as `best/...`
    precision: Precision | None = None  # None: measure
    emulate: bool = False  # compute the precision's rounding whatever it costs, also where the device lacks it
    fp8_scaling: Scaling = "tensor"
    replay: str | None = None  # a run's precision.json: its choices and decisions are taken again
    attention: Kernel | None = None  # None: measure
    compile: bool = False  # blocks, on a GPU
    look_every: int = 0  # steps between close looks of telemetry; 0: none

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / (self.rows * self.length * self.accumulate))

    @property
    def warmup_steps(self) -> int:
        return warmup_steps(self.warmup, self.steps)

    @property
    def places(self) -> int:
        """Token places of all steps."""
        return self.steps * self.rows * self.length * self.accumulate


@dataclass(frozen=True)
class ClassifyConfig:
    """Knobs of one training run; `steps` counts updates and goes before `epochs` where given."""

    epochs: float = 3.0
    steps: int | None = None
    rows: int = 32  # rows of one update
    max_tokens: int = 4096  # padded tokens of one micro-batch
    batches: Literal["buckets", "padded"] = "buckets"  # how a step's rows become micro-batches
    lr: float = 1e-3
    warmup: float = 0.1  # share of the steps; 1 and more: steps
    floor: float = 0.05  # last learning rate as a share of the peak
    weight_decay: float = 0.05
    clip: float = 1.0
    smoothing: float = 0.05
    balance: bool = False  # weight classes by the inverse of their share
    average: float = 0.0  # decay of the moving average of weights that is evaluated and kept; 0 keeps the last
    evaluations: float = 1.0  # per epoch
    patience: int = 3  # evaluations without a lower validation loss before stopping; 0 never stops
    precision: Precision | None = None  # None: measure
    emulate: bool = False  # compute the precision's rounding whatever it costs, also where the device lacks it
    attention: Kernel | None = None  # None: measure
    positive: int | None = None  # index of the label whose F1 is reported on the way
    save_share: float = 0.02  # of the wall time that saving the state may take; 0: no limit
    look_every: int = 0  # steps between close looks of telemetry; 0: none
    seed: int = 0


@dataclass(frozen=True)
class Distill:
    """How a student follows its teacher: share of the soft loss (the rest: true labels), and hidden states."""

    weight: float = 0.7
    temperature: float = 2.0
    hidden: float = 0.0  # weight of the mean squared error of the last hidden states (equal widths only)
