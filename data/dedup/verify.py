"""Candidates verified by exact Jaccard, in batches, each pair once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.dedup.candidates import spanning_forest
from data.dedup.jaccard import jaccard
from data.dedup.sign import load

BATCH = 1 << 23  # candidates that are held until those met in several bands are taken out


@dataclass(frozen=True)
class Sets:
    """What involved records are compared by, by place: shingles, protected fingerprints, and where the texts lie."""

    values: np.ndarray  # uint64, mapped from a file: set i is values[begins[i]:ends[i]]
    begins: np.ndarray
    ends: np.ndarray
    prints: np.ndarray  # uint64
    text_files: tuple[Path, ...]
    text_spans: np.ndarray  # [n, 3]: file, first byte, bytes

    @classmethod
    def of(cls, folders: Sequence[Path], rows: np.ndarray, joined: Path) -> Sets:
        """From what `spill_shard` wrote: `folders` hold the involved records by ascending row, `rows` has their places.

        The shingles of all shards are joined in one file.
        """
        begins, ends, prints, spans, offset = [], [], [], [], 0
        with open(joined, "wb") as target:
            for at, folder in enumerate(folders):
                with open(folder / "shingles.bin", "rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
                starts = load(folder, "starts")
                begins.append(starts[:-1] + offset)
                ends.append(starts[1:] + offset)
                offset += int(starts[-1])
                prints.append(load(folder, "prints"))
                texts = load(folder, "text_starts")
                spans.append(np.stack([np.full(len(texts) - 1, at), texts[:-1], np.diff(texts)], axis=1))
        places = np.argsort(rows)

        def placed(parts: list[np.ndarray]) -> np.ndarray:
            values = np.concatenate(parts) if parts else np.empty(0, np.int64)
            result = np.empty_like(values)
            result[places] = values
            return result

        values = np.memmap(joined, np.uint64, "r") if offset else np.empty(0, np.uint64)
        files = tuple(folder / "texts.bin" for folder in folders)
        return cls(values, placed(begins), placed(ends), placed(prints), files, placed(spans))


class Verified(NamedTuple):
    """Pairs of places, a < b, and their exact similarity."""

    a: np.ndarray
    b: np.ndarray
    similarity: np.ndarray

    def only(self, which: np.ndarray) -> Verified:
        return Verified(self.a[which], self.b[which], self.similarity[which])


def joined(*parts: Verified) -> Verified:
    return Verified(*map(np.concatenate, zip(*parts, strict=True)))


def strongest_first(pairs: Verified) -> np.ndarray:
    """The order of falling similarity, then of content."""
    return np.lexsort([pairs.b, pairs.a, -pairs.similarity])


class Pile:
    """Candidates come in, verified pairs at `floor` or above go out.

    With `forest` only those stay that connect, at their similarity, what stronger ones leave apart: of ten thousand
    siblings as many pairs, however many buckets they share.
    """

    def __init__(self, sets: Sets, floor: float, forest: bool = False) -> None:
        self.sets, self.floor, self.forest = sets, floor, forest
        self.seen = 0  # pairs verified, those that fell included
        self.count = max(1, len(sets.begins))
        self._waiting: list[np.ndarray] = []
        self._found = [Verified(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))]

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        """Candidates a[i] < b[i]; repeats are welcome."""
        self._waiting.append(a * self.count + b)
        if sum(map(len, self._waiting)) >= BATCH:
            self._verify()

    def take(self, pairs: Verified) -> None:
        """Pairs that somebody else has verified."""
        self.seen += len(pairs.a)
        self._found.append(pairs)

    def verified(self) -> Verified:
        """All of them so far, each once, in order of content."""
        self._verify()
        found = joined(*self._found)
        _, first = np.unique(found.a * self.count + found.b, return_index=True)
        self._found = [found.only(first)]
        return self._found[0]

    def _verify(self) -> None:
        if not self._waiting:
            return
        codes = np.unique(np.concatenate(self._waiting))
        self._waiting = []
        self.seen += len(codes)
        a, b = codes // self.count, codes % self.count
        similarity = jaccard(self.sets.values, self.sets.begins, self.sets.ends, a, b)
        self._found.append(Verified(a, b, similarity).only(similarity >= self.floor))
        if self.forest:
            every = joined(*self._found)
            self._found = [every.only(spanning_forest(self.count, every.a, every.b, strongest_first(every)))]
