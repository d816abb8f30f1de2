"""One reduction of gradients a step, in buckets that travel while the backward pass still computes.

Each rank's `.grad` is a sum over its own rows, already divided by the weight of all ranks' rows; what the reduction
leaves is the sum over ranks. Buckets are filled in the order in which a backward pass gives gradients (the last
parameters first) and always leave in that order, whatever becomes ready when: ranks never wait for different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 25 << 20  # large enough for the link's full speed, small enough to begin early


@dataclass
class Traffic:
    """Bytes that this rank sent and received so far."""

    sent: int = 0
    received: int = 0


class Sent(Protocol):
    """A reduction under way."""

    def wait(self) -> Tensor:
        """The sum over all ranks, of the shape that was given."""
        ...


class Exchange(Protocol):
    """How a bucket's gradients are summed over ranks."""

    def begin(self, bucket: Bucket, flat: Tensor, traffic: Traffic) -> Sent: ...

    def settle(self, updated: bool) -> None:
        """Keep what was remembered of the step's gradients, or forget it where the step was skipped."""
        ...

    def rescale(self, factor: float) -> None:
        """Multiply what is remembered of gradients: their loss scale changed."""
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
        """All gradients behind each other [numel]; zeros where this rank's rows gave none."""
        return torch.cat(
            [
                (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1)
                for parameter in self.parameters
            ]
        )

    def spread(self, flat: Tensor) -> None:
        """Put sums back into `.grad`."""
        pieces = flat.split([parameter.numel() for parameter in self.parameters])
        for parameter, piece in zip(self.parameters, pieces, strict=True):
            if parameter.grad is None:
                parameter.grad = piece.view_as(parameter).clone()
            else:
                parameter.grad.copy_(piece.view_as(parameter))


class AllReduce:
    """The dense sum, by the backend's own all-reduce."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.ranks = group, dist.get_world_size(group)

    def begin(self, bucket: Bucket, flat: Tensor, traffic: Traffic) -> Sent:  # noqa: ARG002 (it sends all alike)
        # A ring sends each of the N parts N - 1 times to be summed and N - 1 times to be told.
        moved = 2 * (self.ranks - 1) * flat.numel() * flat.element_size() // self.ranks
        traffic.sent += moved
        traffic.received += moved
        work = dist.all_reduce(flat, group=self.group, async_op=True)
        return Dense(flat, work)

    def settle(self, updated: bool) -> None:
        pass

    def rescale(self, factor: float) -> None:
        pass


@dataclass(frozen=True)
class Dense:
    flat: Tensor
    work: dist.Work | None

    def wait(self) -> Tensor:
        if self.work is not None:
            self.work.wait()
        return self.flat


@dataclass
class Reducer:
    """Reduces the gradients of some parameters once a step.

    `arm()` before the step's last backward pass lets buckets leave as they become ready; `finish()` sends the rest and
    waits for all. Without `arm` everything is sent by `finish`.
    """

    named: Sequence[tuple[str, nn.Parameter]]
    exchange: Exchange
    bucket_bytes: int = BUCKET_BYTES
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.buckets = buckets_of(self.named, self.bucket_bytes)
        self.bucket_of = {id(p): bucket.number for bucket in self.buckets for p in bucket.parameters}
        self.armed = False
        self.missing = [0] * len(self.buckets)
        self.under_way: list[Sent] = []
        hook: Callable[[Tensor], None] = self.ready
        for _, parameter in self.named:
            parameter.register_post_accumulate_grad_hook(hook)

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
        bucket = self.buckets[len(self.under_way)]
        self.under_way.append(self.exchange.begin(bucket, bucket.flatten(), self.traffic))

    def finish(self) -> None:
        while len(self.under_way) < len(self.buckets):
            self.send()
        for bucket, sent in zip(self.buckets, self.under_way, strict=True):
            bucket.spread(sent.wait())
        self.under_way = []
        self.armed = False


def buckets_of(named: Sequence[tuple[str, nn.Parameter]], size: int) -> list[Bucket]:
    """Parameters from the last to the first in buckets of up to `size` bytes; a larger one has a bucket of its own."""
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
