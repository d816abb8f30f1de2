"""Texts as 64-bit token hashes: what every near-duplicate kernel starts from.

A token is a word (a run of word characters) or one character of a script without spaces, of the text as
`data.text.normalize` leaves it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import njit

from data.dedup.fold import Folded, fold
from data.quality.scripts import UNSPACED

OTHER, WORD, SINGLE = 0, 1, 2  # what a character is: no part of a token, part of a word, a token of its own

ONE, TWO, THREE, SIX = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(6)
SHIFT = np.uint64(33)
MIX_1, MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)  # MurmurHash3's 64-bit finalizer
FNV_BASIS, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, code points as its units


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths end to end: row i is `values[starts[i]:starts[i + 1]]`."""

    values: np.ndarray  # uint64
    starts: np.ndarray  # int64, one more than rows

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)


def token_hashes(texts: Sequence[str] | Folded) -> Ragged:
    """The 64-bit hashes of each text's tokens, in order. The lowest bit says which are single characters."""
    folded = texts if isinstance(texts, Folded) else fold(texts)
    values = np.empty(len(folded.data) // 2 + len(folded) + 1, np.uint64)  # a token for two bytes, and one at each end
    starts = np.zeros(len(folded) + 1, np.int64)
    _hash_tokens(folded.data, folded.starts, folded.ends, _kinds(), values, starts)
    return Ragged(values[: starts[-1]].copy(), starts)


def shingle_hashes(tokens: Ragged, size: int) -> Ragged:
    """The 64-bit hash of every run of `size` tokens, in order and with repeats; a row of fewer tokens has none."""
    counts = np.maximum(tokens.lengths - size + 1, 0)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    values = np.empty(starts[-1], np.uint64)
    _hash_shingles(tokens.values, tokens.starts, size, starts, values)
    return Ragged(values, starts)


def distinct(rows: Ragged) -> Ragged:
    """Each row sorted, without repeats: a set that two rows are compared by."""
    values = rows.values.copy()
    for start, end in zip(rows.starts[:-1].tolist(), rows.starts[1:].tolist(), strict=True):
        values[start:end].sort()
    keep = np.ones(len(values), bool)
    keep[1:] = values[1:] != values[:-1]
    keep[rows.starts[:-1][rows.lengths > 0]] = True
    before = np.concatenate([[0], np.cumsum(keep)])
    return Ragged(values[keep], before[rows.starts])


@njit(cache=True, nogil=True)
def mix(value: np.uint64) -> np.uint64:
    """A bijection in which every bit of the input reaches every bit of the output."""
    value ^= value >> SHIFT
    value *= MIX_1
    value ^= value >> SHIFT
    value *= MIX_2
    return value ^ (value >> SHIFT)


@cache
def _kinds() -> np.ndarray:
    """OTHER, WORD or SINGLE for each code point, as the regular expressions of the quality rules have it."""
    every = "".join(map(chr, range(0x110000)))
    kinds = np.full(len(every), OTHER, np.uint8)
    for pattern, kind in ((r"\w+", WORD), (f"[{UNSPACED}]+", SINGLE)):
        for run in re.finditer(pattern, every):
            kinds[run.start() : run.end()] = kind
    return kinds


@njit(cache=True, nogil=True)
def _hash_tokens(data, begins, ends, kinds, values, starts):  # type: ignore[no-untyped-def]
    count = np.uint64(0)
    for row in range(len(ends)):
        at, end = np.uint64(begins[row]), np.uint64(ends[row])  # unsigned: numba checks others for negative places
        state, within = FNV_BASIS, False
        while at < end:
            char = np.uint64(data[at])
            if char < 0x80:
                at += ONE
            else:
                more = ONE if char < 0xE0 else TWO if char < 0xF0 else THREE
                char &= np.uint64(0x3F) >> more
                for _ in range(more):
                    at += ONE
                    char = char << SIX | np.uint64(data[at] & 0x3F)
                at += ONE
            kind = kinds[char]
            if kind == WORD:
                state = (state ^ char) * FNV_PRIME
                within = True
                continue
            if within:
                values[count] = mix(state) & ~ONE
                count += ONE
                state, within = FNV_BASIS, False
            if kind == SINGLE:
                values[count] = mix((FNV_BASIS ^ char) * FNV_PRIME) | ONE
                count += ONE
        if within:
            values[count] = mix(state) & ~ONE
            count += ONE
        starts[row + 1] = count


@njit(cache=True, nogil=True)
def _hash_shingles(tokens, token_starts, size, starts, values):  # type: ignore[no-untyped-def]
    """A polynomial of the token hashes, mixed: the order of the tokens counts."""
    for row in range(len(starts) - 1):
        for at in range(starts[row + 1] - starts[row]):
            first = token_starts[row] + at
            state = np.uint64(size)
            for step in range(size):
                state = state * MIX_2 + tokens[first + step]
            values[starts[row] + at] = mix(state)
