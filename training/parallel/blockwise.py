"""Gradients compressed to the largest entry of every block, with error feedback (Top-K; Lin et al. 2018).

Exact top-k costs more time than it saves on most links. The largest of a block costs one pass, and its place in the
block is one byte. A block's entries stand `LANES` apart, so that the pass compares whole vectors of them: on CPU that
is twenty times as fast as an argmax over neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

from data.errors import DaymillError
from training.parallel.feedback import Late
from training.parallel.reducer import Bucket, Sent
from training.parallel.wire import Waiting, Wire

PLACE_BYTES = 1  # of an entry in its block
MAX_BLOCK = 256
LANES = 64  # blocks side by side; near enough that a block seldom spans two parameters of different scale


@dataclass(frozen=True)
class Blocks:
    """How a flat gradient is cut: of [groups, block, lanes], entry (group, place, lane) is in block (group, lane)."""

    groups: int
    block: int
    lanes: int

    @property
    def count(self) -> int:
        return self.groups * self.lanes


def block_for(ranks: int, saved: float, value_bytes: int = 4) -> int:
    """Entries of a block with which `saved` of a dense ring all-reduce's bytes are saved.

    A ring all-reduce sends 2 (N - 1) / N of the gradient; gathering what N ranks chose sends N - 1 shares of it. So the
    block grows with N, and beyond some 80 ranks its places no longer fit into a byte. Raises DaymillError there.
    """
    if not 0 < saved < 1:
        raise DaymillError(f"the share of saved bytes is {saved}; expected more than 0 and less than 1")
    block = ceil(round(ranks * (value_bytes + PLACE_BYTES) / (2 * value_bytes * (1 - saved)), 9))
    if block > MAX_BLOCK:
        raise DaymillError(
            f"{ranks} ranks would need blocks of {block} entries to save {saved:.0%} of the bytes; "
            f"{MAX_BLOCK} are possible. Compress between fewer ranks, such as one of each machine"
        )
    return block


def cut(numel: int, ranks: int, saved: float, value_bytes: int = 4) -> Blocks:
    """Blocks of a bucket, never more than `saved` allows where it allows any."""
    allowed = max(1, numel // block_for(ranks, saved, value_bytes))
    groups = ceil(allowed / LANES)
    lanes = allowed // groups
    groups = max(groups, ceil(numel / (MAX_BLOCK * lanes)))
    return Blocks(groups, ceil(numel / (groups * lanes)), lanes)


class LargestOfBlock:
    """The largest entry of every block, as an exchange of buckets."""

    def __init__(self, wire: Wire, late: Late, saved: float = 0.8) -> None:
        self.wire, self.late, self.saved = wire, late, saved
        block_for(wire.ranks, saved)

    def begin(self, bucket: Bucket, flat: Tensor) -> Sent:
        self.late.add_to(bucket.names, bucket.pieces(flat))
        blocks = cut(len(flat), self.wire.ranks, self.saved, flat.element_size())
        values, places, rest = chosen(flat, blocks)
        for name, piece in zip(bucket.names, bucket.pieces(rest), strict=True):
            self.late.keep(name, piece)
        gathered, waiting = self.wire.gather(torch.cat([values.view(torch.uint8), places]))
        return Gathering(waiting, gathered, flat.dtype, len(flat), blocks)


def chosen(flat: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Of each block the entry that is largest without its sign, its place (uint8), and everything else.

    Magnitudes are compared as integers, which order floats alike, with the place in their last eight bits: equal to
    the first 15 bits of a float32's mantissa, the later place wins. NaN and infinity are larger than any number.
    """
    padded = F.pad(flat, (0, blocks.count * blocks.block - len(flat))).view(blocks.groups, blocks.block, blocks.lanes)
    wide = padded if padded.element_size() >= 4 else padded.float()
    integers, bits = (torch.int64, 63) if wide.element_size() == 8 else (torch.int32, 31)
    keys = wide.view(integers) & ((1 << bits) - MAX_BLOCK)
    keys |= torch.arange(blocks.block, dtype=integers).unsqueeze(1)
    places = (keys.amax(1, keepdim=True) & (MAX_BLOCK - 1)).long()
    values = padded.gather(1, places)
    rest = padded.scatter(1, places, 0.0).view(-1)[: len(flat)]
    return values.view(-1), places.view(-1).to(torch.uint8), rest


@dataclass(frozen=True)
class Gathering:
    """What the ranks chose, under way."""

    waiting: Waiting
    gathered: Tensor
    dtype: torch.dtype
    numel: int
    blocks: Blocks

    def proceed(self) -> None:
        pass

    def wait(self) -> Tensor:
        self.waiting.wait()
        shape = (self.blocks.groups, 1, self.blocks.lanes)
        summed = torch.zeros(self.blocks.groups, self.blocks.block, self.blocks.lanes, dtype=self.dtype)
        split = self.blocks.count * summed.element_size()
        for part in self.gathered:  # in the order of ranks: the same sums on each
            values = part[:split].clone().view(self.dtype).view(shape)
            summed.scatter_add_(1, part[split:].long().view(shape), values)
        return summed.view(-1)[: self.numel]
