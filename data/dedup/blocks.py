"""All pairs of 64-bit fingerprints at a small Hamming distance, by blocks (Manku, Jain, Das Sarma 2007).

Fingerprints that differ in at most k bits agree in at least m - k of m blocks. For each choice of m - k blocks those
bits go to the front, the fingerprints are sorted, and compared where the front is equal: nothing is missed. For a
distance of 3, four blocks mean four sorts and keys of 16 bits, five mean ten sorts and keys of 25 bits, six mean twenty
sorts and keys of 32 bits: more blocks pay where shorter keys no longer tell much apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from numba import njit

DISTANCE = 3
ENOUGH = ((3_000_000, 1), (30_000_000, 2))  # up to so many fingerprints, so many blocks more than the distance
FOUND = 1 << 18  # pairs of a batch

FIVES, THREES, NIBBLES, BYTES = (
    np.uint64(0x5555555555555555),
    np.uint64(0x3333333333333333),
    np.uint64(0x0F0F0F0F0F0F0F0F),
    np.uint64(0x0101010101010101),
)


def near_pairs(
    prints: np.ndarray, distance: int = DISTANCE, blocks: int | None = None, limit: int | None = None
) -> np.ndarray:
    """Pairs of rows [m, 2] int64, each once, the smaller row first, sorted.

    All pairs of different fingerprints at that distance or less, each between the first rows that have them, and every
    further row of a fingerprint with the first: what is equal a thousand times makes a star, not half a million pairs.
    With a `limit` a fingerprint takes part as the smaller one in that many pairs of a choice of blocks at most, so that
    ten thousand near each other are no more than `limit` times as many pairs.
    """
    order = np.argsort(prints, kind="stable")
    new = np.ones(len(prints), bool)
    new[1:] = prints[order[1:]] != prints[order[:-1]]
    first, values = order[new], prints[order[new]]
    copies = np.stack([np.repeat(first, np.diff(np.append(np.flatnonzero(new), len(prints)))), order], axis=1)[~new]
    pairs = first[_join(values, distance, blocks or fitting_blocks(len(values), distance), limit or len(values))]
    every = np.concatenate([copies, np.sort(pairs, axis=1)])
    return every[np.lexsort((every[:, 1], every[:, 0]))]


def fitting_blocks(count: int, distance: int = DISTANCE) -> int:
    """How many blocks cost least for so many fingerprints."""
    return distance + next((more for limit, more in ENOUGH if count <= limit), 3)


def _join(values: np.ndarray, distance: int, blocks: int, limit: int) -> np.ndarray:
    """Pairs of places [m, 2] of sorted distinct values."""
    if not 0 < distance < blocks <= 64:
        raise ValueError(f"need 0 < distance < blocks <= 64, got {distance} and {blocks}")
    edges = np.linspace(0, 64, blocks + 1).round().astype(int).tolist()
    spans = list(pairwise(edges))
    found = [np.empty((0, 2), np.int64)]
    for chosen in combinations(range(blocks), blocks - distance):
        order = [*chosen, *(block for block in range(blocks) if block not in chosen)]
        turned = _arranged(values, [spans[block] for block in order])
        turned.sort()
        # a pair belongs to the first choice that it agrees in: in what is left out before the choice's last, it differs
        earlier = [block for block in range(chosen[-1]) if block not in chosen]
        differ = np.array([_mask_of(block, order, spans) for block in earlier], np.uint64)
        rest = 64 - sum(spans[block][1] - spans[block][0] for block in chosen)
        back = [_span_of(block, order, spans) for block in reversed(range(blocks))]
        batch, at = np.empty((FOUND, 2), np.uint64), (0, 1, 0)
        while at[0] < len(turned):
            count, *at = _near(turned, np.uint64(rest), differ, distance, limit, *at, batch)
            found.append(np.searchsorted(values, _arranged(batch[:count], back)))
    return np.concatenate(found)


def _arranged(values: np.ndarray, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """The bits of each value in another order: spans (low, high) of them, the first one to the front."""
    turned = np.zeros_like(values)
    for low, high in spans:
        turned <<= np.uint64(high - low)
        turned |= (values >> np.uint64(low)) & np.uint64((1 << (high - low)) - 1)
    return turned


def _span_of(block: int, order: Sequence[int], spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Where a block of the arranged values lies."""
    behind = order[order.index(block) + 1 :]
    low = sum(spans[other][1] - spans[other][0] for other in behind)
    return low, low + spans[block][1] - spans[block][0]


def _mask_of(block: int, order: Sequence[int], spans: Sequence[tuple[int, int]]) -> int:
    low, high = _span_of(block, order, spans)
    return ((1 << (high - low)) - 1) << low


@njit(cache=True, nogil=True)
def _near(turned, rest, differ, distance, limit, i, j, taken, batch):  # type: ignore[no-untyped-def]
    """Pairs from (i, j) on, of which i took some, until the batch is full: how many, and where to go on."""
    count = 0
    while i < len(turned):
        while j < len(turned) and taken < limit:
            bits = turned[i] ^ turned[j]
            if rest < 64 and bits >> rest:
                break
            bits -= (bits >> np.uint64(1)) & FIVES
            bits = (bits & THREES) + ((bits >> np.uint64(2)) & THREES)
            bits = (bits + (bits >> np.uint64(4))) & NIBBLES
            if (bits * BYTES) >> np.uint64(56) <= distance:
                belongs = True
                for mask in differ:
                    belongs &= (turned[i] ^ turned[j]) & mask != 0
                if belongs:
                    if count == len(batch):
                        return count, i, j, taken
                    batch[count, 0], batch[count, 1] = turned[i], turned[j]
                    count += 1
                    taken += 1
            j += 1
        i += 1
        j, taken = i + 1, 0
    return count, i, j, taken
