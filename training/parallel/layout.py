"""Three dimensions of parallelism on one mesh of ranks, as one world that a training step needs not look into.

The mesh is [pipeline, data, tensor], tensor ranks being neighbors, since they talk most. Every rank has the same rows
as its tensor and pipeline neighbors and a share of the step's rows otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from data.errors import DaymillError
from training.clock import waiting
from training.device import device_of
from training.loader import TokenBatch, share
from training.model import Transformer
from training.parallel.orders import Schedule
from training.parallel.pipeline import TIED, Pipeline
from training.parallel.reducer import AllReduce, Exchange, Reducer
from training.parallel.tensor import Piece, split_tensors
from training.parallel.wire import GroupWire, Wire
from training.precision import Precision
from training.world import accumulate_here


@dataclass(frozen=True)
class Layout:
    """How many ranks there are along each dimension, and how pipeline stages are made."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    schedule: Schedule = "1f1b"
    sizes: tuple[int, ...] = ()  # blocks of each pipeline stage
    shard: bool = False  # FSDP2: data ranks share parameters, gradients and moments instead of holding replicas
    costs: tuple[float, ...] = ()  # seconds of a micro-batch in each block, as measured; what a new split starts from

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline

    def check(self, ranks: int) -> None:
        """Raises DaymillError where the layout is not of this many ranks."""
        if self.ranks != ranks:
            raise DaymillError(
                f"data {self.data} x tensor {self.tensor} x pipeline {self.pipeline} makes {self.ranks} ranks; "
                f"{ranks} were started"
            )
        if self.pipeline > 1 and (not self.sizes or len(self.sizes) % self.pipeline):
            raise DaymillError(f"{len(self.sizes)} pipeline stages do not spread over {self.pipeline} pipeline ranks")
        if self.shard and self.pipeline > 1 and self.schedule.startswith("zero-bubble"):
            raise DaymillError(
                f"schedule {self.schedule} with sharded parameters gives silently wrong gradients in torch 2.13; "
                "choose 1f1b or interleaved, or shard: false"
            )


