"""One reduction of gradients a step, in buckets that travel while the backward pass still computes.

Each rank's `.grad` is a sum over its own rows, already divided by the weight of all ranks' rows; what the reduction
leaves is the sum over ranks. Buckets are filled in the order in which a backward pass gives gradients (the last
parameters first) and always leave in that order, whatever becomes ready when: ranks never wait for different ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from training.parallel.wire import Traffic, Waiting, Wire

BUCKET_BYTES = 1 << 20, 25 << 20  # large enough for the link's full speed, small enough to begin early
BUCKETS = 16  # of a model between those: a small one too has some that travel behind its backward pass


@dataclass
class Timing:
    """Seconds from a step's beginning until each bucket was ready, the backward pass was over, the sums were back,
    and the step was done (0: it is not)."""

    ready: list[float] = field(default_factory=list)
    computed: float = 0.0
    reduced: float = 0.0
    done: float = 0.0


class Sent(Protocol):
    """A reduction under way."""

    def proceed(self) -> None:
        """Begin the second message, where there is one; called once, when all buckets have begun."""
        ...

    def wait(self) -> Tensor:
        """The sum over all ranks, of the shape that was given."""
        ...


class Exchange(Protocol):
    """How a bucket's gradients are summed over ranks. Every rank calls the same methods in the same order."""

    @property
    def traffic(self) -> Traffic: ...

    def prepare(self, buckets: Sequence[Bucket], last: Timing) -> None:
        """Before a step; `last` is the one before, empty where there is none."""
        ...

    def begin(self, bucket: Bucket, flat: Tensor) -> Sent:
        """Begin to sum a bucket's gradients [numel], which now belong to the exchange."""
        ...

    def settle(self, updated: bool) -> None:
        """Keep what was remembered of the step's gradients, or forget it where the step was skipped."""
        ...

    def rescale(self, factor: float) -> None:
        """Multiply what is remembered of gradients: their loss scale changed."""
        ...

    def tensors(self, named: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """What a checkpoint must hold of this rank, of the same names and shapes on every rank."""
        ...

    def load(self, of_rank: Sequence[Mapping[str, Tensor]]) -> None:
        """Go on from what `tensors` gave on each rank of a run, which may have had another number of them."""
        ...


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients travel together, by name."""

    number: int
    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]

    @property
    def numel(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    def flatten(self) -> Tensor:
        """A copy of all gradients behind each other [numel]; zeros where this rank's rows gave none."""
        return torch.cat(
            [
                (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1)
                for parameter in self.parameters
            ]
        )

    def pieces(self, flat: Tensor) -> list[Tensor]:
        """Views of the parameters' shapes into a flat gradient."""
        parts = flat.split([parameter.numel() for parameter in self.parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self.parameters, strict=True)]

    def spread(self, flat: Tensor) -> None:
        """Put sums back into `.grad`."""
        for parameter, piece in zip(self.parameters, self.pieces(flat), strict=True):
            if parameter.grad is None:
                parameter.grad = piece.clone()
            else:
                parameter.grad.copy_(piece)


class AllReduce:
    """The dense sum, by the backend's own all-reduce."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @property
    def traffic(self) -> Traffic:
        return self.wire.traffic

    def prepare(self, buckets: Sequence[Bucket], last: Timing) -> None:
        pass

    def begin(self, bucket: Bucket, flat: Tensor) -> Sent:  # noqa: ARG002 (it sends all alike)
        return Dense(flat, self.wire.add_up(flat))

    def settle(self, updated: bool) -> None:
        pass

    def rescale(self, factor: float) -> None:
        pass

    def tensors(self, named: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:  # noqa: ARG002 (it remembers nothing)
        return {}

    def load(self, of_rank: Sequence[Mapping[str, Tensor]]) -> None:
        pass


@dataclass(frozen=True)
class Dense:
    """An all-reduce under way."""

    flat: Tensor
    waiting: Waiting

    def proceed(self) -> None:
        pass

    def wait(self) -> Tensor:
        self.waiting.wait()
        return self.flat


@dataclass
class Reducer:
    """Reduces the gradients of some parameters once a step.

    `begin_step()` comes first. `arm()` before the step's last backward pass lets buckets leave as they become ready;
    `finish()` sends the rest and waits for all. Without `arm` everything is sent by `finish`.
    """

    named: Sequence[tuple[str, nn.Parameter]]
    exchange: Exchange
    bucket_bytes: int | None = None

    def __post_init__(self) -> None:
        self.buckets = buckets_of(self.named, self.bucket_bytes)
        self.bucket_of = {id(p): bucket.number for bucket in self.buckets for p in bucket.parameters}
        self.armed = False
        self.missing = [0] * len(self.buckets)
        self.under_way: list[Sent] = []
        self.timing, self.began = Timing(), 0.0  # of the step that was begun last
        hook: Callable[[Tensor], None] = self.ready
        for _, parameter in self.named:
            parameter.register_post_accumulate_grad_hook(hook)

    def begin_step(self) -> None:
        self.exchange.prepare(self.buckets, self.timing)
        self.timing, self.began = Timing(), time.perf_counter()

    def arm(self) -> None:
        self.armed = True
        self.missing = [len(bucket.parameters) for bucket in self.buckets]

    def ready(self, parameter: Tensor) -> None:
        """Called by autograd when a parameter has its gradient."""
        if not self.armed:
            return
        self.missing[self.bucket_of[id(parameter)]] -= 1
        while len(self.under_way) < len(self.buckets) and self.missing[len(self.under_way)] == 0:
            self.send()

    def send(self) -> None:
        self.timing.ready.append(time.perf_counter() - self.began)
        bucket = self.buckets[len(self.under_way)]
        self.under_way.append(self.exchange.begin(bucket, bucket.flatten()))

    def finish(self) -> None:
        computed = time.perf_counter() - self.began
        while len(self.under_way) < len(self.buckets):
            self.send()
        for sent in self.under_way:
            sent.proceed()
        for bucket, sent in zip(self.buckets, self.under_way, strict=True):
            bucket.spread(sent.wait())
        self.under_way = []
        self.armed = False
        self.timing.computed, self.timing.reduced = computed, time.perf_counter() - self.began

    def settle(self, updated: bool) -> None:
        """The step is over: taken, or skipped."""
        self.exchange.settle(updated)
        self.timing.done = time.perf_counter() - self.began


def buckets_of(named: Sequence[tuple[str, nn.Parameter]], size: int | None = None) -> list[Bucket]:
    """Parameters from the last to the first in buckets of up to `size` bytes; a larger one has a bucket of its own."""
    if size is None:
        smallest, largest = BUCKET_BYTES
        total = sum(parameter.numel() * parameter.element_size() for _, parameter in named)
        size = min(largest, max(smallest, total // BUCKETS))
    found: list[list[tuple[str, nn.Parameter]]] = [[]]
    filled = 0
    for name, parameter in reversed(named):
        grows = parameter.numel() * parameter.element_size()
        if found[-1] and filled + grows > size:
            found.append([])
            filled = 0
        found[-1].append((name, parameter))
        filled += grows
    return [
        Bucket(number, tuple(name for name, _ in part), tuple(parameter for _, parameter in part))
        for number, part in enumerate(part for part in found if part)
    ]
