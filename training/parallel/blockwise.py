"""Gradients compressed to the largest entry of every block, with error feedback (Top-K; Lin et al. 2018).

What a rank does not send it remembers and adds to its next gradient, so nothing is lost, only late. Exact top-k costs
more time than it saves on most links; the largest of a block costs one pass, and its place in the block is one byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from data.errors import DaymillError
from training.parallel.reducer import AllReduce, Bucket, Sent, Traffic

PLACE_BYTES = 1  # of an entry in its block
MAX_BLOCK = 256


def block_for(ranks: int, saved: float, value_bytes: int = 4) -> int:
    """Entries of a block with which `saved` of a dense ring all-reduce's bytes are saved.

    A ring all-reduce sends 2 (N - 1) / N of the gradient; gathering what N ranks chose sends N - 1 shares of it. So the
    block grows with N, and beyond some 60 ranks its places no longer fit into a byte. Raises DaymillError there.
    """
    if not 0 < saved < 1:
        raise DaymillError(f"the share of saved bytes is {saved}; expected more than 0 and less than 1")
    block = ceil(ranks * (value_bytes + PLACE_BYTES) / (2 * value_bytes * (1 - saved)))
    if block > MAX_BLOCK:
        raise DaymillError(
            f"{ranks} ranks would need blocks of {block} entries to save {saved:.0%} of the bytes; "
            f"{MAX_BLOCK} are possible. Compress between fewer ranks, such as one of each machine"
        )
    return block


class LargestOfBlock:
    """An exchange of buckets: dense for `warmup` steps, then the largest entry of every block."""

    def __init__(self, group: dist.ProcessGroup, saved: float = 0.8, warmup: int = 0) -> None:
        self.group, self.ranks, self.warmup = group, dist.get_world_size(group), warmup
        self.block = block_for(self.ranks, saved)
        self.dense = AllReduce(group)
        self.steps = 0  # taken so far
        self.memory: dict[str, Tensor] = {}  # by parameter name: a change of buckets moves nothing
        self.pending: dict[str, Tensor] = {}

    def begin(self, bucket: Bucket, flat: Tensor, traffic: Traffic) -> Sent:
        if self.steps < self.warmup or self.ranks == 1:
            return self.dense.begin(bucket, flat, traffic)
        kept = [self.memory.get(name) for name in bucket.names]
        whole = flat + torch.cat(
            [
                flat.new_zeros(parameter.numel()) if late is None else late.reshape(-1)
                for parameter, late in zip(bucket.parameters, kept, strict=True)
            ]
        )
        values, places, rest = chosen(whole, self.block)
        sizes = [parameter.numel() for parameter in bucket.parameters]
        for name, parameter, piece in zip(bucket.names, bucket.parameters, rest.split(sizes), strict=True):
            self.pending[name] = piece.view_as(parameter)
        packed = torch.cat([values.contiguous().view(torch.uint8), places])
        gathered = torch.empty(self.ranks * packed.numel(), dtype=torch.uint8, device=packed.device)
        moved = (self.ranks - 1) * packed.numel()
        traffic.sent += moved
        traffic.received += moved
        work = dist.all_gather_single(gathered, packed, group=self.group, async_op=True)
        return Gathering(work, gathered, packed, whole.dtype, len(whole), self.block, self.ranks)

    def settle(self, updated: bool) -> None:
        if updated:
            self.memory |= self.pending
            self.steps += 1
        self.pending = {}

    def tensors(self, named: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """What a checkpoint must hold of this rank: the error memory by parameter name, and the steps taken."""
        late = {f"late/{name}": self.memory.get(name, torch.zeros_like(p)).detach() for name, p in named}
        return {"steps": torch.tensor(self.steps)} | late

    def load(self, of_rank: Sequence[Mapping[str, Tensor]]) -> None:
        """Put back what `tensors` gave on each rank. Another number of ranks shares what was late, so none is lost."""
        rank = dist.get_rank(self.group)
        for tensors in of_rank[rank :: self.ranks]:
            for name, late in tensors.items():
                if name.startswith("late/"):
                    known = self.memory.get(name[5:])
                    self.memory[name[5:]] = late.clone() if known is None else known + late
        if of_rank:
            self.steps = int(of_rank[0]["steps"])


def chosen(flat: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each block the entry that is largest without its sign, its place (uint8), and everything else."""
    padded = F.pad(flat, (0, -len(flat) % block)).view(-1, block)
    places = padded.abs().argmax(1, keepdim=True)
    values = padded.gather(1, places)
    rest = padded.scatter(1, places, 0.0).reshape(-1)[: len(flat)]
    return values.reshape(-1), places.to(torch.uint8).reshape(-1), rest


@dataclass(frozen=True)
class Gathering:
    work: dist.Work | None
    gathered: Tensor
    packed: Tensor  # alive until it was sent
    dtype: torch.dtype
    numel: int
    block: int
    ranks: int

    def wait(self) -> Tensor:
        if self.work is not None:
            self.work.wait()
        blocks = ceil(self.numel / self.block)
        summed = torch.zeros(blocks, self.block, dtype=self.dtype, device=self.gathered.device)
        split = blocks * summed.element_size()
        for part in self.gathered.view(self.ranks, -1):  # in the order of ranks: the same sums on each
            values = part[:split].clone().view(self.dtype)
            places = part[split:].long()
            summed.scatter_add_(1, places.unsqueeze(1), values.unsqueeze(1))
        return summed.reshape(-1)[: self.numel]
