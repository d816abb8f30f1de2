"""The one training step: accumulate, clip once, check, update.

The loss of a step is sum over sum: every micro-batch gives the sum of its losses and the weight it counts for, and is
divided by the weight of the whole step before its backward pass. So K micro-batches give the gradient of the one big
batch, however unequal they are (transformers#34191).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from data.errors import DaymillError
from training.optim import set_learning_rate

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
    def loss(self) -> float:
        return self.loss_sum / self.weight if self.weight else 0.0


class Trainer:
    """A model, its optimizer, and the order of things in a step (accumulate, clip once, check finite, update)."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, clip: float) -> None:
        self.model = model
        self.optimizer = optimizer
        self.clip = clip
        self.skipped = 0  # updates skipped in a row

    def step(
        self,
        micro_batches: Sequence[MicroBatch],
        loss_sum: Callable[[MicroBatch], Tensor],
        weight: Callable[[MicroBatch], float],
        rate: float,
    ) -> StepReport:
        """One update from micro-batches; a non-finite loss or norm never reaches the optimizer."""
        total = sum(weight(batch) for batch in micro_batches)
        self.optimizer.zero_grad(set_to_none=True)
        summed = 0.0
        for batch in micro_batches:
            loss = loss_sum(batch)
            summed += float(loss.detach())
            if total > 0 and loss.requires_grad:
                (loss / total).backward()
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = float(nn.utils.clip_grad_norm_(parameters, self.clip)) if parameters else 0.0
        updated = total > 0 and math.isfinite(norm) and math.isfinite(summed)
        if updated:
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        self.skipped = 0 if updated or total == 0 else self.skipped + 1
        if self.skipped >= PATIENCE:
            raise DaymillError(
                f"{PATIENCE} updates in a row had a non-finite loss or gradient; lower the learning rate or switch "
                "bf16 off"
            )
        return StepReport(summed, total, norm, updated)
