"""The ranks of a pretraining run, seen from one of them, and the loss that they add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from training.layers import OneRank, View
from training.loader import TokenBatch
from training.model import Transformer
from training.precision import Choice, Precision, autocast
from training.state import restore_training, training_tensors
from training.world import Alone, World


class Ranks(Protocol):
    """The ranks of a run, seen from one of them; each calls the same methods in the same order."""

    world: World

    @property
    def first(self) -> bool:
        """Whether this rank tells and saves."""
        ...

    @property
    def view(self) -> View:
        """The ranks as telemetry sees them."""
        ...

    def choice(self, mine: Choice) -> Choice:
        """What the first rank chose."""
        ...

    def share(self, batches: list[TokenBatch], seed: int, step: int) -> list[TokenBatch]:
        """This rank's rows of a step's batches."""
        ...

    def loss_sum(self, batches: list[TokenBatch], precision: Precision) -> float:
        """Summed loss of some batches over all ranks; nothing is learned."""
        ...

    def agreed(self, flag: bool) -> bool:
        """What the first rank says."""
        ...

    def moved(self) -> bool:
        """After a save: whether the run is to go on from there under another layout."""
        ...

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """What is to be saved, on the first rank."""
        ...

    def restore(self, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what was saved."""
        ...


Spread = Callable[[Transformer, Choice], Ranks]


class OneProcess:
    """A run of one process."""

    first = True

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.world: World = Alone()
        self.view: View = OneRank()

    def choice(self, mine: Choice) -> Choice:
        return mine

    def share(self, batches: list[TokenBatch], seed: int, step: int) -> list[TokenBatch]:  # noqa: ARG002
        return batches

    def loss_sum(self, batches: list[TokenBatch], precision: Precision) -> float:
        return sum(token_loss_sum(self.model, batch, precision).item() for batch in batches)

    def agreed(self, flag: bool) -> bool:
        return flag

    def moved(self) -> bool:
        return False

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        return training_tensors(self.model, optimizer)

    def restore(self, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
        restore_training(self.model, optimizer, tensors)


def token_loss_sum(model: Transformer, batch: TokenBatch, precision: Precision = "fp32") -> Tensor:
    """Summed next-token loss of a batch of packed rows; documents do not see each other."""
    with autocast(precision, batch.ids.device):
        summed: Tensor = model(batch.ids, batch.targets, batch.docs)
        return summed
