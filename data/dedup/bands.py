"""Bands chosen from a promise of recall, and what a run with them will take, said before it starts.

Two texts of Jaccard similarity s share a minimum with probability s, a band of r minima with s^r, and at least one of b
bands with 1 - (1 - s^r)^b (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from data.dedup.minhash import PERMUTATIONS
from data.errors import DaymillError

# A band costs a key and a sort a record. What else costs is to verify pairs that are not similar enough; how many there
# are depends on the texts. Texts half as similar as the bar asks are the usual trouble, and a hundred of them a record
# make trouble felt.
NEIGHBORS = 100

ROW_BYTES = 150  # of the run, a record: keys, digests, content order and the band that is being sorted
PROCESS_BYTES = 190 << 20  # of a process: interpreter, pyarrow, numba and a batch of records
SHINGLE_BYTES = 8
CHAR_BYTES = 1.1


@dataclass(frozen=True)
class Bands:
    """`count` bands of `rows` minima each."""

    count: int
    rows: int

    def recall(self, similarity: float) -> float:
        """The chance that two texts of that similarity become candidates."""
        return float(1.0 - (1.0 - similarity**self.rows) ** self.count)


def choose_bands(jaccard: float, recall: float, permutations: int = PERMUTATIONS) -> Bands:
    """The cheapest bands that find a pair of similarity `jaccard` with probability `recall` or more.

    Raises DaymillError where no bands of that many permutations keep the promise.
    """
    if not (0.0 < jaccard <= 1.0 and 0.0 < recall < 1.0):
        raise DaymillError(f"bands need 0 < jaccard <= 1 and 0 < recall < 1, got {jaccard} and {recall}")
    kept = [bands for bands in _every(permutations) if bands.recall(jaccard) >= recall]
    if not kept:
        best = max((bands.recall(jaccard) for bands in _every(permutations)), default=0.0)
        raise DaymillError(
            f"{permutations} permutations cannot find {recall:.2%} of the pairs with Jaccard {jaccard} "
            f"(at most {best:.2%}); promise less, or look for more similar pairs"
        )
    return min(kept, key=lambda bands: (_cost(bands, jaccard), bands.count))


@dataclass(frozen=True)
class Plan:
    """What a run will do and take. `share` is the assumed share of records that have a near duplicate."""

    bands: Bands
    jaccard: float
    documents: int
    words: float  # a record, on average
    share: float
    workers: int

    @property
    def candidates(self) -> int:
        """Pairs to verify because they are near: each record of the share with a partner."""
        return round(self.documents * self.share)

    @property
    def unlike(self) -> int:
        """Pairs more, if each of these records has NEIGHBORS that are half as similar as the bar asks."""
        return round(self.candidates * NEIGHBORS * self.bands.recall(self.jaccard / 2))

    @property
    def memory_bytes(self) -> int:
        """At the peak, of the whole process tree: either all processes read shards, or one verifies all candidates.

        Shingles of involved records, which are mapped from disk, are counted in full.
        """
        reading = PROCESS_BYTES * (1 if self.workers == 1 else self.workers + 1)
        return round(max(reading, PROCESS_BYTES + self.documents * ROW_BYTES + self._shingles()))

    @property
    def disk_bytes(self) -> int:
        """Of the work folder: band keys of all records, shingles and texts of the involved ones."""
        keys = self.documents * (8 * self.bands.count + 40)
        return round(keys + 2 * self._shingles() + self._involved() * self.words * 6 * CHAR_BYTES)

    def lines(self) -> list[str]:
        """Ready to print."""
        found = ", ".join(f"{self.bands.recall(at):.2%} at {at:g}" for at in _around(self.jaccard))
        return [
            f"{self.bands.count} bands x {self.bands.rows} rows; pairs found by Jaccard: {found}",
            f"{self.documents:,} records, {self.candidates:,} candidates if {self.share:.0%} have a near duplicate",
            f"and {self.unlike:,} more if each of those has {NEIGHBORS} neighbors half as similar",
            f"about {self.memory_bytes / 2**20:,.0f} MiB of memory with {self.workers} "
            f"worker{'s' if self.workers > 1 else ''}, {self.disk_bytes / 2**20:,.0f} MiB of work files",
        ]

    def _involved(self) -> float:
        return min(1.0, 2 * self.share) * self.documents  # a near duplicate and the record it is near to

    def _shingles(self) -> float:
        return self._involved() * self.words * SHINGLE_BYTES


def _every(permutations: int) -> Iterable[Bands]:
    for rows in range(1, permutations + 1):
        for count in range(1, permutations // rows + 1):
            yield Bands(count, rows)


def _cost(bands: Bands, jaccard: float) -> float:
    return bands.count + NEIGHBORS * bands.recall(jaccard / 2)


def _around(jaccard: float) -> list[float]:
    return sorted({round(jaccard - 0.1, 3), jaccard, round((1 + jaccard) / 2, 3)})
