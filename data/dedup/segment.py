"""A segment of the index on disk: arrays that are mapped into memory, never changed, and merged into larger ones.

Members are all records. Entries are the distinct normalized texts among them that have shingles, each stored where it
came first. For every band the entries are sorted by a key of band and protected fingerprint; beside it stands, for each
band key alone, the entry that represents it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two fingerprints become one
COPY_ITEMS = 1 << 22  # of an array at once
MAPPED_BYTES = 1 << 12  # below it an array is read: a mapping costs more, and nothing cannot be mapped


@dataclass(frozen=True)
class Part(ABC):
    """What a segment is made of; everything sorted follows from it. Keys are BLAKE2b's 128 bits as two halves."""

    lengths: Array  # [m] int64, characters of each member's text
    digests: Array  # [m, 2] uint64, of the text as it stands
    exact: Array  # [m, 2] uint64, of the normalized text; zeros for a text of nothing
    id_starts: Array  # [m + 1] int64
    id_bytes: Array  # uint8, UTF-8
    owners: Array  # [e] uint32, the member that an entry came with
    fingerprints: Array  # [e] uint64
    shingle_starts: Array  # [e + 1] int64
    shingles: Array  # uint64, each entry's distinct hashes, sorted
    text_starts: Array  # [e + 1] int64
    text_bytes: Array  # uint8, each text compressed by itself

    @property
    @abstractmethod
    def bands(self) -> int: ...

    @abstractmethod
    def band_keys(self, band: int) -> Array:
        """[e] uint64, in the order of the entries."""

    @abstractmethod
    def id_hashes(self) -> Array:
        """[m, 2] uint64, in the order of the members."""


@dataclass(frozen=True)
class Segment(Part):
    """A part that lies on the disk, with all that is sorted. `m` members, `e` entries, `b` bands."""

    id_keys: Array  # [m, 2] uint64 of the ids, sorted
    id_rows: Array  # [m] uint32, the members that they belong to
    exact_keys: Array  # [m, 2] uint64, sorted
    exact_rows: Array  # [m] uint32; of one normalized text the best member by content comes first
    keys: Array  # [b, e] uint64 of band and fingerprint, sorted
    rows: Array  # [b, e] uint32; of one key the best entry comes first
    star_starts: Array  # [b + 1] int64
    star_keys: Array  # uint64, each band's distinct keys, sorted
    star_rows: Array  # uint32, the best entry of each

    @property
    def members(self) -> int:
        return len(self.lengths)

    @property
    def entries(self) -> int:
        return len(self.owners)

    @property
    def bands(self) -> int:
        return len(self.keys)

    def band_keys(self, band: int) -> Array:
        keys = np.empty(self.entries, np.uint64)
        keys[self.rows[band]] = joint_keys(self.keys[band], self.fingerprints[self.rows[band]])
        return keys

    def id_hashes(self) -> Array:
        hashes = np.empty((self.members, 2), np.uint64)
        hashes[self.id_rows] = self.id_keys
        return hashes

    def star(self, band: int) -> tuple[Array, Array]:
        part = slice(self.star_starts[band], self.star_starts[band + 1])
        return self.star_keys[part], self.star_rows[part]

    def id(self, member: int) -> str:
        return text_at(self.id_bytes, self.id_starts, member)

    def rank(self, member: int) -> tuple[int, int, int, str]:
        """The order of members by content: longest, smallest hash, smallest id."""
        high, low = self.digests[member].tolist()
        return -int(self.lengths[member]), high, low, self.id(member)

    def packed_text(self, entry: int) -> bytes:
        return self.text_bytes[self.text_starts[entry] : self.text_starts[entry + 1]].tobytes()


def joint_keys(keys: Array, fingerprints: Array) -> Array:
    """Band keys to keys of band and fingerprint, and back: entries that share one may merge."""
    return keys ^ (fingerprints * SPREAD)


def write_segment(folder: Path, parts: Sequence[Part]) -> None:
    """Write parts one after another as one segment, holding little more than one band of it. `folder` must be new."""
    folder.mkdir()
    for name in ("lengths", "digests", "exact", "id_bytes", "fingerprints", "shingles", "text_bytes"):
        put(folder, name, [getattr(part, name) for part in parts])
    for name in ("id_starts", "shingle_starts", "text_starts"):
        put(folder, name, [joined_starts([getattr(part, name) for part in parts])])
    before = np.cumsum([0] + [len(part.lengths) for part in parts]).astype(np.uint32)
    put(folder, "owners", [part.owners + first for part, first in zip(parts, before)])
    sort_members(folder, np.concatenate([part.id_hashes() for part in parts]))
    sort_entries(folder, parts[0].bands, lambda band: np.concatenate([part.band_keys(band) for part in parts]))
    sync(folder)


