"""Runs of characters and words as numbers, by compiled code: what a learned quality model looks at.

Six kinds: 1 to 4 characters, 1 and 2 words (tokens). Case is folded, digits are one digit, white space is one space. An
item's number is its hash: items of all kinds share one table, and that two of them meet there costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data.quality import scripts
from data.quality.hashing import extended
from data.quality.scripts import table

BITS = 18
PLACES = 1 << BITS
ORDERS = 6
HEAD, TAIL = 3_000, 1_000  # characters of a longer text that are looked at
QUARTERS = 4
# Familiarity of a text's items: how many of the sound texts have them.
FAMILIARITY = (
    *(f"familiar_{kind}" for kind in ("1", "2", "3", "4", "word", "pair")),  # mean log share of the texts
    *(f"unseen_{kind}" for kind in ("3", "4", "word", "pair")),  # share of the items that no text has
    "strangest_quarter",  # the least mean of runs of 4 characters in a quarter of the text
    "familiar_end",  # mean of the runs of 4 characters at the end
    "familiar_last_word",
)
END_ITEMS = 4

ALNUM, SPACE, DIGIT, ONE_TOKEN, MARK = scripts.ALNUM, scripts.SPACE, scripts.DIGIT, scripts.ONE_TOKEN, scripts.MARK
EDGE, BLANK, FIGURE, UNDERSCORE = np.int64(0x110000), np.int64(32), np.int64(48), 95


class Batch(NamedTuple):
    """Texts as code points, and where each begins and the last one ends."""

    codes: NDArray[np.uint32]
    offsets: NDArray[np.int64]


def batch_of(texts: Sequence[str]) -> Batch:
    """The texts, longer ones cut to their heads and tails."""
    read = [text if len(text) <= HEAD + TAIL else f"{text[:HEAD]} {text[-TAIL:]}" for text in map(str.strip, texts)]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in read])]).astype(np.int64)
    return Batch(np.frombuffer("".join(read).encode("utf-32-le", "surrogatepass"), np.uint32), offsets)


def document_counts(batch: Batch) -> NDArray[np.int32]:
    """How many of the texts have each item, by its number."""
    flags, folded, _ = table()
    return count(batch.codes, batch.offsets, flags, folded)


def looks(batch: Batch, shares: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """FAMILIARITY of each text by the log shares of the items, and the sum of their weights over the root of their
    number: [texts, FAMILIARITY + 1]."""
    flags, folded, _ = table()
    return look(batch.codes, batch.offsets, flags, folded, shares, weights)


def rows(batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The items of each text as a CSR matrix: ends, numbers and weights (count over the root of the text's items)."""
    flags, folded, _ = table()
    return emit(batch.codes, batch.offsets, flags, folded)


@njit(cache=True, nogil=True)
def items(row, flags, folded, plain, tokens, found, ends):  # type: ignore[no-untyped-def]
    """Fill the numbers of a text's items, kind after kind, and where each kind ends."""
    plain[0] = EDGE
    length, words = 1, 0
    inside = False
    for code in row:
        flag = flags[code] if code < flags.size else 0
        char = np.int64(folded[code] if code < folded.size else code)
        if flag & SPACE:
            char = BLANK
        elif flag & DIGIT:
            char = FIGURE
        if flag & ONE_TOKEN or flag & ALNUM or code == UNDERSCORE or (inside and flag & MARK):
            if not inside or flag & ONE_TOKEN:
                tokens[words] = np.uint64(0)
                words += 1
            tokens[words - 1] = extended(tokens[words - 1], char)
            inside = flag & ONE_TOKEN == 0
        else:
            inside = False
        if char != BLANK or plain[length - 1] != BLANK:
            plain[length] = char
            length += 1
    plain[length] = EDGE
    length += 1
    total = 0
    shift, factor, last = np.uint64(64 - BITS), np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
    for n in range(1, 5):
        for at in range(length - n + 1):
            key = np.uint64(n)
            for step in range(n):
                key = key * factor + np.uint64(plain[at + step])
            found[total] = np.int32((key * last) >> shift)
            total += 1
        ends[n] = total
    for at in range(words):
        found[total] = np.int32((tokens[at] * last) >> shift)
        total += 1
    ends[5] = total
    for at in range(words - 1):
        found[total] = np.int32(extended(tokens[at], tokens[at + 1]) >> shift)
        total += 1
    ends[6] = total
    return words


