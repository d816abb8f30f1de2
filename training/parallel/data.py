"""Data parallelism: every rank has the whole model and its share of each step's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.loader import TokenBatch
from training.parallel.reducer import BUCKET_BYTES, AllReduce, Exchange, Reducer
from training.world import Alone, accumulate_here


class DataParallel(Alone):
    """The ranks of a group, each with a replica; replicas that begin alike stay alike to the bit.

    Begins by giving every rank the weights of the group's first one.
    """

    def __init__(
        self,
        model: nn.Module,
        group: dist.ProcessGroup | None = None,
        exchange: Exchange | None = None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.group = group or dist.group.WORLD
        assert self.group is not None
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.reducer = Reducer(named, exchange or AllReduce(self.group), bucket_bytes)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor, group_src=0, group=self.group)

    def sums(self, values: Sequence[float]) -> list[float]:
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed, group=self.group)
        return [float(value) for value in summed]

    def accumulate(self, micro_batches: Sequence[Any], loss_sum: Callable[[Any], Tensor], total: float) -> float:
        return accumulate_here(micro_batches, loss_sum, total, self.reducer.arm)

    def reduce_gradients(self) -> None:
        self.reducer.finish()

    def clip(self, parameters: Iterable[Tensor], limit: float) -> float:
        return super().clip(parameters, limit)  # the sums are the same everywhere, and so is their norm

    def settle(self, updated: bool) -> None:
        self.reducer.exchange.settle(updated)


def share(batch: TokenBatch, rank: int, ranks: int) -> TokenBatch:
    """A rank's rows of a batch: contiguous, in sizes that differ by one at most, perhaps none."""
    part = [tensor.tensor_split(ranks)[rank] for tensor in (batch.ids, batch.targets, batch.docs)]
    return TokenBatch(*part)
