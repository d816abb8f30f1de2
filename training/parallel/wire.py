"""What ranks tell each other to sum gradients, and the bytes and the waiting that it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass
class Traffic:
    """Bytes that this rank sent and received so far, and seconds that it did nothing but wait for them."""

    sent: int = 0
    received: int = 0
    waited: float = 0.0

    def moved(self, count: int) -> None:
        """Both collectives here receive as much as they send."""
        self.sent += count
        self.received += count


class Waiting(Protocol):
    """A message under way."""

    def wait(self) -> None: ...


class Wire(Protocol):
    """A link of ranks. Every rank calls the same methods in the same order."""

    rank: int
    ranks: int
    traffic: Traffic

    def add_up(self, flat: Tensor) -> Waiting:
        """Begin to sum `flat` over ranks, in place."""
        ...

    def gather(self, mine: Tensor) -> tuple[Tensor, Waiting]:
        """Begin to gather what each rank has [numel], all of one size: [ranks, numel], in the order of ranks."""
        ...


@dataclass(frozen=True)
class Work:
    """A collective of torch.distributed; its time of waiting is counted."""

    work: dist.Work | None
    traffic: Traffic
    kept: Tensor  # alive until it was sent

    def wait(self) -> None:
        if self.work is not None:
            start = time.perf_counter()
            self.work.wait()
            self.traffic.waited += time.perf_counter() - start


@dataclass
class GroupWire:
    """The ranks of a process group."""

    group: dist.ProcessGroup
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)

    def add_up(self, flat: Tensor) -> Waiting:
        # A ring sends each of the N parts N - 1 times to be summed and N - 1 times to be told.
        self.traffic.moved(ring_bytes(self.ranks, flat.numel() * flat.element_size()))
        return Work(dist.all_reduce(flat, group=self.group, async_op=True), self.traffic, flat)

    def gather(self, mine: Tensor) -> tuple[Tensor, Waiting]:
        self.traffic.moved((self.ranks - 1) * mine.numel() * mine.element_size())
        every = torch.empty(self.ranks, mine.numel(), dtype=mine.dtype, device=mine.device)
        work = dist.all_gather_single(every.view(-1), mine, group=self.group, async_op=True)
        return every, Work(work, self.traffic, mine)


def ring_bytes(ranks: int, size: int) -> int:
    """Bytes that each rank sends, and receives, in a ring all-reduce of `size` bytes."""
    return 2 * (ranks - 1) * size // ranks