@njit(cache=True, nogil=True)
def room(offsets):  # type: ignore[no-untyped-def]
    """Characters of the longest text."""
    longest = 0
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    return longest + 2


@njit(cache=True, nogil=True)
def count(codes, offsets, flags, folded):  # type: ignore[no-untyped-def]
    longest = room(offsets)
    plain, tokens = np.empty(longest, np.int64), np.empty(longest, np.uint64)
    found, ends = np.empty(6 * longest, np.int32), np.zeros(ORDERS + 1, np.int64)
    counts, last = np.zeros(PLACES, np.int32), np.full(PLACES, -1, np.int32)
    for text in range(offsets.size - 1):
        items(codes[offsets[text] : offsets[text + 1]], flags, folded, plain, tokens, found, ends)
        for item in found[: ends[ORDERS]]:
            counts[item] += last[item] != text
            last[item] = text
    return counts


@njit(cache=True, nogil=True)
def look(codes, offsets, flags, folded, shares, weights):  # type: ignore[no-untyped-def]
    longest = room(offsets)
    plain, tokens = np.empty(longest, np.int64), np.empty(longest, np.uint64)
    found, ends = np.empty(6 * longest, np.int32), np.zeros(ORDERS + 1, np.int64)
    out = np.zeros((offsets.size - 1, len(FAMILIARITY) + 1), np.float32)
    least = shares.min()
    for text in range(offsets.size - 1):
        words = items(codes[offsets[text] : offsets[text + 1]], flags, folded, plain, tokens, found, ends)
        total = 0.0
        for order in range(ORDERS):
            begin, end = ends[order], ends[order + 1]
            familiar, unseen = 0.0, 0
            for at in range(begin, end):
                share = shares[found[at]]
                familiar += share
                unseen += share <= least
                total += weights[found[at]]
            if end > begin:
                out[text, order] = familiar / (end - begin)
                if order >= 2:
                    out[text, ORDERS + order - 2] = unseen / (end - begin)
            else:
                out[text, order] = least
        begin, end = ends[3], ends[4]
        strangest = 0.0
        for quarter in range(QUARTERS):
            low, high = begin + (end - begin) * quarter // QUARTERS, begin + (end - begin) * (quarter + 1) // QUARTERS
            if high > low:
                familiar = 0.0
                for at in range(low, high):
                    familiar += shares[found[at]]
                strangest = min(strangest, familiar / (high - low))
        out[text, ORDERS + 4] = strangest
        last = max(begin, end - END_ITEMS)
        for at in range(last, end):
            out[text, ORDERS + 5] += shares[found[at]] / (end - last)
        out[text, ORDERS + 6] = shares[found[ends[5] - 1]] if words else least
        out[text, ORDERS + 7] = total / np.sqrt(max(1, ends[ORDERS]))
    return out


@njit(cache=True, nogil=True)
def emit(codes, offsets, flags, folded):  # type: ignore[no-untyped-def]
    longest = room(offsets)
    plain, tokens = np.empty(longest, np.int64), np.empty(longest, np.uint64)
    found, ends = np.empty(6 * longest, np.int32), np.zeros(ORDERS + 1, np.int64)
    stretches = np.zeros(offsets.size, np.int64)
    most = 6 * (codes.size + 2 * offsets.size)
    numbers, values = np.empty(most, np.int32), np.empty(most, np.float32)
    place, total = np.full(PLACES, -1, np.int64), 0
    for text in range(offsets.size - 1):
        items(codes[offsets[text] : offsets[text + 1]], flags, folded, plain, tokens, found, ends)
        begin, weight = total, 1 / np.sqrt(max(1, ends[ORDERS]))
        for item in found[: ends[ORDERS]]:
            at = place[item]
            if at < begin:
                at = place[item] = total
                numbers[total], values[total] = item, 0.0
                total += 1
            values[at] += weight
        stretches[text + 1] = total
    return stretches, numbers[:total].copy(), values[:total].copy()
