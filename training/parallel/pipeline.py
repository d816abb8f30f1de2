"""Pipeline parallelism: each rank has some consecutive layers, and micro-batches flow through the ranks.

torch.distributed.pipelining moves activations and gradients; which work comes when is its schedule's matter
(training/parallel/orders.py). The tied embedding exists at both ends, and its two gradients are added.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining

from training.clock import waiting
from training.device import device_of
from training.loader import TokenBatch
from training.model import Transformer
from training.parallel.orders import Schedule, check, stages_of_rank
from training.precision import AMBIENT, Precision, autocast

CLASSES: dict[Schedule, Any] = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "zero-bubble": pipelining.ScheduleInterleavedZeroBubble,
    "zero-bubble-v": pipelining.ScheduleZBVZeroBubble,
}
TIED = "embed.weight"


class Stage(nn.Module):
    """Some consecutive blocks of a transformer; the first stage also embeds, the last one also projects.

    Its parameters have the names that they have in the whole model.
    """

    whole: Transformer

    def __init__(self, model: Transformer, blocks: range, first: bool, last: bool) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.precision: Precision = "fp32"
        self.blocks = nn.ModuleDict({str(number): model.blocks[number] for number in blocks})
        if first or (last and model.output is None):
            self.embed = model.embed
        if last and model.output is not None:
            self.output = model.output
        if first and model.position is not None:
            self.position = model.position
        if last:
            self.norm = model.norm
        # What the stage borrows of the whole model's methods; not a submodule, since the rest is another rank's.
        self.__dict__["whole"] = model

    def forward(self, x: Tensor, docs: Tensor) -> Tensor:
        """Token ids [B, T] (first stage) or hidden states [B, S, D] to hidden states; `docs` [B, T] of packed rows."""
        with autocast(self.precision, docs.device):
            return self.computed(x, docs)

    def computed(self, x: Tensor, docs: Tensor) -> Tensor:
        whole = self.whole
        positions = torch.arange(docs.shape[1], device=docs.device)[None]
        if self.first:
            x = whole.embedded(x, positions)
        surroundings = whole.surroundings(docs, None, docs, positions, x.dtype)
        for block in self.blocks.values():
            x = block(x, *surroundings)
        return self.norm(x) if self.last else x


@dataclass
class Busy:
    """Seconds that a rank computed in its stages, rather than wait or talk."""

    seconds: float = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begun


class TimedStage(pipelining.PipelineStage):
    """A stage that tells how long it computes."""

    busy: Busy

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.busy.counted():
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.busy.counted():
            return super().backward_one_chunk(*args, **kwargs)

    def backward_weight_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.busy.counted():
            return super().backward_weight_one_chunk(*args, **kwargs)


class Pipeline:
    """This rank's stages of a pipeline over `group`, and the schedule that runs them.

    `sizes` are the blocks of each stage in order (training.parallel.partition.balanced).
    """

    def __init__(
        self,
        model: Transformer,
        sizes: Sequence[int],
        schedule: Schedule,
        group: dist.ProcessGroup,
        tokens_of_rank: int,
    ) -> None:
        self.group, self.ranks, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self.schedule, self.a_rank = schedule, len(sizes) // self.ranks
        self.model, self.tokens_of_rank = model, tokens_of_rank
        ends = list(accumulate(sizes))
        self.count = len(sizes)
        self.stages = {
            index: Stage(model, range(ends[index] - sizes[index], ends[index]), index == 0, index == self.count - 1)
            for index in stages_of_rank(schedule, self.ranks, self.a_rank, self.rank)
        }
        self.running: tuple[tuple[int, int], Any] | None = None
        self.dtype, self.device = next(model.parameters()).dtype, device_of(model)
        self.precision: Precision = "fp32"
        self.busy = {index: Busy() for index in self.stages}
        self.leave_the_rest()

    @property
    def computed(self) -> float:
        """Seconds that this rank's stages were busy."""
        return sum(busy.seconds for busy in self.busy.values())

    @property
    def has_first(self) -> bool:
        return 0 in self.stages

    @property
    def has_last(self) -> bool:
        return self.count - 1 in self.stages

    @property
    def tied_apart(self) -> bool:
        """Whether the two ends have one embedding and are on different ranks."""
        first, last = (self.rank_of(index) for index in (0, self.count - 1))
        return self.model.config.tied and first != last

    def rank_of(self, stage: int) -> int:
        return next(
            rank for rank in range(self.ranks) if stage in stages_of_rank(self.schedule, self.ranks, self.a_rank, rank)
        )

    def leave_the_rest(self) -> None:
        """Take what other ranks compute out of the model, so that it is neither held nor trained here."""
        mine = {block for stage in self.stages.values() for block in stage.blocks}
        for number in range(len(self.model.blocks)):
            if str(number) not in mine:
                self.model.blocks[number] = nn.Identity()
        if not self.has_first and self.model.position is not None:
            self.model.position = None
        if not self.has_first and not (self.has_last and self.model.config.tied):
            self.model.embed = None  # type: ignore[assignment]
        if not self.has_last:
            self.model.norm, self.model.output = nn.Identity(), None

    def run(self, micro_batches: Sequence[TokenBatch], total: float, learn: bool = True) -> float:
        """Forward and (to `learn`) backward passes of all micro-batches; the summed loss on the last stage, else 0.

        The loss is divided by `total` before its backward pass. All micro-batches are filled up to the rows of the
        largest, for the shapes that travel are fixed; rows of filling have no target.
        """
        rows = max(1, *(len(batch.ids) for batch in micro_batches))  # a data rank may have none
        schedule = self.prepared(len(micro_batches), rows, micro_batches[0].ids.shape[1], total)
        ids, targets, docs = (
            torch.cat([filled(tensor, rows, value) for tensor in tensors])
            for tensors, value in (
                ([batch.ids for batch in micro_batches], 0),
                ([batch.targets for batch in micro_batches], -100),
                ([batch.docs for batch in micro_batches], -1),
            )
        )
        losses: list[Tensor] = []
        given = (ids,) if self.has_first else ()
        more = {"target": targets, "losses": losses} if self.has_last else {}
        act = schedule.step if learn else schedule.eval
        begun, computed = time.perf_counter(), self.computed
        act(*given, docs=docs, return_outputs=False, **more)
        waiting.add(time.perf_counter() - begun - (self.computed - computed))
        return float(torch.stack(losses).double().sum()) * total if losses else 0.0

    def prepared(self, micro_batches: int, rows: int, tokens: int, total: float) -> Any:
        """The schedule for these counts; a new one where they changed."""
        self.total = total
        if self.running is None or self.running[0] != (micro_batches, rows):
            check(self.schedule, self.ranks, micro_batches, self.a_rank)
            width = self.model.config.width
            # what requires no gradient is sent none
            dtype, size = AMBIENT[self.precision] or self.dtype, (rows, self.tokens_of_rank, width)
            between = torch.empty(size, dtype=dtype, device=self.device, requires_grad=True)
            stages = []
            for index, stage in self.stages.items():
                source = torch.empty(rows, tokens, dtype=torch.long, device=self.device) if stage.first else between
                made = TimedStage(stage, index, self.count, self.device, (source,), (between,), group=self.group)
                made.busy = self.busy[index]
                stages.append(made)
            kind = CLASSES[self.schedule]
            several = self.schedule not in ("gpipe", "1f1b")
            runs = kind(stages if several else stages[0], micro_batches, loss_fn=self.loss, scale_grads=False)
            self.running = ((micro_batches, rows), runs)
        return self.running[1]

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        with self.busy[self.count - 1].counted():
            return self.model.project(hidden, targets) / self.total


def filled(tensor: Tensor, rows: int, value: int) -> Tensor:
    """Rows of `value` behind those of a tensor [B, T], up to `rows` of them."""
    if len(tensor) == rows:
        return tensor
    return torch.cat([tensor, tensor.new_full((rows - len(tensor), tensor.shape[1]), value)])
