"""A pipeline's step played through: when each piece of work begins, how long ranks are idle, what they hold at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data.errors import DaymillError
from training.parallel.orders import Op


@dataclass(frozen=True)
class StageCost:
    """Seconds that one micro-batch takes in a stage, and bytes of activations that its forward leaves behind."""

    forward: float
    backward_input: float
    backward_weight: float
    activations: float = 0.0
    kept_for_weights: float = 0.0  # bytes of them that stay until the weight half where a backward pass is split

    @property
    def backward(self) -> float:
        return self.backward_input + self.backward_weight

    def seconds(self, op: Op) -> float:
        kinds = {"F": self.forward, "B": self.backward, "I": self.backward_input, "W": self.backward_weight}
        return kinds[op.kind]


@dataclass(frozen=True)
class Timed:
    """A piece of work with its times, in seconds from the step's begin."""

    op: Op
    start: float
    end: float


@dataclass(frozen=True)
class Played:
    """A step: every rank's work with its times, and the most bytes of activations that each rank held."""

    ranks: list[list[Timed]]
    peak_bytes: list[float]

    @property
    def seconds(self) -> float:
        """From the first begin to the last end."""
        return max(work[-1].end for work in self.ranks if work)

    @property
    def busy(self) -> list[float]:
        """Seconds that each rank computes."""
        return [sum(timed.end - timed.start for timed in work) for work in self.ranks]

    @property
    def utilization(self) -> float:
        """Busy seconds of all ranks over their seconds of the step."""
        return sum(self.busy) / (len(self.ranks) * self.seconds) if self.seconds else 1.0


def play(order: Sequence[Sequence[Op]], costs: Sequence[StageCost], send: float = 0.0, each: float = 0.0) -> Played:
    """Play an order of work: each rank does its own in that order, as soon as what it needs is there.

    `costs[s]` is of stage s; `send` the seconds that activations or gradients take to another rank; `each` the seconds
    that a piece of work costs besides its computation. Raises DaymillError for an order that waits for itself.
    """
    rank_of = {op.stage: rank for rank, work in enumerate(order) for op in work}
    last = len(costs) - 1
    ended: dict[Op, float] = {}
    done: list[list[Timed]] = [[] for _ in order]
    clock, left = [0.0] * len(order), sum(map(len, order))
    while left:
        moved = False
        for rank, work in enumerate(order):
            while len(done[rank]) < len(work):
                op = work[len(done[rank])]
                needs = [ended.get(need, ended.get(other)) for need, other in needed(op, last)]
                if None in needs:
                    break
                ready = clock[rank]
                for (need, _), at in zip(needed(op, last), needs, strict=True):
                    assert at is not None
                    ready = max(ready, at + (send if rank_of[need.stage] != rank else 0.0))
                end = ready + costs[op.stage].seconds(op) + each
                done[rank].append(Timed(op, ready, end))
                clock[rank] = ended[op] = end
                moved, left = True, left - 1
        if not moved:
            raise DaymillError("this order of pipeline work waits for itself: a defect of the schedule")
    return Played(done, [peak(work, costs) for work in done])


def needed(op: Op, last: int) -> list[tuple[Op, Op]]:
    """What must have ended before: each as the work itself and the other kind that would do as well."""
    stage, m = op.stage, op.micro_batch
    if op.kind == "F":
        return [(Op("F", stage - 1, m), Op("F", stage - 1, m))] if stage else []
    if op.kind == "W":
        return [(Op("I", stage, m), Op("I", stage, m))]
    needs = [(Op("F", stage, m), Op("F", stage, m))]
    return [*needs, (Op("B", stage + 1, m), Op("I", stage + 1, m))] if stage < last else needs


def peak(work: Sequence[Timed], costs: Sequence[StageCost]) -> float:
    """The most bytes of activations that lie between their forward and their backward passes."""
    held = most = 0.0
    for timed in work:
        cost = costs[timed.op.stage]
        change = {
            "F": cost.activations,
            "B": -cost.activations,
            "I": cost.kept_for_weights - cost.activations,
            "W": -cost.kept_for_weights,
        }
        held += change[timed.op.kind]
        most = max(most, held)
    return most
