"""The ranks that train one model together, as a training step sees them; one process alone is the plainest world."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn


class World(Protocol):
    """What a step needs of the other ranks. Every rank calls the same methods in the same order."""

    def sums(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the ranks that see other rows."""
        ...

    def accumulate(self, micro_batches: Sequence[Any], loss_sum: Callable[[Any], Tensor], total: float) -> float:
        """Forward and backward passes of this rank's micro-batches, each loss divided by `total`; their summed loss.

        The last backward pass may already begin to reduce gradients.
        """
        ...

    def reduce_gradients(self) -> None:
        """Ends the step's one reduction: `.grad` holds sums over the ranks that see other rows."""
        ...

    def clip(self, parameters: Iterable[Tensor], limit: float) -> float:
        """The norm of the whole model's gradient before clipping it to `limit`; the same number on every rank."""
        ...

    def settle(self, updated: bool) -> None:
        """The step was taken, or skipped: then what reductions remember from step to step stays as it was before."""
        ...

    def rescale(self, factor: float) -> None:
        """The loss scale changed: what reductions remember of scaled gradients is multiplied alike."""
        ...


def accumulate_here(
    micro_batches: Sequence[Any],
    loss_sum: Callable[[Any], Tensor],
    total: float,
    before_last_backward: Callable[[], None],
) -> float:
    """One micro-batch after the other; their summed loss."""
    summed = 0.0
    for number, batch in enumerate(micro_batches, start=1):
        loss = loss_sum(batch)
        summed += float(loss.detach())
        if number == len(micro_batches):
            before_last_backward()
        if total > 0 and loss.requires_grad:
            (loss / total).backward()
    return summed


class Alone:
    """One process."""

    def sums(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def accumulate(self, micro_batches: Sequence[Any], loss_sum: Callable[[Any], Tensor], total: float) -> float:
        return accumulate_here(micro_batches, loss_sum, total, lambda: None)

    def reduce_gradients(self) -> None:
        pass

    def clip(self, parameters: Iterable[Tensor], limit: float) -> float:
        with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
        return float(nn.utils.clip_grad_norm_(with_gradient, limit)) if with_gradient else 0.0

    def settle(self, updated: bool) -> None:
        pass

    def rescale(self, factor: float) -> None:
        pass


def seed_of(*facts: int) -> int:
    """A seed that follows from what a rank knows (run, step, rank): nothing of what it draws needs to be saved."""
    told = " ".join(map(str, facts))
    return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest()) >> 1
