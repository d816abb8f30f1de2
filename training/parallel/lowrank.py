"""Gradients compressed to a low rank: PowerSGD (Vogels et al. 2019), one step of power iteration a training step.

A matrix M [n, m] travels as P = M Q' [n, r], which all ranks sum and make orthonormal, and Q = P' M [r, m], which they
sum as well; P Q is what they take for the sum of M. Q is where the next step begins. (The paper's Q is [m, r]; lying
like this both products are five to fifteen times as fast on CPU.)

The algebra is that of torch's DDP hook, and a test compares them. The hook itself does not serve: it aborts on gloo
with more than one bucket, since it begins second sums in whatever order the first ones arrive; it keys its memory by
bucket; and a skipped step changes what it remembers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.parallel.feedback import Late
from training.parallel.reducer import Bucket, Sent
from training.parallel.wire import Wire


class LowRank:
    """PowerSGD as an exchange of buckets. P and Q are all-reduced: any number of ranks saves the same share."""

    def __init__(self, wire: Wire, late: Late, saved: float = 0.8) -> None:
        self.wire, self.late, self.saved = wire, late, saved
        self.qs: dict[str, Tensor] = {}  # where the next step begins, by parameter name; the same on every rank
        self.pending: dict[str, Tensor] = {}

    def begin(self, bucket: Bucket, flat: Tensor) -> Sent:
        pieces = bucket.pieces(flat)
        self.late.add_to(bucket.names, pieces)
        ranks = dict(zip(bucket.names, ranks_of([piece.shape for piece in pieces], self.saved), strict=True))
        low, whole = {}, []
        for name, piece in zip(bucket.names, pieces, strict=True):
            if ranks[name]:
                low[name] = piece.view(len(piece), -1)
                self.start(name, low[name], ranks[name])
            else:
                whole.append(piece)
        return Halves(self, low, whole, flat)

    def start(self, name: str, matrix: Tensor, rank: int) -> None:
        """Draw the Q [r, m] of a parameter from its name where there is none yet."""
        if name not in self.qs:
            seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1
            drawn = torch.Generator().manual_seed(seed)
            q = torch.randn(rank, matrix.shape[1], generator=drawn, dtype=torch.float64)
            self.qs[name] = q.to(matrix.dtype)

    def settle(self, updated: bool) -> None:
        if updated:
            self.qs |= self.pending
        self.pending = {}

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.qs)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.qs = {name: q.clone() for name, q in tensors.items()}


class Halves:
    """A bucket under way: first the Ps and what is summed as it is, then the Qs."""

    def __init__(self, owner: LowRank, low: Mapping[str, Tensor], whole: Sequence[Tensor], flat: Tensor) -> None:
        """`low`, `whole`: views into `flat`, which becomes the sum."""
        self.owner, self.low, self.whole, self.flat = owner, low, whole, flat
        self.ps = [matrix @ owner.qs[name].T for name, matrix in low.items()]
        self.send([*self.ps, *whole])

    def send(self, parts: Sequence[Tensor]) -> None:
        self.shapes = [part.shape for part in parts]
        self.message = torch.cat([part.reshape(-1) for part in parts])
        self.waiting = self.owner.wire.add_up(self.message)

    def arrived(self) -> list[Tensor]:
        """The parts that were sent, now summed over ranks."""
        self.waiting.wait()
        parts = self.message.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def proceed(self) -> None:
        summed = self.arrived()
        for mine, sums in zip(self.whole, summed[len(self.ps) :], strict=True):
            mine.copy_(sums)
        self.ps = [orthonormal(p) for p in summed[: len(self.ps)]]
        if self.ps:
            self.send([p.T @ matrix for matrix, p in zip(self.low.values(), self.ps, strict=True)])

    def wait(self) -> Tensor:
        if self.ps:
            ranks = self.owner.wire.ranks
            for (name, matrix), p, q in zip(self.low.items(), self.ps, self.arrived(), strict=True):
                self.owner.late.keep(name, torch.addmm(matrix, p, q, alpha=-1 / ranks))
                self.owner.pending[name] = q / ranks
                torch.mm(p, q, out=matrix)
        return self.flat


def ranks_of(shapes: Sequence[torch.Size], saved: float) -> list[int]:
    """The rank of each of a bucket's matrices that together save this share of its numbers; 0: it is summed whole, as
    every vector is, and what is too small to be worth a rank."""
    numel = [shape.numel() for shape in shapes]
    narrow = [(shape[0], count // shape[0]) if len(shape) > 1 else (1, count) for shape, count in zip(shapes, numel)]
    fits = [(1 - saved) * n * m >= n + m for n, m in narrow]
    low = sum(count for count, fit in zip(numel, fits, strict=True) if fit)
    share = max(0.0, (1 - saved) * sum(numel) - (sum(numel) - low)) / low if low else 0.0
    return [
        max(1, min(n, m, int(share * n * m / (n + m)))) if fit else 0 for (n, m), fit in zip(narrow, fits, strict=True)
    ]


def orthonormal(p: Tensor) -> Tensor:
    """A basis [n, r] of the columns of P: some basis where they are zeros, NaN where they are not finite."""
    wide = p if p.element_size() >= 4 else p.float()  # LAPACK knows no 16-bit numbers
    return torch.linalg.qr(wide).Q.to(p.dtype)
