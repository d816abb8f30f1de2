"""The one training step: accumulate, reduce once, unscale, clip once, check, update.

The loss of a step is sum over sum: every micro-batch gives the sum of its losses and the weight it counts for, and is
divided by the weight of the whole step, over all ranks, before its backward pass; ranks' gradients are added. So K
micro-batches on N ranks give the gradient of the one big batch, however unequal they are (transformers#34191).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from data.errors import DaymillError
from training.numerics import Numerics
from training.optim import set_learning_rate
from training.world import Alone, World

MicroBatch = TypeVar("MicroBatch")
PATIENCE = 20  # updates skipped in a row before a run is called broken


@dataclass
class StepReport:
    """What one step did: summed loss, the weight it was averaged over, gradient norm before clipping."""

    loss_sum: float
    weight: float
    grad_norm: float
    updated: bool

    @property
    def skipped(self) -> bool:
        """There was something to learn, and it was not finite: schedules and counters stay where they are."""
        return not self.updated and self.weight > 0

    @property
    def loss(self) -> float:
        return self.loss_sum / self.weight if self.weight else 0.0


class Trainer:
    """A model, its optimizer, and the order of things in a step (accumulate, reduce, unscale, clip, check, update)."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        clip: float,
        world: World | None = None,
        numerics: Numerics | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.clip = clip
        self.world = world or Alone()
        self.numerics = numerics or Numerics()
        self.skipped = 0  # updates skipped in a row

    def step(
        self,
        micro_batches: Sequence[MicroBatch],
        loss_sum: Callable[[MicroBatch], Tensor],
        weight: Callable[[MicroBatch], float],
        rate: float,
    ) -> StepReport:
        """One update from this rank's micro-batches; a non-finite loss or norm never reaches any rank's optimizer.

        The report is of all ranks' micro-batches, and the same on each.
        """
        (total,) = self.world.sums([sum(weight(batch) for batch in micro_batches)])
        self.optimizer.zero_grad(set_to_none=True)
        self.numerics.before()
        scale = self.numerics.scale
        mine = self.world.accumulate(micro_batches, loss_sum, total / scale)
        self.world.reduce_gradients()
        (summed,) = self.world.sums([mine])
        if scale != 1:
            unscale(self.model.parameters(), scale)
        norm = self.world.clip(self.model.parameters(), self.clip)
        updated = total > 0 and math.isfinite(norm) and math.isfinite(summed)
        if updated:
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        self.world.settle(updated)
        if total > 0:
            self.numerics.after(updated, self.world, self.optimizer)
        self.skipped = 0 if updated or total == 0 else self.skipped + 1
        if self.skipped >= PATIENCE:
            raise DaymillError(
                f"{PATIENCE} updates in a row had a non-finite loss or gradient; lower the learning rate or set "
                "precision: fp32"
            )
        return StepReport(summed, total, norm, updated)


def unscale(parameters: Iterable[Tensor], scale: float) -> None:
    """Take the loss scale, a power of two, out of all gradients."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(1 / scale)
