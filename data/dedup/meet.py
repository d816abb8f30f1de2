"""Which records meet: exact copies reduced to the best one, the rest looked up band by band.

Nothing is held for long but a few numbers a record; band keys are read from the shards' folders one band at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.dedup.candidates import shared
from data.dedup.sign import load
from data.shards import known_columns, opened


@dataclass(frozen=True)
class Signed:
    """The shards and what `sign_shard` wrote of each; a row is the number of a record over all shards in order."""

    shards: Sequence[Path]
    folders: Sequence[Path]

    def column(self, name: str) -> np.ndarray:
        return np.concatenate([load(folder, name) for folder in self.folders])

    def band(self, band: int, rows: np.ndarray) -> np.ndarray:
        """One band's keys of some rows."""
        return np.concatenate([load(folder, "bands")[band] for folder in self.folders])[rows]

    def ids(self, rows: np.ndarray) -> list[str]:
        """The ids of ascending rows."""
        found: list[str] = []
        first = 0
        for shard in self.shards:
            with opened(shard) as file:
                count = file.metadata.num_rows
                low, high = np.searchsorted(rows, [first, first + count])
                if high > low:
                    column = file.read(columns=known_columns(file, ["id"], shard)).column("id")
                    found += column.take(pa.array(rows[low:high] - first)).to_pylist()
                first += count
        return found


def best_of_equals(signed: Signed) -> np.ndarray:
    """Ascending rows that no better record of the same normalized text stands for, and that have shingles.

    Better is longer, then of the smaller hash, then of the smaller id. Texts of nothing are nobody's equals.
    """
    rows = np.flatnonzero(signed.column("keyed"))
    key = signed.column("key")[rows]
    doubled = shared(key[:, 0])
    tied, key = rows[doubled], key[doubled]
    length, digest = signed.column("length")[tied], signed.column("digest")[tied]
    content = [digest[:, 1], digest[:, 0], -length, key[:, 1], key[:, 0]]
    order = np.lexsort(content)
    alike = np.ones(max(0, len(tied) - 1), bool)
    for values in content:
        alike &= values[order[1:]] == values[order[:-1]]
    last_resort = np.zeros(len(tied), np.int64)
    if alike.any():  # equal to the last byte, so that only the id is left to tell them apart
        asked = np.zeros(len(tied), bool)
        asked[order[1:][alike]] = asked[order[:-1][alike]] = True
        ids = signed.ids(tied[asked])
        rank = {row_id: place for place, row_id in enumerate(sorted(set(ids)))}
        last_resort[asked] = [rank[row_id] for row_id in ids]
        order = np.lexsort([last_resort, *content])
    first = np.ones(len(tied), bool)
    first[1:] = (key[order[1:]] != key[order[:-1]]).any(axis=1)
    best = np.concatenate([rows[~doubled], tied[order[first]]])
    return np.sort(best[signed.column("signed")[best]])


def in_order_of_content(signed: Signed, rows: np.ndarray) -> np.ndarray:
    """Rows of different texts, the one that would survive first."""
    length, digest = signed.column("length")[rows], signed.column("digest")[rows]
    return rows[np.lexsort([digest[:, 1], digest[:, 0], -length])]


def involved(signed: Signed, rows: np.ndarray, bands: int) -> np.ndarray:
    """Those of `rows` that share a bucket with another one, in any band."""
    meets = np.zeros(len(rows), bool)
    for band in range(bands):
        meets |= shared(signed.band(band, rows))
    return rows[meets]
