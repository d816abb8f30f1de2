"""What sending and compressing cost on this link and these processors, measured.

The link is measured over the real ranks with a few sizes of message, computing on the run's own buckets with no link at
all. Every figure is the median of some turns on each rank, and then that of the slowest rank: all wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from training.parallel.forecast import Cost, Method, Step
from training.parallel.reducer import Bucket, Exchange, Timing
from training.parallel.wire import Traffic, Waiting, Wire

SIZES = (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22)  # bytes of the messages that measure a link
LONG_S = 0.1  # a message that takes longer tells enough; larger ones are not sent
TURNS = 5
Kind = Literal["sum", "gather"]


@dataclass(frozen=True)
class Line:
    """Time of a collective by the bytes that a rank hands over: a + b x bytes."""

    latency: float  # seconds
    per_byte: float  # seconds

    def seconds(self, size: int) -> float:
        return self.latency + self.per_byte * size


def line_through(sizes: Sequence[int], times: Sequence[float]) -> Line:
    """The two largest messages give the slope, since buffers flatter small ones, and the smallest one the latency."""
    per_byte = max(0.0, (times[-1] - times[-2]) / (sizes[-1] - sizes[-2]))
    return Line(max(0.0, times[0] - per_byte * sizes[0]), per_byte)


def measure_link(wire: Wire) -> dict[Kind, Line]:
    """Both collectives on this link. Every rank must call it."""

    def summed(size: int) -> None:
        wire.add_up(torch.ones(size // 4)).wait()

    def gathered(size: int) -> None:
        wire.gather(torch.ones(size, dtype=torch.uint8))[1].wait()

    found: dict[Kind, Line] = {}
    kinds: tuple[tuple[Kind, Callable[[int], None]], ...] = (("sum", summed), ("gather", gathered))
    for kind, send in kinds:
        times: list[float] = []
        for size in SIZES:
            turns = []
            for _ in range(TURNS):
                start = time.perf_counter()
                send(size)
                turns.append(time.perf_counter() - start)
            times += slowest(wire, [median(turns)])
            if len(times) > 1 and times[-1] > LONG_S:
                break
        found[kind] = line_through(SIZES[: len(times)], times)
    return found


def slowest(wire: Wire, mine: Sequence[float]) -> list[float]:
    """Of each number the largest that a rank has; the same bits on every rank."""
    every, waiting = wire.gather(torch.tensor(mine, dtype=torch.float64).view(torch.uint8))
    waiting.wait()
    largest = every.view(torch.float64).amax(0)
    return [float(value) for value in largest]


class Arrived:
    def wait(self) -> None:
        pass


@dataclass
class Rehearsal:
    """A wire to nowhere: as if every other rank had nothing. It notes what would have been sent."""

    rank: int
    ranks: int
    sizes: list[tuple[Kind, int]] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)

    def add_up(self, flat: Tensor) -> Waiting:
        self.sizes.append(("sum", flat.numel() * flat.element_size()))
        return Arrived()

    def gather(self, mine: Tensor) -> tuple[Tensor, Waiting]:
        self.sizes.append(("gather", mine.numel() * mine.element_size()))
        return mine.repeat(self.ranks, 1), Arrived()


@dataclass(frozen=True)
class Rehearsed:
    """Seconds of computing for one bucket, and its messages."""

    pack: float
    between: float
    unpack: float
    sizes: tuple[tuple[Kind, int], ...]

    def cost(self, link: Mapping[Kind, Line]) -> Cost:
        first, second = [link[kind].seconds(size) for kind, size in self.sizes] + [0.0] * (2 - len(self.sizes))
        return Cost(self.pack, first, self.between, second, self.unpack)


def rehearse(exchange: Exchange, wire: Rehearsal, bucket: Bucket) -> Rehearsed:
    """Send a bucket of made-up gradients nowhere."""
    drawn = torch.Generator().manual_seed(bucket.number)  # not the run's own random numbers
    gradient = torch.randn(bucket.numel, generator=drawn, dtype=torch.float32).to(bucket.parameters[0].dtype)
    times: list[list[float]] = []
    for _ in range(TURNS):
        wire.sizes.clear()
        at = [time.perf_counter()]
        sent = exchange.begin(bucket, gradient.clone())
        at.append(time.perf_counter())
        sent.proceed()
        at.append(time.perf_counter())
        sent.wait()
        at.append(time.perf_counter())
        exchange.settle(True)
        times.append([after - before for before, after in pairwise(at)])
    pack, between, unpack = (median(turn) for turn in zip(*times, strict=True))
    return Rehearsed(pack, between, unpack, tuple(wire.sizes))


def costs(
    wire: Wire, buckets: Sequence[Bucket], methods: Mapping[Method, Callable[[Wire], Exchange]]
) -> list[dict[Method, Cost]]:
    """What each bucket costs by each method on this link; the same on every rank. Every rank must call it."""
    link = measure_link(wire)
    known: dict[tuple[torch.Size, ...], dict[Method, Cost]] = {}  # of buckets alike, one is rehearsed
    found = []
    for bucket in buckets:
        shapes = tuple(parameter.shape for parameter in bucket.parameters)
        if shapes not in known:
            known[shapes] = {}
            for method, make in methods.items():
                nowhere = Rehearsal(wire.rank, wire.ranks)
                exchange = make(nowhere)
                exchange.prepare(buckets, Timing())
                told = rehearse(exchange, nowhere, bucket)
                pack, between, unpack = slowest(wire, [told.pack, told.between, told.unpack])
                known[shapes][method] = Rehearsed(pack, between, unpack, told.sizes).cost(link)
        found.append(known[shapes])
    return found


def step_of(wire: Wire, timings: Sequence[Timing]) -> Step:
    """The median of some dense steps, on the slowest rank; the same on every rank."""
    rows = [[*timing.ready, timing.computed, timing.done - timing.reduced] for timing in timings]
    *ready, computed, after = slowest(wire, [median(values) for values in zip(*rows, strict=True)])
    return Step(tuple(ready), computed, after)
