"""MinHash-128 signatures by datasketch 2.0's scheme, bit for bit, at the speed of the memory they are read from.

The scheme is datasketch's `affine32` with its default seed: the upper 32 bits of a shingle's hash go once through
MurmurHash3's 32-bit finalizer, then permutation k maps them to a[k] * h + b[k] modulo 2^32 with a[k] odd, and the
signature is the minimum of each permutation over the shingles. A text without shingles has no signature: two of them
are not similar (datasketch would say 1.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from data.dedup.fold import batches
from data.dedup.tokens import FNV_PRIME, SHIFT, Ragged, mix, shingle_hashes, token_hashes
from data.errors import DaymillError

PERMUTATIONS = 128
SEED = 1
SHINGLE = 5  # tokens
EMPTY = np.uint32(0xFFFFFFFF)  # datasketch's start value
# Everything that two signatures must share to be comparable. `version` counts changes of tokens and of their hashes.
SCHEME = {"scheme": "affine32", "permutations": str(PERMUTATIONS), "seed": str(SEED), "version": "1"}

FIN_1, FIN_2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
SHIFT_13, SHIFT_16 = np.uint32(13), np.uint32(16)


class Signatures(NamedTuple):
    """`values` [n, 128] uint32, and `signed` [n]: which rows have a signature."""

    values: np.ndarray
    signed: np.ndarray


def sign(texts: Sequence[str], shingle: int = SHINGLE) -> Signatures:
    """Signatures of texts, in batches of bounded memory."""
    values = np.empty((len(texts), PERMUTATIONS), np.uint32)
    signed = np.zeros(len(texts), bool)
    for part in batches(texts):
        values[part], signed[part] = sign_shingles(shingle_hashes(token_hashes(texts[part]), shingle))
    return Signatures(values, signed)


def sign_shingles(shingles: Ragged) -> Signatures:
    """Signatures of rows of shingle hashes; repeats and order change nothing."""
    values = np.empty((len(shingles), PERMUTATIONS), np.uint32)
    _minima(shingles.values, shingles.starts, *permutations(), values)
    return Signatures(values, shingles.lengths > 0)


def datasketch_hash(shingle: int) -> int:
    """The `hashfunc` that makes datasketch.MinHash(num_perm=128, seed=1) give the same signature of shingle hashes."""
    return int(shingle) >> 32


def band_keys(signatures: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """[bands, n] uint64: rows of the same key share `rows` consecutive minima (another chance is 2^-64)."""
    if bands * rows > signatures.shape[1]:
        raise ValueError(f"{bands} bands of {rows} rows need {bands * rows} of {signatures.shape[1]} permutations")
    keys = np.empty((bands, len(signatures)), np.uint64)
    _hash_bands(np.ascontiguousarray(signatures), rows, keys)
    return keys


@cache
def permutations() -> tuple[np.ndarray, np.ndarray]:
    """a and b, drawn as datasketch 2.0 draws them."""
    random = np.random.RandomState(SEED)
    a = random.randint(0, 1 << 31, PERMUTATIONS, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return a, random.randint(0, 1 << 32, PERMUTATIONS, dtype=np.uint32)


def write_signatures(path: Path, signatures: Signatures, shingle: int = SHINGLE) -> None:
    """One file that says how its signatures were made."""
    arrays = {"values": np.ascontiguousarray(signatures.values), "signed": signatures.signed}
    save_file(arrays, path, metadata={**SCHEME, "shingle": str(shingle)})


def read_signatures(path: Path, shingle: int = SHINGLE) -> Signatures:
    """Raises DaymillError for a file that is none, or whose signatures were made otherwise (they never compare)."""
    try:
        with safe_open(path, "numpy") as file:
            found, expected = file.metadata() or {}, {**SCHEME, "shingle": str(shingle)}
            other = [
                f"{key} {found.get(key)} instead of {value}"
                for key, value in expected.items()
                if found.get(key) != value
            ]
            if other:
                raise DaymillError(f"{path}: signatures of another kind ({', '.join(other)}); sign the texts again")
            return Signatures(file.get_tensor("values"), file.get_tensor("signed"))
    except (OSError, SafetensorError) as error:
        raise DaymillError(f"{path} is no readable signature file ({error}); sign the texts again") from None


@njit(cache=True, nogil=True)
def _minima(shingles, starts, a, b, values):  # type: ignore[no-untyped-def]
    for row in range(len(starts) - 1):
        least = values[row]
        least[:] = EMPTY
        for at in range(starts[row], starts[row + 1]):
            h = np.uint32(shingles[at] >> np.uint64(32))
            h = np.uint32((h ^ (h >> SHIFT_16)) * FIN_1)  # numba widens products to 64 bits
            h = np.uint32((h ^ (h >> SHIFT_13)) * FIN_2)
            h ^= h >> SHIFT_16
            for k in range(PERMUTATIONS):
                least[k] = min(least[k], np.uint32(a[k] * h + b[k]))


@njit(cache=True, nogil=True)
def _hash_bands(signatures, rows, keys):  # type: ignore[no-untyped-def]
    for row in range(signatures.shape[0]):
        for band in range(keys.shape[0]):
            state = np.uint64(band)
            for step in range(rows):
                state = (state ^ np.uint64(signatures[row, band * rows + step])) * FNV_PRIME
                state ^= state >> SHIFT
            keys[band, row] = mix(state)
