"""What the search for near duplicates looks for."""

from __future__ import annotations

from dataclasses import dataclass

from data.dedup.bands import Bands, choose_bands
from data.dedup.minhash import SHINGLE


@dataclass(frozen=True)
class FindConfig:
    """`recall` of the pairs at `jaccard` is promised; verified pairs below `floor` are not stored; up to `max_bucket`
    records that share a bucket are all compared with each other, in a larger one with that many leaders at most.

    With `simhash` pairs of fingerprints at Hamming distance 3 or less are candidates too. That takes one more pass, for
    the frequencies of words, and adds little to what the bands find: it is for texts that share rare words and no runs.
    """

    jaccard: float = 0.8
    recall: float = 0.99
    floor: float = 0.7
    max_bucket: int = 64
    shingle: int = SHINGLE  # tokens
    simhash: bool = False

    @property
    def bands(self) -> Bands:
        return choose_bands(self.jaccard, self.recall)