class Mesh:
    """A model spread over the ranks of a layout, in place; implements training.world.World.

    Every rank is given the same whole model and keeps its part of it.
    """

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        tokens: int,
        exchange: Callable[[Wire], Exchange] = AllReduce,
        bucket_bytes: int | None = None,
    ) -> None:
        """`tokens` are the tokens of a row, for layouts with a pipeline. A model that is no Transformer can only be
        replicated. Raises DaymillError where the model does not fit the layout."""
        layout.check(dist.get_world_size())
        if not isinstance(model, Transformer) and (layout.shard or layout.tensor * layout.pipeline > 1):
            raise DaymillError(
                "only pretraining splits a model; other training has data ranks alone, with shard: false"
            )
        shape = (layout.pipeline, layout.data, layout.tensor)
        self.device = device_of(model)
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("pipeline", "data", "tensor"))
        self.layout, self.model = layout, model
        self.pipes, self.replicas, self.tensors = (mesh.get_group(name) for name in ("pipeline", "data", "tensor"))
        self.rank, self.ranks = dist.get_rank(self.replicas), layout.data
        self.tensor_rank = dist.get_rank(self.tensors)
        self.dtype = next(model.parameters()).dtype
        self.pieces: dict[str, Piece] = {}
        if layout.tensor > 1 and isinstance(model, Transformer):
            self.pieces = split_tensors(model, self.tensors)
        self.pipeline: Pipeline | None = None
        if layout.pipeline > 1 and isinstance(model, Transformer):
            self.pipeline = Pipeline(model, layout.sizes, layout.schedule, self.pipes, tokens // layout.tensor)
        self.named = list(model.named_parameters())
        self.sharded = layout.shard and layout.data > 1
        if self.sharded:
            stages = self.pipeline.stages.values() if self.pipeline else [model]
            for stage in stages:
                shard_parameters(stage, mesh["data"])
            self.named = list(model.named_parameters())
        self.reducer = None
        if layout.data > 1 and not self.sharded:
            self.reducer = Reducer(self.named, exchange(GroupWire(self.replicas)), bucket_bytes)
        if exchange is not AllReduce and (self.reducer is None or layout.tensor * layout.pipeline > 1):
            raise DaymillError("compressed gradients are for layouts of data ranks alone, with shard: false")
        self.ends = self.end_ranks()

    def end_ranks(self) -> dist.ProcessGroup | None:
        """The group of the two ranks that hold the tied embedding, where this is one of them and there are two."""
        if self.pipeline is None or not self.pipeline.tied_apart:
            return None
        mine = None
        first, last = self.pipeline.rank_of(0), self.pipeline.rank_of(self.pipeline.count - 1)
        size = self.layout.data * self.layout.tensor
        for column in range(size):  # every rank makes every group, in the same order
            group = dist.new_group([first * size + column, last * size + column])
            if dist.get_rank() % size == column and self.pipeline.rank in (first, last):
                mine = group
        return mine

    @waiting
    def sums(self, values: Sequence[float]) -> list[float]:
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed, group=self.replicas)
        return [float(value) for value in summed]

    def accumulate(self, micro_batches: Sequence[Any], loss_sum: Callable[[Any], Tensor], total: float) -> float:
        if self.reducer is not None:
            self.reducer.begin_step()
        if self.pipeline is None:
            if isinstance(self.model, FSDPModule):
                self.model.set_requires_gradient_sync(len(micro_batches) < 2)
            return accumulate_here(micro_batches, loss_sum, total, self.before_last_backward)
        if total <= 0:
            return 0.0
        told = torch.tensor(self.pipeline.run(micro_batches, total), dtype=torch.float64)
        with waiting:
            dist.all_reduce(told, group=self.pipes)  # only the last stage has a loss
        return float(told)

    def evaluate(self, micro_batches: Sequence[TokenBatch], loss_sum: Callable[[TokenBatch], Tensor]) -> float:
        """Summed loss of these batches, of which every data rank is given its share; nothing is learned."""
        shares = [share(batch, self.rank, self.ranks) for batch in micro_batches]
        mine = 0.0
        if self.pipeline is None:
            mine = sum(float(loss_sum(batch)) for batch in shares)
        else:
            told = torch.tensor(self.pipeline.run(shares, 1.0, learn=False), dtype=torch.float64)
            dist.all_reduce(told, group=self.pipes)
            mine = float(told)
        return self.sums([mine])[0]

    @waiting
    def agreed(self, flag: bool) -> bool:
        """What the first rank says: clocks differ, and all must act alike."""
        told = torch.tensor(int(flag))
        dist.broadcast(told, 0)
        return bool(told)

    def before_last_backward(self) -> None:
        if self.reducer is not None:
            self.reducer.arm()
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(True)

    @waiting
    def reduce_gradients(self) -> None:
        if self.reducer is not None:
            self.reducer.finish()
        if self.layout.tensor > 1:  # a rank's part of these gradients comes from its own tokens
            add_up([p for name, p in self.named if name not in self.pieces], self.tensors)
        if self.ends is not None:
            add_up([p for name, p in self.named if name == TIED], self.ends)

    def clip(self, parameters: Iterable[Tensor], limit: float) -> float:  # noqa: ARG002 (it knows its own)
        """The norm counts a split parameter in parts, a whole one once, the tied embedding once."""
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for name, p in self.named:
            tied_again = name == TIED and self.pipeline is not None and not self.pipeline.has_first
            if p.grad is not None and (name in self.pieces or self.tensor_rank == 0) and not tied_again:
                squares += torch.linalg.vector_norm(local(p.grad), dtype=torch.float64) ** 2
        shards = self.layout.data if self.sharded else 1
        sizes = (self.layout.tensor, self.layout.pipeline, shards)
        with waiting:
            for group, ranks in zip((self.tensors, self.pipes, self.replicas), sizes, strict=True):
                if ranks > 1:
                    dist.all_reduce(squares, group=group)
        norm = sqrt(float(squares)) if torch.isfinite(squares) else float(squares)
        scale = min(1.0, limit / (norm + 1e-6))
        if scale < 1.0:
            for _, p in self.named:
                if p.grad is not None:
                    local(p.grad).mul_(scale)
        return norm

    def settle(self, updated: bool) -> None:
        if self.reducer is not None:
            self.reducer.settle(updated)

    def rescale(self, factor: float) -> None:
        if self.reducer is not None:
            self.reducer.exchange.rescale(factor)

    def compute_in(self, precision: Precision) -> None:
        """Without a pipeline the loss function's own autocast is enough; stages call no loss function."""
        if self.pipeline is not None:
            self.pipeline.precision = precision
            for stage in self.pipeline.stages.values():
                stage.precision = precision


def shard_parameters(model: nn.Module, mesh: DeviceMesh) -> None:
    """FSDP2: a block's parameters are gathered when it computes; gradients are summed, not averaged."""
    blocks = model.blocks
    assert isinstance(blocks, nn.ModuleList | nn.ModuleDict)
    every = list(blocks.values() if isinstance(blocks, nn.ModuleDict) else blocks)
    for module in [*every, model]:
        fully_shard(module, mesh=mesh)
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, which may be a shard."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def add_up(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Sum gradients over a group, in one message."""
    if not parameters:
        return
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    grads = [local(p.grad) for p in parameters if p.grad is not None]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat, group=group)
    for grad, summed in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(summed.view_as(grad))
