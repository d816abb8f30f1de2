"""Gradients compressed to the largest entries of every block, with error feedback (Top-K; Lin et al. 2018).

Exact top-k costs more time than it saves on most links; the largest of a block costs one pass over it. Its place in the
block travels in the last eight bits of its mantissa: what they said of the value is remembered like all that is not
sent. A block's entries stand `LANES` apart, so that a pass compares whole vectors of them: on CPU that is twenty times
as fast as an argmax over neighbors. A few of a larger block are nearer to the exact choice than one of a smaller one.
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

MAX_BLOCK = 256  # places that eight bits tell apart
WORD_BYTES = 4  # of an entry and its place, or more where the gradient's numbers have more
PICKS = 4  # of a block, each with a pass of its own
ROOMY = 200  # entries of a block that is given more than one pick: rounding up must not reach MAX_BLOCK
LANES = 64  # blocks side by side; near enough that a block seldom spans two parameters of different scale


@dataclass(frozen=True)
class Blocks:
    """How a flat gradient is cut: of [groups, block, lanes], entry (group, place, lane) is in block (group, lane)."""

    groups: int
    block: int
    lanes: int
    picks: int = 1  # of each block

    @property
    def numel(self) -> int:
        return self.groups * self.block * self.lanes

    @property
    def words(self) -> int:
        return self.groups * self.picks * self.lanes


def block_for(ranks: int, saved: float, value_bytes: int = 4) -> int:
    """Entries of which one is picked where `saved` of a dense ring all-reduce's bytes are saved.

    A ring all-reduce sends 2 (N - 1) / N of the gradient; gathering what N ranks chose sends N - 1 shares of it. So the
    block grows with N, and beyond some 100 ranks its places no longer fit into a byte. Raises DaymillError there.
    """
    if not 0 < saved < 1:
        raise DaymillError(f"the share of saved bytes is {saved}; expected more than 0 and less than 1")
    block = ceil(round(ranks * max(WORD_BYTES, value_bytes) / (2 * value_bytes * (1 - saved)), 9))
    if block > MAX_BLOCK:
        raise DaymillError(
            f"{ranks} ranks would need blocks of {block} entries to save {saved:.0%} of the bytes; "
            f"{MAX_BLOCK} are possible. Compress between fewer ranks, such as one of each machine"
        )
    return block


def cut(numel: int, ranks: int, saved: float, value_bytes: int = 4) -> Blocks:
    """Blocks of a bucket, never more picks than `saved` allows where it allows any."""
    block = block_for(ranks, saved, value_bytes)
    allowed = max(1, numel // block)
    picks = max(1, min(PICKS, ROOMY // block, allowed // LANES))
    groups = ceil(allowed // picks / LANES)
    lanes = allowed // picks // groups
    groups = max(groups, ceil(numel / (MAX_BLOCK * lanes)))
    return Blocks(groups, ceil(numel / (groups * lanes)), lanes, picks)


class LargestOfBlock:
    """The largest entries of every block, as an exchange of buckets."""

    def __init__(self, wire: Wire, late: Late, saved: float = 0.8) -> None:
        self.wire, self.late, self.saved = wire, late, saved
        block_for(wire.ranks, saved)

    def begin(self, bucket: Bucket, flat: Tensor) -> Sent:
        self.late.add_to(bucket.names, bucket.pieces(flat))
        blocks = cut(len(flat), self.wire.ranks, self.saved, flat.element_size())
        words, rest = chosen(flat, blocks)
        for name, piece in zip(bucket.names, bucket.pieces(rest), strict=True):
            self.late.keep(name, piece)
        gathered, waiting = self.wire.gather(words)
        return Gathering(waiting, gathered, flat.dtype, len(flat), blocks)


def chosen(flat: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Of each block the entries that are largest without their sign, as words of value and place, and everything else.

    Magnitudes are compared as integers, which order floats alike: those equal to the first 15 bits of a float32's
    mantissa are taken for equal, and the last place wins. NaN and infinity are larger than any number and stay so.
    """
    shape = (blocks.groups, blocks.block, blocks.lanes)
    padded = F.pad(flat, (0, blocks.numel - len(flat))).view(shape)
    wide = padded if padded.element_size() >= WORD_BYTES else padded.float()
    bits = wide.view(torch.int64 if wide.element_size() == 8 else torch.int32)
    sign = torch.iinfo(bits.dtype).min
    keys = bits & (-MAX_BLOCK - sign)  # all but the sign and the last eight bits
    keys |= torch.arange(blocks.block, dtype=bits.dtype, device=bits.device).unsqueeze(1)
    picked = []
    for _ in range(blocks.picks):
        picked.append(keys.amax(1, keepdim=True))
        keys.scatter_(1, (picked[-1] & (MAX_BLOCK - 1)).long(), -1)
    largest = torch.cat(picked, 1)
    places = (largest & (MAX_BLOCK - 1)).long()
    words = largest | (bits.gather(1, places) & sign)
    sent = (words & -MAX_BLOCK).view(wide.dtype).to(flat.dtype)
    rest = padded.scatter(1, places, padded.gather(1, places) - sent)
    return words.view(-1), rest.view(-1)[: len(flat)]


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
        shape, device = (self.blocks.groups, self.blocks.block, self.blocks.lanes), self.gathered.device
        summed = torch.zeros(shape, dtype=self.dtype, device=device)
        picks = (self.blocks.groups, self.blocks.picks, self.blocks.lanes)
        for words in self.gathered.view(-1, *picks):  # by rank: the same sums on each
            wide = torch.float64 if words.element_size() == 8 else torch.float32
            values = (words & -MAX_BLOCK).view(wide).to(self.dtype)
            summed.scatter_add_(1, (words & (MAX_BLOCK - 1)).long(), values)
        return summed.view(-1)[: self.numel]
