"""Rows of unequal length into batches without waste: packing, length buckets, token budgets.

All of it is a pure function of its arguments (and of a seed where order is drawn), so a resumed run that knows its
position sees the very same batches.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.tokens import TokenShard

IGNORE = -100  # a target that no loss counts

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Pieces:
    """Documents cut to at most a row's length: piece i is `length[i]` items of `document[i]` from `offset[i]`."""

    document: Index
    offset: Index
    length: Index


def split_lengths(lengths: Sequence[int] | Index, capacity: int) -> Pieces:
    """Cut every length above `capacity` into full pieces and a rest; lengths of 0 give no piece."""
    whole = np.asarray(lengths, dtype=np.int64)
    count = -(-whole // capacity)
    document = np.repeat(np.arange(len(whole)), count)
    first = np.repeat(np.cumsum(count) - count, count)
    offset = (np.arange(len(document)) - first) * capacity
    return Pieces(document, offset, np.minimum(capacity, whole[document] - offset))


def pack(lengths: Sequence[int] | Index, capacity: int, window: int = 1000) -> list[list[int]]:
    """Best-fit decreasing: indices of the lengths that share each row of `capacity`.

    Works in windows of the given order, so that packing a shuffled corpus keeps it shuffled and takes bounded
    time. Raises ValueError for a length above `capacity` (cut it first: `split_lengths`).
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and sizes.max() > capacity:
        raise ValueError(f"length {sizes.max()} at {int(sizes.argmax())} does not fit rows of {capacity}")
    rows: list[list[int]] = []
    for start in range(0, len(sizes), window):
        part = sizes[start : start + window]
        free: list[tuple[int, int]] = []  # (free space, row), sorted
        for local in np.argsort(-part, kind="stable"):
            size = int(part[local])
            at = bisect_left(free, (size, 0))
            if at == len(free):
                rows.append([])
                space, row = capacity, len(rows) - 1
            else:
                space, row = free.pop(at)
            rows[row].append(start + int(local))
            insort(free, (space - size, row))
    return rows


@dataclass(frozen=True)
class PackedRows:
    """Next-token training rows [R, T]: inputs, targets (IGNORE where a row is not full), document numbers.

    Each document gives one (input, target) pair per token after its first, each exactly once, and no target
    crosses a document boundary. `docs` counts documents within a row from 0; unused places have -1.
    """

    ids: NDArray[np.int32]
    targets: NDArray[np.int32]
    docs: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        return int((self.targets != IGNORE).sum())


def pack_documents(shard: TokenShard, capacity: int, seed: int | None) -> PackedRows:
    """Pack all documents of a shard in an order drawn from `seed` (None: as they are) into rows of `capacity`.

    What is packed are pairs of a token and its successor, so a document of n tokens takes n - 1 places and a
    document longer than a row goes on in the next one without losing a pair.
    """
    pairs = np.maximum(np.diff(shard.bounds) - 1, 0)
    order = np.arange(len(pairs)) if seed is None else np.random.default_rng(seed).permutation(len(pairs))
    pieces = split_lengths(pairs[order], capacity)
    packed = pack(pieces.length, capacity)
    shape = (len(packed), capacity)
    ids, docs = np.zeros(shape, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
    targets = np.full(shape, IGNORE, dtype=np.int32)
    begins = shard.bounds[order[pieces.document]] + pieces.offset
    for row, members in enumerate(packed):
        at = 0
        for number, piece in enumerate(members):
            begin, size = int(begins[piece]), int(pieces.length[piece])
            ids[row, at : at + size] = shard.tokens[begin : begin + size]
            targets[row, at : at + size] = shard.tokens[begin + 1 : begin + size + 1]
            docs[row, at : at + size] = number
            at += size
    return PackedRows(ids, targets, docs)


def budget_batches(
    lengths: Sequence[int] | Index, max_tokens: int, seed: int | None = None, pool: int | None = None
) -> list[Index]:
    """Batches of similar length whose padded size (rows x longest) stays within `max_tokens`.

    Without a seed: all rows sorted by length, shortest first. With one: rows are drawn in a random order, sorted
    within pools of `pool` rows (default: all of them), and the order of the batches is drawn too. A row longer
    than the budget makes a batch of its own.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    rng = np.random.default_rng(seed)
    order = np.arange(len(sizes)) if seed is None else rng.permutation(len(sizes))
    step = len(order) if pool is None else pool
    batches: list[Index] = []
    for start in range(0, len(order), max(step, 1)):
        part = order[start : start + step]
        part = part[np.argsort(sizes[part], kind="stable")]
        begin = 0
        for end in range(1, len(part) + 1):
            if end == len(part) or (end + 1 - begin) * sizes[part[end]] > max_tokens:
                batches.append(part[begin:end])
                begin = end
    if seed is not None:
        batches = [batches[i] for i in rng.permutation(len(batches))]
    return batches
