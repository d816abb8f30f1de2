"""Which buckets of gradients are compressed, and how: after a dense warm-up as asked for, or as what is the fastest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from training.parallel.blockwise import LargestOfBlock
from training.parallel.feedback import Late
from training.parallel.forecast import Cost, Method, Step, fastest, seconds
from training.parallel.link import costs, step_of
from training.parallel.lowrank import LowRank
from training.parallel.reducer import AllReduce, Bucket, Exchange, Sent, Timing
from training.parallel.wire import Traffic, Wire
from training.state import part

METHODS: tuple[Method, ...] = ("dense", "top-k", "power-sgd")
WATCHED = 5  # dense steps that are timed before a method is chosen


@dataclass(frozen=True)
class Compress:
    """How data ranks compress their gradients."""

    method: Literal["off", "auto", "top-k", "power-sgd"] = "off"
    saved: float = 0.8  # share of a dense ring all-reduce's bytes
    dense_steps: int = 0  # before compression begins

    def exchange(self, wire: Wire, tell: Callable[[str], None] | None = None) -> Exchange:
        """Raises DaymillError where so many ranks cannot save that share."""
        return AllReduce(wire) if self.method == "off" else Compressed(wire, self, tell)


class Compressed:
    """An exchange that sends each bucket by a method of its own."""

    def __init__(self, wire: Wire, how: Compress, tell: Callable[[str], None] | None = None) -> None:
        self.wire, self.how, self.tell = wire, how, tell
        self.late = Late()
        self.dense = AllReduce(wire)
        self.largest = LargestOfBlock(wire, self.late, how.saved)
        self.low = LowRank(wire, self.late, how.saved)
        self.steps = 0  # taken so far
        self.methods: list[Method] = []  # of the buckets; none as long as nothing was chosen
        self.timings: list[Timing] = []

    @property
    def traffic(self) -> Traffic:
        return self.wire.traffic

    def prepare(self, buckets: Sequence[Bucket], last: Timing) -> None:
        if self.methods or self.wire.ranks == 1:
            return
        if self.how.method == "top-k" or self.how.method == "power-sgd":
            self.methods = [self.how.method] * len(buckets)
            return
        if last.done:
            self.timings = [*self.timings, last][-WATCHED:]
        if self.steps >= self.how.dense_steps and len(self.timings) == WATCHED:
            self.choose(buckets)

    def choose(self, buckets: Sequence[Bucket]) -> None:
        """Measure link, computing and steps, and take what is predicted to be the fastest. All ranks choose alike: they
        look at the same numbers."""
        before = replace(self.traffic)
        options = costs(self.wire, buckets, {method: self.alone(method) for method in METHODS})
        step = step_of(self.wire, self.timings)
        vars(self.traffic).update(vars(before))  # measuring is no part of the run's traffic
        self.methods = fastest(step, options, self.wire.ranks)
        if self.tell is not None:
            for line in table(step, options, self.methods, [bucket.numel for bucket in buckets]):
                self.tell(line)

    def alone(self, method: Method) -> Callable[[Wire], Exchange]:
        """A method without warm-up and choice."""
        return replace(self.how, method="off" if method == "dense" else method, dense_steps=0).exchange

    def begin(self, bucket: Bucket, flat: Tensor) -> Sent:
        method = self.methods[bucket.number] if self.methods and self.steps >= self.how.dense_steps else "dense"
        if method == "top-k":
            return self.largest.begin(bucket, flat)
        return self.low.begin(bucket, flat) if method == "power-sgd" else self.dense.begin(bucket, flat)

    def settle(self, updated: bool) -> None:
        self.late.settle(updated)
        self.low.settle(updated)
        self.steps += updated

    def rescale(self, factor: float) -> None:
        self.late.rescale(factor)  # PowerSGD's factors are directions: their length does not matter

    def tensors(self, named: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
        found = {"steps": torch.tensor(self.steps)}
        if self.methods:
            found["methods"] = torch.tensor([METHODS.index(method) for method in self.methods])
        found |= {f"late/{name}": late for name, late in self.late.tensors(named).items()}
        return found | {f"q/{name}": q for name, q in self.low.tensors().items()}

    def load(self, of_rank: Sequence[Mapping[str, Tensor]]) -> None:
        """What is late is taken over from any number of ranks; a choice that was made for another one is made anew."""
        if not of_rank:
            return
        first = of_rank[0]
        self.steps = int(first["steps"])
        self.low.load(part(first, "q"))
        self.late.load([part(tensors, "late") for tensors in of_rank], self.wire.rank, self.wire.ranks)
        if len(of_rank) == self.wire.ranks and "methods" in first:
            self.methods = [METHODS[index] for index in first["methods"].tolist()]


def table(
    step: Step, options: Sequence[Mapping[Method, Cost]], methods: Sequence[Method], sizes: Sequence[int]
) -> list[str]:
    """A line for each kind of bucket and one for the whole step."""
    lines = []
    kinds = list(zip(sizes, methods, strict=True))
    for (size, method), count in Counter(kinds).items():
        option = options[kinds.index((size, method))]
        each = ", ".join(f"{name} {cost.alone * 1e3:.1f} ms" for name, cost in option.items())
        lines.append(f"{count} x {size:,} gradients: {method} ({each} by itself)")
    dense = seconds(step, [option["dense"] for option in options])
    chosen = seconds(step, [option[method] for option, method in zip(options, methods, strict=True)])
    return [*lines, f"a step: predicted {dense * 1e3:.1f} ms dense, {chosen * 1e3:.1f} ms as chosen"]