def open_segment(folder: Path) -> Segment:
    """Raises OSError or ValueError where a file is missing or damaged."""
    return Segment(**{field.name: get(folder, field.name) for field in fields(Segment)})


def sort_members(folder: Path, hashes: Array) -> None:
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    put(folder, "id_keys", [hashes[order]])
    put(folder, "id_rows", [order.astype(np.uint32)])

    exact, lengths, digests = (get(folder, name) for name in ("exact", "lengths", "digests"))
    order = np.lexsort((digests[:, 1], digests[:, 0], -lengths, exact[:, 1], exact[:, 0]))
    by_ids(folder, digests, order)
    put(folder, "exact_keys", [exact[order]])
    put(folder, "exact_rows", [order.astype(np.uint32)])


def by_ids(folder: Path, digests: Array, order: Array) -> None:
    """Put members of the very same text, who follow each other in `order`, into the order of their ids."""
    same = np.all(digests[order[1:]] == digests[order[:-1]], axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    id_starts, id_bytes = get(folder, "id_starts"), get(folder, "id_bytes")
    for start, end in edges.reshape(-1, 2).tolist():
        run = order[start : end + 1].tolist()
        order[start : end + 1] = sorted(run, key=lambda member: text_at(id_bytes, id_starts, member))


def sort_entries(folder: Path, bands: int, band_keys: Callable[[int], Array]) -> None:
    """The sorted keys of each band. The best entry of a bucket has most shingles, then the smallest key of its text."""
    owners, fingerprints, starts = (get(folder, name) for name in ("owners", "fingerprints", "shingle_starts"))
    exact = get(folder, "exact")[owners]
    best = np.lexsort((exact[:, 1], exact[:, 0], -np.diff(starts)))
    star_keys, star_rows = [], []
    shape = (bands, len(owners))
    with npy(folder, "rows", np.uint32, shape) as put_rows, npy(folder, "keys", np.uint64, shape) as put_keys:
        for band in range(bands):
            keys = band_keys(band)
            joint = joint_keys(keys, fingerprints)
            rows = best[np.argsort(joint[best], kind="stable")]
            put_rows(rows.astype(np.uint32))
            put_keys(joint[rows])
            distinct, first = np.unique(keys[best], return_index=True)
            star_keys.append(distinct)
            star_rows.append(best[first].astype(np.uint32))
    put(folder, "star_starts", [np.cumsum([0] + [len(keys) for keys in star_keys])])
    put(folder, "star_keys", star_keys)
    put(folder, "star_rows", star_rows)


def text_at(data: Array, starts: Array, row: int) -> str:
    return data[starts[row] : starts[row + 1]].tobytes().decode("utf-8", "surrogatepass")


def joined_starts(parts: Sequence[Array]) -> Array:
    """Starts of ragged arrays that are put one after another."""
    ends = np.cumsum([0] + [int(starts[-1]) for starts in parts])
    moved = [starts[1:] + end for starts, end in zip(parts, ends)]
    return np.concatenate([np.zeros(1, np.int64), *moved])


def put(folder: Path, name: str, arrays: Sequence[Array]) -> None:
    """Arrays one after another as one .npy file; mapped ones pass through in pieces."""
    shape = (sum(len(array) for array in arrays), *arrays[0].shape[1:])
    with npy(folder, name, arrays[0].dtype, shape) as write:
        for array in arrays:
            for start in range(0, len(array), COPY_ITEMS):
                write(array[start : start + COPY_ITEMS])


@contextmanager
def npy(folder: Path, name: str, dtype: Any, shape: tuple[int, ...]) -> Iterator[Callable[[Array], object]]:
    """A .npy file that is written piece by piece."""
    with (folder / f"{name}.npy").open("wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda piece: file.write(np.ascontiguousarray(piece, dtype).data)


def get(folder: Path, name: str) -> Array:
    path = folder / f"{name}.npy"
    mapped = np.load(path, mmap_mode="r" if path.stat().st_size > MAPPED_BYTES else None, allow_pickle=False)
    return np.asarray(mapped)


def sync(folder: Path) -> None:
    """Everything of a folder is on the disk before anything names it."""
    for path in [*sorted(folder.iterdir()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
