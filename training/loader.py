"""Packed rows for pretraining, epoch after epoch, from a position that a checkpoint can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data.batching import IGNORE, PackedRows, pack_documents
from data.errors import DaymillError
from data.tokens import TokenShard
from training.device import moved

CPU = torch.device("cpu")


@dataclass(frozen=True)
class TokenBatch:
    """Inputs, targets and document numbers, each [B, T]."""

    ids: Tensor
    targets: Tensor
    docs: Tensor

    @property
    def tokens(self) -> int:
        """Targets that count."""
        return int((self.targets != IGNORE).sum())


class PackedLoader:
    """Batches of packed rows; every document exactly once an epoch, each epoch in an order of its own."""

    def __init__(self, shard: TokenShard, length: int, rows: int, seed: int, device: torch.device = CPU) -> None:
        self.shard, self.length, self.rows, self.seed, self.device = shard, length, rows, seed, device
        self.epoch, self.row = 0, 0
        self.packed = self.pack()
        if not len(self.packed):
            raise DaymillError("the token shard has no document of two tokens or more; nothing to learn from")

    def pack(self) -> PackedRows:
        return pack_documents(self.shard, self.length, seed=self.seed * 1_000_003 + self.epoch)

    def next(self) -> TokenBatch:
        """The next batch; it never mixes epochs, so the last one of an epoch may be smaller."""
        if self.row >= len(self.packed):
            self.epoch, self.row = self.epoch + 1, 0
            self.packed = self.pack()
        batch = batch_of(self.packed, self.row, self.row + self.rows, self.device)
        self.row += len(batch.ids)
        return batch

    def position(self) -> dict[str, int]:
        return {"epoch": self.epoch, "row": self.row}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a saved position."""
        self.epoch, self.row = int(position["epoch"]), int(position["row"])
        self.packed = self.pack()


def batch_of(packed: PackedRows, start: int, end: int, device: torch.device = CPU) -> TokenBatch:
    parts = (torch.from_numpy(x[start:end]).long() for x in (packed.ids, packed.targets, packed.docs))
    return TokenBatch(*(moved(part, device) for part in parts))


def share(batch: TokenBatch, rank: int, ranks: int) -> TokenBatch:
    """A rank's rows of a batch: contiguous, in sizes that differ by one at most, perhaps none."""
    part = [tensor.tensor_split(ranks)[rank] for tensor in (batch.ids, batch.targets, batch.docs)]
    return TokenBatch(*part)
