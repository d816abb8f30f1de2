"""New records as a part of a segment: members for all of them, entries for the texts that nobody had before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import zstandard

from data.dedup.seen import Key, Reading, hashes_of, keys_of, known_texts
from data.dedup.segment import Array, Part, Segment
from data.dedup.sign import starts_of


@dataclass(frozen=True)
class FreshPart(Part):
    """Held in memory."""

    _band_keys: Array  # [b, e]
    _id_hashes: Array  # [m, 2]

    @property
    def bands(self) -> int:
        return len(self._band_keys)

    def band_keys(self, band: int) -> Array:
        return self._band_keys[band]

    def id_hashes(self) -> Array:
        return self._id_hashes


def fresh_part(reading: Reading, ids: Sequence[str], segments: Sequence[Segment]) -> FreshPart:
    """Members of all records, entries of the texts that no segment and no earlier record of the reading holds."""
    fresh = reading.signed[~known_texts(reading, segments)[reading.signed]]
    first: dict[Key, int] = {}
    for key, at in zip(keys_of(reading.exact[fresh]), fresh.tolist(), strict=True):
        first.setdefault(key, at)
    entries = list(first.values())
    encoded = [row_id.encode("utf-8", "surrogatepass") for row_id in ids]
    compress = zstandard.ZstdCompressor(3).compress
    texts = [compress(reading.texts[at].encode("utf-8", "replace")) for at in entries]
    shingles = [reading.shingles[at] for at in entries]
    return FreshPart(
        lengths=np.array([len(text) for text in reading.texts], np.int64),
        digests=hashes_of(reading.texts),
        exact=reading.exact,
        id_starts=starts_of(np.array([len(one) for one in encoded], np.int64)),
        id_bytes=np.frombuffer(b"".join(encoded), np.uint8),
        owners=np.array(entries, np.uint32),
        fingerprints=reading.prints[entries],
        shingle_starts=starts_of(np.array([len(one) for one in shingles], np.int64)),
        shingles=np.concatenate([np.empty(0, np.uint64), *shingles]),
        text_starts=starts_of(np.array([len(one) for one in texts], np.int64)),
        text_bytes=np.frombuffer(b"".join(texts), np.uint8),
        _band_keys=reading.bands[:, entries],
        _id_hashes=hashes_of(ids),
    )
