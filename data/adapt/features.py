"""Texts as numbers: tokens as 64-bit hashes, and rows of hashed n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import xxhash
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from data.quality.scripts import TOKEN
from data.text import normalize

Hashes = NDArray[np.uint64]

BUCKETS = 1 << 16  # the first half for hashed words, the second for pairs of words; DSIR uses 10,000 for both
# A text beyond these says its domain long before its end, and one record of megabytes must not stop a run.
MAX_CHARS = 10_000
MAX_TOKENS = 2_000
MEMO = 1_000_000  # distinct words remembered at once
MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
SHIFT = np.uint64(29)


class Words(dict[str, int]):
    """The hash of a word, remembered: words come again, and a look-up is cheaper than a hash."""

    def __missing__(self, word: str) -> int:
        if len(self) >= MEMO:
            self.clear()
        found = self[word] = xxhash.xxh3_64_intdigest(word.encode("utf-8", "replace"))
        return found


class Tokens:
    """Tokens of several texts end to end: text i has `hashes[starts[i]:starts[i + 1]]`."""

    def __init__(self, hashes: Hashes, starts: NDArray[np.int64]) -> None:
        self.hashes, self.starts = hashes, starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """Of each token the text that it stands in."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def first(self) -> NDArray[np.bool_]:
        """Whether a token begins its text."""
        mask = np.zeros(len(self.hashes), bool)
        begins = self.starts[:-1][np.diff(self.starts) > 0]
        mask[begins] = True
        return mask


def tokens_of(texts: Sequence[str], memo: Words) -> Tokens:
    """Words of the normalized texts (single characters of scripts without spaces), at most MAX_TOKENS a text."""
    found = [TOKEN.findall(normalize(text[:MAX_CHARS]))[:MAX_TOKENS] for text in texts]
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(words) for words in found], out=starts[1:])
    hashes = np.fromiter(map(memo.__getitem__, chain.from_iterable(found)), np.uint64, int(starts[-1]))
    return Tokens(hashes, starts)


def joined(left: Hashes, right: Hashes) -> Hashes:
    """One hash for an ordered pair; order counts."""
    with np.errstate(over="ignore"):
        mixed = (left * MIX[0]) ^ (right * MIX[1] + (left >> SHIFT))
        return (mixed ^ (mixed >> SHIFT)) * MIX[1]


def ngram_rows(tokens: Tokens, buckets: int = BUCKETS) -> csr_matrix:
    """float32 [texts, buckets]: 1 + log(count) of hashed words and of pairs of neighbors.

    The logarithm because words are bursty: the tenth time that a word stands in a text says little more than the first.
    """
    rows, words = tokens.rows, tokens.hashes
    inside = ~tokens.first[1:]
    pairs = joined(words[:-1], words[1:])[inside]
    half = np.uint64(buckets // 2)
    columns = np.concatenate([words % half, pairs % half + half])
    places = np.concatenate([rows, rows[1:][inside]])
    counts = np.ones(len(columns), np.float32)
    found = csr_matrix((counts, (places, columns.astype(np.int64))), shape=(len(tokens), buckets))  # sums what collides
    found.sum_duplicates()
    found.data = 1 + np.log(found.data)
    return found
