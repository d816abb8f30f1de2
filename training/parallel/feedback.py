"""Error feedback: what a rank does not send of its gradient it adds to its next one (Karimireddy et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor


class Late:
    """What has not been sent yet, by the name of its parameter: a change of buckets moves nothing (pytorch#49418)."""

    def __init__(self) -> None:
        self.memory: dict[str, Tensor] = {}
        self.pending: dict[str, Tensor] = {}  # of a step that is not settled yet

    def add_to(self, names: Sequence[str], pieces: Sequence[Tensor]) -> None:
        """Add what is late to pieces of a gradient, in place."""
        for name, piece in zip(names, pieces, strict=True):
            late = self.memory.get(name)
            if late is not None:
                piece.add_(late.reshape(piece.shape))

    def keep(self, name: str, rest: Tensor) -> None:
        """What this step leaves behind of a parameter's gradient, should the step be taken."""
        self.pending[name] = rest

    def settle(self, updated: bool) -> None:
        """The step was taken, or skipped: then all is as it was before."""
        if updated:
            self.memory |= self.pending
        self.pending = {}

    def rescale(self, factor: float) -> None:
        """The loss scale of gradients changed by a factor."""
        self.memory = {name: late * factor for name, late in self.memory.items()}

    def tensors(self, named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """For a checkpoint: of every parameter, zeros where nothing is late, so that all ranks save alike; nothing at
        all before anything was late."""
        if not self.memory:
            return {}
        return {
            name: torch.zeros_like(p) if name not in self.memory else self.memory[name].reshape(p.shape)
            for name, p in named
        }

    def load(self, of_rank: Sequence[Mapping[str, Tensor]], rank: int, ranks: int) -> None:
        """Put back what `tensors` gave on each rank. Another number of ranks shares what was late, so none is lost."""
        for tensors in of_rank[rank::ranks]:
            for name, late in tensors.items():
                self.memory[name] = self.memory[name] + late if name in self.memory else late.clone()
