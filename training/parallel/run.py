"""Pretraining over many ranks: what training.pretrain needs to know of a mesh."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from training.layers import View
from training.loader import TokenBatch, share
from training.model import Transformer
from training.parallel.blockwise import LargestOfBlock
from training.parallel.layout import Layout, Mesh
from training.parallel.reducer import AllReduce, Exchange
from training.parallel.view import MeshView
from training.parallel.whole import restore_part, whole_tensors
from training.precision import KERNELS, Choice
from training.pretrain import Ranks, token_loss_sum
from training.state import part
from training.world import World


def spread_over(
    layout: Layout, tokens: int, micro_batches: int, exchange: Callable[[dist.ProcessGroup], Exchange] = AllReduce
) -> Callable[[Transformer, Choice], Ranks]:
    """For training.pretrain.pretrain: makes of a whole model this rank's part."""

    def spread(model: Transformer, choice: Choice) -> Ranks:
        return ManyRanks(model, layout, tokens, micro_batches, choice.bf16, exchange)

    return spread


class ManyRanks:
    """One of the ranks of a layout; implements training.pretrain.Ranks."""

    def __init__(
        self,
        model: Transformer,
        layout: Layout,
        tokens: int,
        micro_batches: int,
        bf16: bool,
        exchange: Callable[[dist.ProcessGroup], Exchange],
    ) -> None:
        self.model, self.micro_batches, self.bf16 = model, micro_batches, bf16
        self.mesh = Mesh(model, layout, tokens, exchange)
        self.world: World = self.mesh
        self.view: View = MeshView(self.mesh)

    @property
    def first(self) -> bool:
        return dist.get_rank() == 0

    def choice(self, mine: Choice) -> Choice:
        told = torch.tensor([int(mine.bf16), KERNELS.index(mine.attention)])
        dist.broadcast(told, 0)
        self.bf16 = bool(told[0])
        return replace(mine, bf16=self.bf16, attention=KERNELS[int(told[1])])

    def share(self, batches: list[TokenBatch], seed: int, step: int) -> list[TokenBatch]:
        """Also seeds what dropout draws, from the step and the data rank alone: nothing of it needs to be saved, and
        tensor-parallel neighbors drop the same channels."""
        stage = self.mesh.pipeline.rank if self.mesh.pipeline is not None else 0
        told = hashlib.blake2b(f"{seed} {step} {self.mesh.rank} {stage}".encode(), digest_size=8).digest()
        torch.manual_seed(int.from_bytes(told) >> 1)
        return [share(batch, self.mesh.rank, self.mesh.ranks) for batch in batches]

    def loss_sum(self, batches: list[TokenBatch], bf16: bool) -> float:
        """A pipeline is given as many batches as in a step: those that are missing have no target."""
        first = batches[0]
        nothing = TokenBatch(
            torch.zeros_like(first.ids), torch.full_like(first.targets, -100), torch.full_like(first.docs, -1)
        )
        filled = batches + [nothing] * (self.micro_batches - len(batches) if self.mesh.pipeline is not None else 0)
        return self.mesh.evaluate(filled, lambda batch: token_loss_sum(self.model, batch, bf16))

    def agreed(self, flag: bool) -> bool:
        return self.mesh.agreed(flag)

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        return whole_tensors(self.mesh, optimizer) | self.memories()

    def memories(self) -> dict[str, Tensor]:
        """What each data rank's compression remembers, on the first rank as `rank<n>/<name>`."""
        exchange = self.mesh.reducer.exchange if self.mesh.reducer is not None else None
        if not isinstance(exchange, LargestOfBlock):
            return {}
        found: dict[str, Tensor] = {}
        for name, tensor in exchange.tensors(self.mesh.named).items():
            every = [torch.empty_like(tensor) for _ in range(self.mesh.ranks)]
            dist.all_gather(every, tensor.contiguous(), group=self.mesh.replicas)
            found |= {f"rank{rank}/{name}": each for rank, each in enumerate(every)}
        return found

    def restore(self, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
        restore_part(self.mesh, optimizer, tensors)
        exchange = self.mesh.reducer.exchange if self.mesh.reducer is not None else None
        if isinstance(exchange, LargestOfBlock):
            before = len({key.partition("/")[0] for key in tensors if key.startswith("rank")})
            exchange.load([part(tensors, f"rank{rank}") for rank in range(before)])
