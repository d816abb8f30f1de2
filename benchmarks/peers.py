"""Data ranks that all live in one process: the same exchange of gradients, without starting any.

What compression does to learning does not depend on where ranks run. A step takes each rank's rows in turn, and the
ranks' exchanges meet on a board instead of a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from training.loader import share
from training.model import Transformer
from training.parallel.reducer import Exchange, Timing, buckets_of
from training.parallel.wire import Traffic, Waiting, Wire, ring_bytes
from training.ranks import OneProcess
from training.world import Alone, accumulate_here


@dataclass
class Message:
    """What each rank has posted of one collective, and what each is to be given."""

    given: list[Tensor] = field(default_factory=list)
    told: list[Tensor] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class Posted:
    message: Message
    ranks: int
    end: Callable[[Message], None]

    def wait(self) -> None:
        if len(self.message.given) != self.ranks:
            raise RuntimeError(f"{len(self.message.given)} of {self.ranks} ranks have posted")
        if not self.message.ended:
            self.end(self.message)
            self.message.ended = True


@dataclass
class PeerWire:
    """One rank's end of the board."""

    rank: int
    ranks: int
    board: list[Message]
    traffic: Traffic = field(default_factory=Traffic)
    posted: int = 0

    def post(self, given: Tensor, told: Tensor, end: Callable[[Message], None]) -> Waiting:
        if self.posted == len(self.board):
            self.board.append(Message())
        message = self.board[self.posted]
        self.posted += 1
        message.given.append(given)
        message.told.append(told)
        return Posted(message, self.ranks, end)

    def add_up(self, flat: Tensor) -> Waiting:
        self.traffic.moved(ring_bytes(self.ranks, flat.numel() * flat.element_size()))
        return self.post(flat, flat, add_up)

    def gather(self, mine: Tensor) -> tuple[Tensor, Waiting]:
        self.traffic.moved((self.ranks - 1) * mine.numel() * mine.element_size())
        every = torch.empty(self.ranks, mine.numel(), dtype=mine.dtype)
        return every, self.post(mine, every, gather)


def add_up(message: Message) -> None:
    summed = torch.stack(message.given).sum(0)
    for told in message.told:
        told.copy_(summed)


def gather(message: Message) -> None:
    every = torch.stack(message.given)
    for told in message.told:
        told.copy_(every)


class Peers(Alone):
    """The world of ranks that a training step sees: it is given all ranks' rows, and each rank takes its share."""

    def __init__(
        self, model: Transformer, ranks: int, exchange: Callable[[Wire], Exchange], bucket_bytes: int | None = None
    ) -> None:
        self.model, self.ranks, self.board = model, ranks, list[Message]()
        self.wires = [PeerWire(rank, ranks, self.board) for rank in range(ranks)]
        self.exchanges = [exchange(wire) for wire in self.wires]
        self.buckets = buckets_of(list(model.named_parameters()), bucket_bytes)
        self.flat: list[list[Tensor]] = []

    def accumulate(self, micro_batches: Sequence[Any], loss_sum: Callable[[Any], Tensor], total: float) -> float:
        summed, self.flat = 0.0, []
        for rank in range(self.ranks):
            self.model.zero_grad(set_to_none=True)
            mine = [share(batch, rank, self.ranks) for batch in micro_batches]
            summed += accumulate_here(mine, loss_sum, total, lambda: None)
            self.flat.append([bucket.flatten() for bucket in self.buckets])
        return summed

    def reduce_gradients(self) -> None:
        for exchange in self.exchanges:
            exchange.prepare(self.buckets, Timing())
        sent = [
            [exchange.begin(bucket, flat) for bucket, flat in zip(self.buckets, flats, strict=True)]
            for exchange, flats in zip(self.exchanges, self.flat, strict=True)
        ]
        for mine in sent:
            for each in mine:
                each.proceed()
        summed = [[each.wait() for each in mine] for mine in sent]
        for bucket, flat in zip(self.buckets, summed[0], strict=True):
            bucket.spread(flat)
        self.board.clear()
        for wire in self.wires:
            wire.posted = 0

    def settle(self, updated: bool) -> None:
        for exchange in self.exchanges:
            exchange.settle(updated)


class PeersOfOneProcess(OneProcess):
    """For training.pretrain.pretrain."""

    def __init__(self, model: Transformer, ranks: int, exchange: Callable[[Wire], Exchange]) -> None:
        super().__init__(model)
        self.peers = Peers(model, ranks, exchange)
        self.world = self.peers
