"""`data.text.normalize` for many texts at once: ASCII in a kernel, other scripts one by one.

Everything after it works on the folded bytes: exact keys, tokens, signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from data.text import normalize

BATCH_CHARS = 4 << 20  # of text at once, so that memory stays bounded and what a batch becomes near the core


@dataclass(frozen=True)
class Folded:
    """Normalized texts in UTF-8, end to end: text i is `data[starts[i]:ends[i]]`."""

    data: np.ndarray  # uint8
    starts: np.ndarray  # int64
    ends: np.ndarray  # int64

    def __len__(self) -> int:
        return len(self.starts)


def fold(texts: Sequence[str]) -> Folded:
    """The bytes of `normalize(text)` for each text; half a surrogate pair becomes "?", as in exact keys."""
    ascii_ = np.fromiter(map(str.isascii, texts), bool, len(texts))
    pieces = [
        text.encode() if plain else normalize(text).encode("utf-8", "replace")
        for text, plain in zip(texts, ascii_.tolist(), strict=True)
    ]
    limits = np.concatenate([[0], np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))]).astype(np.int64)
    data, ends = np.frombuffer(bytearray(b"".join(pieces)), np.uint8), limits[1:].copy()
    _fold_ascii(data, limits, ascii_, ends)
    return Folded(data, limits[:-1], ends)


def exact_keys(folded: Folded) -> list[bytes | None]:
    """`data.dedup.exact.exact_key` of each text: 16 bytes, None for a text of nothing."""
    view = folded.data.data
    return [
        hashlib.blake2b(view[start:end], digest_size=16).digest() if end > start else None
        for start, end in zip(folded.starts.tolist(), folded.ends.tolist(), strict=True)
    ]


def batches(texts: Sequence[str], limit: int = BATCH_CHARS) -> Iterator[slice]:
    """Slices of neighbors that have up to `limit` characters together, or are one text."""
    start = size = 0
    for at, text in enumerate(texts):
        if size + len(text) > limit and at > start:
            yield slice(start, at)
            start, size = at, 0
        size += len(text)
    if start < len(texts):
        yield slice(start, len(texts))


@njit(cache=True, nogil=True)
def _fold_ascii(data, limits, ascii_, ends):  # type: ignore[no-untyped-def]
    """Lower case and single spaces, in place: what is written never overtakes what is read."""
    for row in range(len(ends)):
        if not ascii_[row]:
            continue
        to = limits[row]
        space = False
        for at in range(limits[row], limits[row + 1]):
            char = data[at]
            if char == 32 or 9 <= char <= 13 or 28 <= char <= 31:  # what str.split() takes for white space
                space = to > limits[row]
                continue
            if space:
                data[to] = 32
                to += 1
                space = False
            if 65 <= char <= 90:
                char += 32
            data[to] = char
            to += 1
        ends[row] = to
