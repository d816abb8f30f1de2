"""Pretraining over many ranks: what training.pretrain needs to know of a mesh."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from data.errors import DaymillError
from training.layers import View
from training.loader import TokenBatch, share
from training.model import Transformer
from training.parallel.layout import Layout, Mesh
from training.parallel.rebalance import STEPS, Split, reference_seconds, resplit
from training.parallel.reducer import AllReduce, Exchange
from training.parallel.view import MeshView
from training.parallel.whole import restore_part, whole_tensors
from training.parallel.wire import Wire
from training.precision import Choice, Precision
from training.ranks import token_loss_sum
from training.state import part
from training.world import World, seed_of


@dataclass(frozen=True)
class Rebalance:
    """When the stages of a pipeline are split anew, and who is told; every rank calls `on_split` alike."""

    limit: float  # times the mean that the busiest stage's time may be
    on_split: Callable[[Layout, Split], None]


def spread_over(
    layout: Layout,
    tokens: int,
    micro_batches: int,
    exchange: Callable[[Wire], Exchange] = AllReduce,
    rebalance: Rebalance | None = None,
) -> Callable[[Transformer, Choice], ManyRanks]:
    """For training.pretrain.pretrain: makes of a whole model this rank's part."""

    def spread(model: Transformer, choice: Choice) -> ManyRanks:
        return ManyRanks(model, layout, tokens, micro_batches, choice, exchange, rebalance)

    return spread


def check_precision_of(layout: Layout, precision: Precision | None) -> None:
    """Raises DaymillError for a precision that this layout cannot compute in as one process would."""
    refused = {
        "fp8": {"tensor": layout.tensor > 1},  # a rank would scale its part of a layer for itself
        "adaptive": {"tensor": layout.tensor > 1, "pipeline": layout.pipeline > 1, "shard": layout.shard},
    }
    broken = [name for name, found in refused.get(precision or "", {}).items() if found]
    if broken:
        raise DaymillError(
            f"precision {precision} is not for runs with parallel.{' and parallel.'.join(broken)}; choose bf16 or fp16"
        )


def told_by_first(mine: dict[str, Any]) -> dict[str, Any]:
    """What the first rank has, as JSON."""
    told = json.dumps(mine).encode()
    size = torch.tensor(len(told))
    dist.broadcast(size, 0)
    bytes_ = torch.frombuffer(bytearray(told.ljust(int(size))[: int(size)]), dtype=torch.uint8).clone()
    dist.broadcast(bytes_, 0)
    return json.loads(bytes_.numpy().tobytes())


class ManyRanks:
    """One of the ranks of a layout; implements training.pretrain.Ranks."""

    def __init__(
        self,
        model: Transformer,
        layout: Layout,
        tokens: int,
        micro_batches: int,
        choice: Choice,
        exchange: Callable[[Wire], Exchange],
        rebalance: Rebalance | None = None,
    ) -> None:
        check_precision_of(layout, choice.precision)
        self.model, self.micro_batches = model, micro_batches
        self.tokens, self.rebalance = tokens, rebalance
        self.rows, self.watched = 1, 0  # of this rank's micro-batches; steps since stages were last looked at
        self.mesh = Mesh(model, layout, tokens, exchange)
        self.world: World = self.mesh
        self.view: View = MeshView(self.mesh)

    @property
    def first(self) -> bool:
        return dist.get_rank() == 0

    def choice(self, mine: Choice) -> Choice:
        chosen = Choice(**told_by_first(asdict(mine)))
        self.mesh.compute_in(chosen.precision)
        return chosen

    def share(self, batches: list[TokenBatch], seed: int, step: int) -> list[TokenBatch]:
        """Also seeds what dropout draws, from the step and the data rank alone: nothing of it needs to be saved, and
        tensor-parallel neighbors drop the same channels."""
        stage = self.mesh.pipeline.rank if self.mesh.pipeline is not None else 0
        torch.manual_seed(seed_of(seed, step, self.mesh.rank, stage))
        shares = [share(batch, self.mesh.rank, self.mesh.ranks) for batch in batches]
        self.rows = max(1, *(len(batch.ids) for batch in shares))
        self.watched += 1
        return shares

    def loss_sum(self, batches: list[TokenBatch], precision: Precision) -> float:
        """A pipeline is given as many batches as in a step: those that are missing have no target."""
        first = batches[0]
        nothing = TokenBatch(
            torch.zeros_like(first.ids), torch.full_like(first.targets, -100), torch.full_like(first.docs, -1)
        )
        filled = batches + [nothing] * (self.micro_batches - len(batches) if self.mesh.pipeline is not None else 0)
        return self.mesh.evaluate(filled, lambda batch: token_loss_sum(self.model, batch, precision))

    def agreed(self, flag: bool) -> bool:
        return self.mesh.agreed(flag)

    def moved(self) -> bool:
        """All ranks decide alike: they look at the same numbers."""
        layout, pipeline = self.mesh.layout, self.mesh.pipeline
        if pipeline is None or self.rebalance is None or not layout.costs or self.watched < STEPS:
            return False
        mine = torch.zeros(2, len(layout.sizes), dtype=torch.float64)
        reference = reference_seconds(self.model.config, self.rows, self.tokens)
        for index in pipeline.stages:
            mine[:, index] = torch.tensor([pipeline.busy[index].seconds / self.watched, reference])
            pipeline.busy[index].seconds = 0.0
        self.watched = 0
        dist.all_reduce(mine, op=dist.ReduceOp.MAX)  # of a stage's replicas all wait for the slowest
        split = resplit(layout.sizes, layout.costs, mine[0].tolist(), mine[1].tolist(), self.rebalance.limit)
        if split is not None:
            self.rebalance.on_split(replace(layout, sizes=split.sizes, costs=split.costs), split)
        return split is not None

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        return whole_tensors(self.mesh, optimizer) | self.memories()

    def memories(self) -> dict[str, Tensor]:
        """What each data rank's compression remembers, on the first rank as `rank<n>/<name>`."""
        if self.mesh.reducer is None:
            return {}
        found: dict[str, Tensor] = {}
        for name, tensor in self.mesh.reducer.exchange.tensors(self.mesh.named).items():
            every = [torch.empty_like(tensor) for _ in range(self.mesh.ranks)]
            dist.all_gather(every, tensor.contiguous(), group=self.mesh.replicas)
            found |= {f"rank{rank}/{name}": each for rank, each in enumerate(every)}
        return found

    def restore(self, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
        restore_part(self.mesh, optimizer, tensors)
        if self.mesh.reducer is not None:
            before = len({key.partition("/")[0] for key in tensors if key.startswith("rank")})
            self.mesh.reducer.exchange.load([part(tensors, f"rank{rank}") for rank in range(before)])
