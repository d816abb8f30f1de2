"""SimHash-64: one fingerprint a text, near in Hamming distance where texts share their weighty words (Charikar 2002).

Features are words, and pairs of neighboring characters in scripts without spaces (a single character says too little).
A feature weighs the logarithm of its rarity: with every word alike, one changed word in 200 is found in a third of the
cases, with rare words weighing more in three quarters. A text of fewer tokens than a shingle has no fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from data.dedup.fold import batches
from data.dedup.minhash import SHINGLE
from data.dedup.tokens import MIX_1, ONE, Ragged, mix, token_hashes

BUCKETS = 1 << 18  # of the table of frequencies; two words that share one weigh as the more frequent
UNIT = 16  # weights are whole numbers, sixteenths of a natural logarithm: sums are exact whatever their order


class Fingerprints(NamedTuple):
    """`values` [n] uint64, and `signed` [n]: which texts have one."""

    values: np.ndarray
    signed: np.ndarray


def simhash(texts: Sequence[str], weights: np.ndarray | None = None) -> Fingerprints:
    """Fingerprints of texts, in batches of bounded memory. `weights` come from `rarity`; None: all features alike."""
    values, signed = np.empty(len(texts), np.uint64), np.zeros(len(texts), bool)
    for part in batches(texts):
        values[part], signed[part] = simhash_tokens(token_hashes(texts[part]), weights)
    return Fingerprints(values, signed)


def simhash_tokens(tokens: Ragged, weights: np.ndarray | None = None) -> Fingerprints:
    """The same of token hashes."""
    values = np.empty(len(tokens), np.uint64)
    _fingerprints(tokens.values, tokens.starts, np.ones(1, np.int32) if weights is None else weights, values)
    return Fingerprints(values, tokens.lengths >= SHINGLE)


def count_features(tokens: Ragged, counts: np.ndarray) -> None:
    """Add the features of some texts to a table of BUCKETS int64; tables of several shards add up to that of all."""
    _count(tokens.values, tokens.starts, counts)


def rarity(counts: np.ndarray) -> np.ndarray:
    """Weights [BUCKETS] int32 by bucket of a feature: the logarithm of all features over those that fell there."""
    total = max(1, int(counts.sum()))
    return np.maximum(1, np.rint(UNIT * np.log((total + 1) / (counts + 1)))).astype(np.int32)


@njit(cache=True, nogil=True)
def _feature(tokens, starts, row, at):  # type: ignore[no-untyped-def]
    """A word, or a character together with the one before it."""
    token = tokens[at]
    if token & ONE and at > starts[row] and tokens[at - 1] & ONE:
        return mix(tokens[at - 1] * MIX_1 + token)
    return token


@njit(cache=True, nogil=True)
def _count(tokens, starts, counts):  # type: ignore[no-untyped-def]
    buckets = np.uint64(len(counts))
    for row in range(len(starts) - 1):
        for at in range(starts[row], starts[row + 1]):
            counts[(_feature(tokens, starts, row, at) >> ONE) % buckets] += 1


@njit(cache=True, nogil=True)
def _fingerprints(tokens, starts, weights, prints):  # type: ignore[no-untyped-def]
    buckets = np.uint64(len(weights))
    sums = np.empty(64, np.int64)
    for row in range(len(starts) - 1):
        sums[:] = 0
        for at in range(starts[row], starts[row + 1]):
            feature = _feature(tokens, starts, row, at)
            weight = np.int64(weights[(feature >> ONE) % buckets])
            spread = mix(feature)  # the lowest bit of a token tells its kind, and would be the same in all
            for bit in range(64):
                sums[bit] += weight if (spread >> np.uint64(bit)) & ONE else -weight
        value = np.uint64(0)
        for bit in range(64):
            if sums[bit] > 0:
                value |= ONE << np.uint64(bit)
        prints[row] = value
