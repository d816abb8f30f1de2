"""What the search for near duplicates reads of a shard: once of all records, once more of those that met another.

Each function takes one task and writes one folder, which has its name when it is complete: a killed run goes on with
the next shard, and any engine may run them, here or elsewhere, with the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from data.dedup.fold import batches, exact_keys, fold
from data.dedup.minhash import band_keys, sign_shingles
from data.dedup.simhash import BUCKETS, count_features, simhash_tokens
from data.dedup.tokens import distinct, shingle_hashes, token_hashes
from data.shards import known_columns, opened

BATCH_ROWS = 2_000


class Protects(Protocol):
    """Says which differences forbid a merge: `data.dedup.protect.Protector`."""

    @property
    def config(self) -> object:
        """What it does, told by its `repr`."""

    @property
    def pairwise(self) -> bool:
        """Whether `veto` must be asked even of texts with the same fingerprint."""

    def fingerprint(self, text: str) -> int: ...

    def veto(self, a: str, b: str) -> str | None: ...


@dataclass(frozen=True)
class SignTask:
    """A shard, how its texts are signed, and the folder for it."""

    shard: Path
    out: Path
    shingle: int
    bands: int
    rows: int  # of a band
    weights: Path | None = None  # of SimHash's features; None: no fingerprints


@dataclass(frozen=True)
class CountTask:
    """A shard, and the folder for how often its features are there."""

    shard: Path
    out: Path


@dataclass(frozen=True)
class SpillTask:
    """A shard, which of its rows are involved (ascending), and the folder for what comparing them takes."""

    shard: Path
    out: Path
    shingle: int
    rows: np.ndarray
    protect: Protects | None


@dataclass(frozen=True)
class VetoTask:
    """Pairs of texts: [m, 3] of file, first byte and length each."""

    files: tuple[Path, ...]
    a: np.ndarray
    b: np.ndarray
    protect: Protects


def count_shard(task: CountTask) -> int:
    """Write `counts` [BUCKETS] of the shard's features; the number of its rows."""
    counts, rows = np.zeros(BUCKETS, np.int64), 0
    for _, texts in texts_of(task.shard):
        for part in batches(texts):
            count_features(token_hashes(texts[part]), counts)
        rows += len(texts)
    with_name_when_complete(task.out, lambda folder: save(folder, {"counts": counts}))
    return rows


def sign_shard(task: SignTask) -> int:
    """Write, a row a record: `key`, `digest` [n, 2] uint64, `length` [n], `keyed`, `signed` [n], `bands` [bands, n].

    `key` is the exact key (`keyed` tells which records have one) and `digest` the hash of the text as it stands, both
    as two big-endian halves; `signed` tells which have shingles, and so keys of bands. With weights of features also
    `simhash` [n] uint64. Returns the number of rows.
    """
    count = rows_of(task.shard)
    key, digest = np.zeros((count, 2), np.uint64), np.zeros((count, 2), np.uint64)
    length, keyed, signed = np.zeros(count, np.int64), np.zeros(count, bool), np.zeros(count, bool)
    bands, prints = np.zeros((task.bands, count), np.uint64), np.zeros(count, np.uint64)
    weights = None if task.weights is None else np.load(task.weights, allow_pickle=False)
    for first, texts in texts_of(task.shard):
        for part in batches(texts):
            some = texts[part]
            rows = slice(first + part.start, first + part.stop)
            folded = fold(some)
            keys = exact_keys(folded)
            keyed[rows] = [one is not None for one in keys]
            key[rows] = halves([one or bytes(16) for one in keys])
            digest[rows] = halves([digest_of(text) for text in some])
            length[rows] = [len(text) for text in some]
            tokens = token_hashes(folded)
            signatures = sign_shingles(shingle_hashes(tokens, task.shingle))
            signed[rows] = signatures.signed
            bands[:, rows] = band_keys(signatures.values, task.bands, task.rows)
            if weights is not None:
                prints[rows] = simhash_tokens(tokens, weights).values
    arrays = {"key": key, "digest": digest, "length": length, "keyed": keyed, "signed": signed, "bands": bands}
    if weights is not None:
        arrays["simhash"] = prints
    with_name_when_complete(task.out, lambda folder: save(folder, arrays))
    return count


def spill_shard(task: SpillTask) -> int:
    """Write, a row an involved record: `shingles.bin` (sets end to end) with `starts`, `prints` [n] uint64 (protected
    fingerprints), `texts.bin` (UTF-8) with `text_starts`. Without a protector all fingerprints are 0 and texts empty.

    Returns the number of the shard's rows, the others too.
    """
    sizes, prints, text_sizes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], [np.empty(0, np.int64)]

    def write(folder: Path) -> None:
        with open(folder / "shingles.bin", "wb") as shingles, open(folder / "texts.bin", "wb") as kept:
            for texts in involved_texts(task.shard, task.rows):
                for part in batches(texts):
                    found = distinct(shingle_hashes(token_hashes(texts[part]), task.shingle))
                    shingles.write(found.values.tobytes())
                    sizes.append(found.lengths)
                encoded = [text.encode("utf-8", "replace") if task.protect else b"" for text in texts]
                kept.write(b"".join(encoded))
                text_sizes.append(np.array([len(text) for text in encoded], np.int64))
                fingerprint = task.protect.fingerprint if task.protect else lambda _text: 0
                prints.append(np.array([fingerprint(text) for text in texts], np.uint64))
        arrays = {"starts": starts_of(np.concatenate(sizes)), "text_starts": starts_of(np.concatenate(text_sizes))}
        save(folder, {**arrays, "prints": np.concatenate(prints)})

    with_name_when_complete(task.out, write)
    return rows_of(task.shard)


def veto_pairs(task: VetoTask) -> list[str | None]:
    """The kind of protected difference of each pair, None for none."""
    files = [os.open(path, os.O_RDONLY) for path in task.files]
    try:
        read = [
            [os.pread(files[at], size, first).decode() for at, first, size in side.tolist()]
            for side in (task.a, task.b)
        ]
    finally:
        for file in files:
            os.close(file)
    return [task.protect.veto(a, b) for a, b in zip(*read, strict=True)]


def rows_of(shard: Path) -> int:
    with opened(shard) as file:
        return int(file.metadata.num_rows)


def texts_of(shard: Path) -> Iterator[tuple[int, list[str]]]:
    """The texts of a shard in batches, each with the number of its first row; a record without one has ""."""
    with opened(shard) as file:
        first = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=known_columns(file, ["text"], shard)):
            yield first, [text or "" for text in batch.column("text").to_pylist()]
            first += batch.num_rows


def involved_texts(shard: Path, rows: np.ndarray) -> Iterator[list[str]]:
    with opened(shard) as file:
        first = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=known_columns(file, ["text"], shard)):
            low, high = np.searchsorted(rows, [first, first + batch.num_rows])
            if high > low:
                yield batch.column("text").take(pa.array(rows[low:high] - first)).to_pylist()
            first += batch.num_rows


def digest_of(text: str) -> bytes:
    """What orders texts of one length: 16 bytes of the text as it stands."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def halves(digests: Sequence[bytes]) -> np.ndarray:
    """16 bytes each as [n, 2] uint64 that sort as the bytes do."""
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)


def starts_of(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def save(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def load(folder: Path, name: str) -> np.ndarray:
    """An array of a folder, mapped: only what is read of it takes memory."""
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def with_name_when_complete(out: Path, write: Callable[[Path], None]) -> None:
    beside = out.with_name(f".{out.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    os.replace(beside, out)
