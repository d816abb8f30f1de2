"""Signatures bit for bit as datasketch's, none for texts of nothing, and files that refuse to mix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.minhash import (
    Signatures,
    band_keys,
    datasketch_hash,
    permutations,
    read_signatures,
    sign,
    sign_shingles,
    write_signatures,
)
from data.dedup.tokens import Ragged, shingle_hashes, token_hashes
from data.errors import DaymillError

TEXTS = [
    "the quick brown fox jumps over the lazy dog and runs",
    "",
    "too few words here",
    "spam " * 300,
    "今天天气很好我们去公园散步吧",
    "!!! ... ???",
]


def theirs(shingles: list[int]) -> np.ndarray:
    sketch = MinHash(num_perm=128, seed=1, hashfunc=datasketch_hash)
    sketch.update_batch(shingles)
    return sketch.hashvalues


@settings(deadline=None)  # the first call loads a kernel
@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=8), max_size=4))
def test_signatures_are_those_of_datasketch(rows: list[list[int]]) -> None:
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    signed = sign_shingles(Ragged(np.array([value for row in rows for value in row], np.uint64), starts))
    for row, values in enumerate(rows):
        assert np.array_equal(signed.values[row], theirs(values))
        assert signed.signed[row] == bool(values)


def test_texts_are_signed_as_datasketch_signs_their_shingles() -> None:
    shingles, signed = shingle_hashes(token_hashes(TEXTS), 5), sign(TEXTS)
    for row in range(len(TEXTS)):
        assert np.array_equal(signed.values[row], theirs(shingles[row].tolist()))


def test_permutations_are_those_of_datasketch() -> None:
    assert np.array_equal(np.array(permutations()), MinHash(num_perm=128, seed=1).permutations)


def test_texts_without_shingles_have_no_signature() -> None:
    assert sign(TEXTS).signed.tolist() == [True, False, False, True, True, False]


def test_signing_keeps_no_state() -> None:
    alone = sign(TEXTS[:1]).values
    sign(TEXTS)
    assert np.array_equal(sign(TEXTS[:1]).values, alone)


def test_bands_of_equal_minima_have_equal_keys() -> None:
    signatures = np.arange(256, dtype=np.uint32).reshape(2, 128)
    signatures[1, 6:12] = signatures[0, 6:12]
    keys = band_keys(signatures, 16, 6)
    assert (keys[:, 0] == keys[:, 1]).tolist() == [False, True] + [False] * 14
    assert len(np.unique(keys)) == 31  # the same minima in another band are another key
    with pytest.raises(ValueError, match="130 of 128"):
        band_keys(signatures, 13, 10)


def test_a_file_of_signatures_comes_back(tmp_path: Path) -> None:
    signed = sign(TEXTS)
    write_signatures(tmp_path / "s.safetensors", signed)
    read = read_signatures(tmp_path / "s.safetensors")
    assert np.array_equal(read.values, signed.values) and np.array_equal(read.signed, signed.signed)


def test_signatures_of_another_kind_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.safetensors"
    write_signatures(path, Signatures(np.zeros((1, 128), np.uint32), np.ones(1, bool)), shingle=3)
    with pytest.raises(DaymillError, match="shingle 3 instead of 5"):
        read_signatures(path)
    monkeypatch.setitem(__import__("data.dedup.minhash", fromlist=["SCHEME"]).SCHEME, "seed", "2")
    with pytest.raises(DaymillError, match="seed 1 instead of 2"):
        read_signatures(path, shingle=3)
    path.write_bytes(b"not a signature file")
    with pytest.raises(DaymillError, match="no readable signature file"):
        read_signatures(path)
