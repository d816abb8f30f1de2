"""Which schedule, stages and micro-batches a pipeline should have: measured per layer, played through, compared.

A layer's forward and backward pass are timed on this machine with the rows of a micro-batch, and what its forward pass
keeps for the backward one is counted. From that every schedule's step is played through (simulate.py), so that idle
time and memory are known before a rank is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from data.errors import DaymillError
from training.loader import TokenBatch
from training.model import Transformer
from training.parallel.orders import SCHEDULES, Schedule, check, order
from training.parallel.partition import balanced, part_costs
from training.parallel.simulate import StageCost, play

ROUNDS = 5
STAGES_A_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 1, "zero-bubble-v": 2}
WEIGHT_SHARE = 0.5  # of a backward pass that makes the weights' gradients, where it is split in two


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one micro-batch in a layer, and bytes that its forward pass keeps for its backward pass."""

    forward: float
    backward: float
    kept: float

    @property
    def seconds(self) -> float:
        return self.forward + self.backward

    def __add__(self, other: LayerCost) -> LayerCost:
        return LayerCost(self.forward + other.forward, self.backward + other.backward, self.kept + other.kept)


@dataclass(frozen=True)
class Plan:
    """A pipeline that could be run, and what is expected of it."""

    schedule: Schedule
    micro_batches: int
    sizes: tuple[int, ...]  # blocks of each stage
    seconds: float  # of a step
    utilization: float  # busy share of all ranks' time
    peak_bytes: float  # of activations, on the rank that holds most

    @property
    def seconds_a_micro_batch(self) -> float:
        return self.seconds / self.micro_batches


def measure(model: Transformer, batch: TokenBatch, rounds: int = ROUNDS) -> list[LayerCost]:
    """What each block of a whole model costs with a micro-batch like this one; the first one's cost has the embedding
    in it, the last one's the final norm and the loss."""
    positions = torch.arange(batch.ids.shape[1])[None]
    x = model.embedded(batch.ids, positions)
    around = model.surroundings(batch.ids, None, batch.docs, positions, x.dtype)

    def of_block(block: nn.Module, given: Tensor) -> Tensor:
        answer: Tensor = block(given, *around)
        return answer

    costs = [timed(partial(of_block, block), x, rounds) for block in model.blocks]
    embed = timed(lambda _: model.embedded(batch.ids, positions), x, rounds)
    head = timed(lambda x: model.project(model.norm(x), batch.targets), x, rounds)
    model.zero_grad(set_to_none=True)
    costs[0] += embed
    costs[-1] += head
    return costs


def timed(run: Callable[[Tensor], Tensor], x: Tensor, rounds: int) -> LayerCost:
    """Medians over some rounds; the first one warms up."""
    forward, backward, kept = [], [], 0
    for _ in range(rounds + 1):
        given = x.detach().requires_grad_()
        storages: dict[int, int] = {}

        def keep(tensor: Tensor, into: dict[int, int] = storages) -> Tensor:
            if not isinstance(tensor, torch.nn.Parameter):
                storage = tensor.untyped_storage()
                into[storage.data_ptr()] = storage.nbytes()
            return tensor

        begun = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            answer = run(given)
        between = time.perf_counter()
        answer.backward(torch.ones_like(answer))
        forward.append(between - begun)
        backward.append(time.perf_counter() - between)
        kept = sum(storages.values())
    return LayerCost(median(forward[1:]), median(backward[1:]), float(kept))


def stage_costs(costs: Sequence[LayerCost], sizes: Sequence[int]) -> list[StageCost]:
    """Layers' costs added up to stages."""
    found, begin = [], 0
    for size in sizes:
        part = costs[begin : begin + size]
        begin += size
        backward, kept = sum(cost.backward for cost in part), sum(cost.kept for cost in part)
        weights = backward * WEIGHT_SHARE
        forward = sum(cost.forward for cost in part)
        found.append(StageCost(forward, backward - weights, weights, kept, kept * WEIGHT_SHARE))
    return found


def predict(
    schedule: Schedule, sizes: Sequence[int], micro_batches: int, costs: Sequence[LayerCost], ranks: int, send: float
) -> Plan:
    """What a pipeline of these stages is expected to do."""
    a_rank = len(sizes) // ranks
    played = play(order(schedule, ranks, micro_batches, a_rank), stage_costs(costs, sizes), send)
    return Plan(
        schedule, micro_batches, tuple(sizes), played.seconds, played.utilization, max(played.peak_bytes, default=0.0)
    )


def plans(
    costs: Sequence[LayerCost],
    ranks: int,
    micro_batches: Sequence[int],
    send: float = 0.0,
    memory: float = float("inf"),
    schedules: Sequence[Schedule] = SCHEDULES,
) -> list[Plan]:
    """Every pipeline that can run within `memory` bytes of activations a rank, the fastest a micro-batch first.

    `costs` are of micro-batches of the same rows for all. Raises DaymillError where none fits.
    """
    found = []
    for schedule in schedules:
        stages = ranks * STAGES_A_RANK[schedule]
        if stages > len(costs):
            continue
        sizes = balanced([cost.seconds for cost in costs], stages)
        for count in micro_batches:
            try:
                check(schedule, ranks, count, STAGES_A_RANK[schedule])
            except DaymillError:
                continue  # this schedule cannot do this count; another may
            plan = predict(schedule, sizes, count, costs, ranks, send)
            if plan.peak_bytes <= memory:
                found.append(plan)
    if not found:
        raise DaymillError(
            f"no pipeline of {ranks} ranks for {len(costs)} blocks, {list(micro_batches)} micro-batches and "
            f"{memory / 2**20:,.0f} MiB of activations; give it more memory, fewer ranks or smaller micro-batches"
        )
    return sorted(found, key=lambda plan: (plan.seconds_a_micro_batch, plan.peak_bytes, plan.schedule))


def imbalance(costs: Sequence[LayerCost], sizes: Sequence[int]) -> float:
    """The costliest stage over the costliest one of the best partition: 1 is balanced."""
    seconds = [cost.seconds for cost in costs]
    best = max(part_costs(seconds, balanced(seconds, len(sizes))))
    return max(part_costs(seconds, sizes)) / best if best else 1.0


def table(found: Sequence[Plan]) -> str:
    """Plans as lines of text."""
    head = f"{'schedule':<14}{'micro-batches':>14}{'utilization':>13}{'ms a step':>11}{'peak MiB':>10}  blocks"
    rows: list[Any] = [
        f"{plan.schedule:<14}{plan.micro_batches:>14}{plan.utilization:>13.1%}{1000 * plan.seconds:>11.1f}"
        f"{plan.peak_bytes / 2**20:>10.1f}  {'+'.join(map(str, plan.sizes))}"
        for plan in found
    ]
    return "\n".join([head, *rows])
