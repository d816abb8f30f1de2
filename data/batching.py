"""Rows of unequal length into batches without waste: packing, length buckets, token budgets.

All of it is a pure function of its arguments (and of a seed where order is drawn), so a resumed run that knows its
position sees the very same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data.tokens import TokenShard

IGNORE = -100  # a target that no loss counts

WINDOW = 5_000  # lengths that are packed together, at least: with 1,000 mails rows of 256 are 98.8 % full, so 99.1 %
ROWS_OF_WINDOW = 200

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


@dataclass(frozen=True)
class Placed:
    """Where lengths go: `row[i]`, and `place[i]`, the item of the row at which length i begins."""

    row: Index
    place: Index
    rows: int


def place(lengths: Sequence[int] | Index, capacity: int, window: int | None = None) -> Placed:
    """Best-fit decreasing into rows of `capacity` items.

    Works in windows of the given order, which takes bounded time; without one given they hold at least some 200 rows,
    of which the few last ones are not full. Within a window the rows with the largest lengths come first. Lengths of 0
    go to row -1.
    Raises ValueError for a length above `capacity` (cut it first: `split_lengths`).
    """
    from data.packing import best_fit  # compiled code, which reading batches does without

    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and sizes.max() > capacity:
        raise ValueError(f"length {sizes.max()} at {int(sizes.argmax())} does not fit rows of {capacity}")
    if len(sizes) and sizes.min() < 0:
        raise ValueError(f"length {sizes.min()} at {int(sizes.argmin())} is below 0")
    row, begins = np.full(len(sizes), -1, np.int64), np.zeros(len(sizes), np.int64)
    real = np.flatnonzero(sizes)
    if window is None:
        window = max(WINDOW, int(ROWS_OF_WINDOW * capacity * len(real) / max(1, int(sizes.sum()))))
    own_row, own_begin = np.empty(len(real), np.int64), np.empty(len(real), np.int64)
    rows = int(best_fit(sizes[real], capacity, window, own_row, own_begin)) if len(real) else 0
    row[real], begins[real] = own_row, own_begin
    return Placed(row, begins, rows)


def pack(lengths: Sequence[int] | Index, capacity: int, window: int | None = None) -> list[list[int]]:
    """Indices of the lengths that share each row, in the order in which they stand in it (see `place`)."""
    placed = place(lengths, capacity, window)
    order = np.lexsort((placed.place, placed.row))
    order = order[placed.row[order] >= 0]
    edges = np.flatnonzero(np.diff(placed.row[order])) + 1
    return [part.tolist() for part in np.split(order, edges)] if len(order) else []


@dataclass(frozen=True)
class PackedRows:
    """Next-token training rows [R, T]: inputs, targets (IGNORE where a row is not full), document numbers.

    Each document gives one (input, target) pair per token after its first, each exactly once, and no target
    crosses a document boundary; where the shard has targets of its own, these count. `docs` counts documents within a
    row from 0; unused places have -1.
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

    The order of the rows is drawn too, so that long documents do not come first.

    What is packed are pairs of a token and its successor, so a document of n tokens takes n - 1 places and a
    document longer than a row goes on in the next one without losing a pair.
    """
    from data.packing import fill

    pairs = np.maximum(np.diff(shard.bounds) - 1, 0)
    rng = None if seed is None else np.random.default_rng(seed)
    order = np.arange(len(pairs)) if rng is None else rng.permutation(len(pairs))
    pieces = split_lengths(pairs[order], capacity)
    placed = place(pieces.length, capacity)
    if rng is not None:
        placed = replace(placed, row=rng.permutation(placed.rows)[placed.row])
    shape = (placed.rows, capacity)
    ids, docs = np.zeros(shape, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
    targets = np.full(shape, IGNORE, dtype=np.int32)
    source = shard.bounds[order[pieces.document]] + pieces.offset
    by = np.lexsort((placed.place, placed.row))
    tokens = np.asarray(shard.tokens)
    counted = tokens if shard.targets is None else np.asarray(shard.targets)
    fill(tokens, counted, source[by], pieces.length[by], placed.row[by], placed.place[by], ids, targets, docs)
    return PackedRows(ids, targets, docs)


def budget_batches(
    lengths: Sequence[int] | Index,
    max_tokens: int,
    seed: int | None = None,
    pool: int | None = None,
    cost: int | None = None,
) -> list[Index]:
    """Batches of similar length whose padded size (rows x longest) stays within `max_tokens`.

    Without a seed: all rows sorted by length, shortest first. With one: rows are drawn in a random order, sorted
    within pools of `pool` rows (default: all of them), and the order of the batches is drawn too. A row longer
    than the budget makes a batch of its own. Without a cost each batch takes what fits, which wastes least over many
    rows; of few, such as a step's, `cost` (what one more batch costs, in tokens) makes as many batches as give the
    least sum of padded tokens and costs.
    """
    from data.packing import cheapest, fullest  # compiled code, which reading batches does without

    sizes = np.asarray(lengths, dtype=np.int64)
    rng = None if seed is None else np.random.default_rng(seed)
    order = np.arange(len(sizes)) if rng is None else rng.permutation(len(sizes))
    step = len(order) if pool is None else pool
    batches: list[Index] = []
    for start in range(0, len(order), max(step, 1)):
        part = order[start : start + step]
        part = part[np.argsort(sizes[part], kind="stable")]
        ordered = sizes[part]
        batches += cut_at(part, fullest(ordered, max_tokens) if cost is None else cheapest(ordered, max_tokens, cost))
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def padded_batches(lengths: Sequence[int] | Index, max_tokens: int) -> list[Index]:
    """Plain padding: neighbors in the order in which they come, as many as fit when padded to their longest."""
    from data.packing import fullest

    sizes = np.asarray(lengths, dtype=np.int64)
    return cut_at(np.arange(len(sizes)), fullest(sizes, max_tokens))


def cut_at(rows: Index, ends: Index) -> list[Index]:
    """The rows in pieces that end at `ends`."""
    stops = ends.tolist()
    return [rows[begin:end] for begin, end in zip([0, *stops], stops, strict=False)]


def useful_share(lengths: Sequence[int] | Index, batches: Sequence[Index]) -> float:
    """Real tokens over padded ones."""
    sizes = np.asarray(lengths, dtype=np.int64)
    padded = sum(len(batch) * int(sizes[batch].max()) for batch in batches)
    return int(sizes.sum()) / padded if padded else 1.0


MICRO_BATCH_COST = 48  # tokens: what a micro-batch costs besides its places, on CPUs (30 to 55 measured at width 192)

# How a step's rows become micro-batches: lengths and the padded tokens of a micro-batch at most, to the rows of each.
# A policy is a pure function that gives every row once, so that runs are deterministic and go on from any step.
Policy = Callable[[Index, int], list[Index]]
POLICIES: dict[str, Policy] = {
    "buckets": partial(budget_batches, cost=MICRO_BATCH_COST),
    "padded": padded_batches,
}
