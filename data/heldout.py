"""What a model is judged on must not be among what it learns from: which texts share words with held-out ones.

A text has something of a held-out one when a run of 13 words is in both (the measure of GPT-3's appendix C,
arXiv:2005.14165), of a shorter held-out text all of its words in a row; texts of less than 5 words are held out only
as a whole. Runs that the task's own train texts have too (forms, footers) give nothing away and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from data.dedup.fold import exact_keys, fold
from data.dedup.tokens import Ragged, shingle_hashes, token_hashes

RUN = 13  # words
LEAST = 5
BATCH = 512


class HeldOut:
    """Fingerprints of held-out texts, without those that known texts share.

    Takes 8 bytes a word of the held-out texts, however many texts are known.
    """

    def __init__(self, texts: Iterable[str], known: Iterable[str] = ()) -> None:
        runs: list[np.ndarray] = [np.empty(0, np.uint64)]
        self.sizes: list[int] = []
        self.whole: set[bytes] = set()
        for batch in batched(texts):
            folded = fold(batch)
            tokens = token_hashes(folded)
            counts = tokens.lengths
            for size in range(LEAST, RUN + 1):
                rows = np.flatnonzero(np.minimum(counts, RUN) == size)
                if len(rows):
                    runs += [shingle_hashes(row_of(tokens, row), size).values for row in rows.tolist()]
                    self.sizes = sorted({*self.sizes, size})
            keys = exact_keys(folded)
            self.whole.update(key for key, count in zip(keys, counts.tolist(), strict=True) if key and count < LEAST)
        self.runs = np.unique(np.concatenate(runs))
        shared = np.zeros(len(self.runs), bool)
        for batch in batched(known):
            folded = fold(batch)
            for values in self.runs_of(token_hashes(folded)):
                at, there = self.places(values.values)
                shared[at[there]] = True
            self.whole.difference_update(exact_keys(folded))
        self.runs = self.runs[~shared]

    def judge(self, texts: Sequence[str]) -> tuple[list[bytes], list[bool]]:
        """Of each text the key that equal texts share, and whether it has something held out."""
        folded = fold(texts)
        keys = [key or b"" for key in exact_keys(folded)]
        leaks = np.array([key in self.whole for key in keys], dtype=bool)
        for found in self.runs_of(token_hashes(folded)):
            _, there = self.places(found.values)
            before = np.concatenate([[0], np.cumsum(there)])
            leaks |= before[found.starts[1:]] > before[found.starts[:-1]]
        return keys, leaks.tolist()

    def runs_of(self, tokens: Ragged) -> Iterator[Ragged]:
        """The hashes of all runs of each size that is held out; those of different sizes never meet."""
        return (shingle_hashes(tokens, size) for size in self.sizes)

    def places(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each value would stand among the runs, and whether it does."""
        if not len(self.runs):
            return np.zeros(len(values), np.int64), np.zeros(len(values), bool)
        at = np.minimum(np.searchsorted(self.runs, values), len(self.runs) - 1)
        return at, self.runs[at] == values


def row_of(tokens: Ragged, row: int) -> Ragged:
    values = tokens[row]
    return Ragged(values, np.array([0, len(values)]))


def batched(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
