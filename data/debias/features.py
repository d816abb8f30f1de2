"""Hashed TF-IDF of words and word pairs, and the numbers that give a record its place whatever the input's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, vstack
from sklearn.feature_extraction.text import HashingVectorizer

from data.quality.scripts import TOKEN
from data.text import normalize

BATCH = 5_000
RARE = 3  # texts; what fewer have tells nothing that could be checked


def digests(texts: Sequence[str], seed: int) -> NDArray[np.uint64]:
    """A number [N] of each text that follows from its content and the seed alone: equal texts stay together."""
    salt = seed.to_bytes(16, "little", signed=True)
    return np.array(
        [int.from_bytes(blake2b(_bytes(text), digest_size=8, salt=salt).digest(), "little") for text in texts],
        dtype=np.uint64,
    )


class Features:
    """Columns and their inverse document frequency, learned from the texts given first."""

    def __init__(self, buckets: int, max_chars: int) -> None:
        self.max_chars = max_chars
        self.hashing = HashingVectorizer(
            n_features=buckets, analyzer=_grams, alternate_sign=False, norm=None, dtype=np.float32
        )
        self.columns: NDArray[np.int64] = np.arange(0)
        self.idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def fit(self, texts: Sequence[str]) -> csr_matrix:
        """Learn from these texts; returns their features [N, D]."""
        counts = vstack(list(self._counts(texts)), format="csr")
        seen = np.asarray((counts > 0).sum(axis=0)).ravel()
        rare = min(RARE, max(1, len(texts) // 100))
        self.columns = np.flatnonzero(seen >= rare)
        if not len(self.columns):
            self.columns = np.arange(1)
        self.idf = (np.log((1 + len(texts)) / (1 + seen[self.columns])) + 1).astype(np.float32)
        return self._weighted(counts)

    def of(self, texts: Sequence[str]) -> csr_matrix:
        """Features [N, D] of texts, those learned from or others."""
        return vstack([self._weighted(counts) for counts in self._counts(texts)], format="csr")

    def _counts(self, texts: Sequence[str]) -> Iterator[csr_matrix]:
        if not len(texts):
            yield csr_matrix((0, self.hashing.n_features), dtype=np.float32)
        for start in range(0, len(texts), BATCH):
            yield self.hashing.transform([text[: self.max_chars] for text in texts[start : start + BATCH]])

    def _weighted(self, counts: csr_matrix) -> csr_matrix:
        """(1 + log tf) x idf, each row of length 1 (or 0, without a known word)."""
        chosen = counts[:, self.columns].astype(np.float32)
        chosen.data = np.log(chosen.data) + 1
        weighted = csr_matrix(chosen @ diags(self.idf))
        length = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
        return csr_matrix(diags(1 / np.maximum(length, 1e-12)) @ weighted, dtype=np.float32)


def _grams(text: str) -> list[str]:
    words = TOKEN.findall(normalize(text))
    return words + [f"{a} {b}" for a, b in pairwise(words)]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
