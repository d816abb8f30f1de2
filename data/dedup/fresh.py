"""New records as a part of a segment: members for all of them, entries for the texts that nobody had before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.dedup.seen import Key, Reading, hashes_of, keys_of, packed, place_of
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
    seen: set[Key] = set()
    entries = []
    keys = keys_of(reading.exact)
    for at in reading.signed.tolist():
        if keys[at] not in seen and all(place_of(segment.exact_keys, keys[at]) is None for segment in segments):
            seen.add(keys[at])
            entries.append(at)
    encoded = [row_id.encode("utf-8", "surrogatepass") for row_id in ids]
    texts = [packed(reading.texts[at]) for at in entries]
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
