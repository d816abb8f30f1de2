"""The kernels see the tokens that the regular expressions see, whatever the script."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.dedup.exact import exact_key
from data.dedup.fold import batches, exact_keys, fold
from data.dedup.tokens import distinct, shingle_hashes, token_hashes
from data.quality.scripts import TOKEN
from data.text import normalize

MASK = (1 << 64) - 1
ALPHABETS = "aAzZ09_ .-\t\n\x0b\x1c\x1f\x85\u2003éßŉſİ中文字ไทยかなÅ\u0301\U00020000\U0001f600\ud800٣"
TEXTS = st.lists(st.one_of(st.text(), st.text(ALPHABETS, max_size=30)), max_size=6)


def mix(value: int) -> int:
    """MurmurHash3's 64-bit finalizer."""
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ (value >> 33)


def token_hash(token: str) -> int:
    state = 0xCBF29CE484222325
    for char in token:
        state = (state ^ ord(char)) * 0x100000001B3 & MASK
    single = len(token) == 1 and len(TOKEN.findall(token * 2)) == 2
    return mix(state) & ~1 | single


@settings(deadline=None)  # the first call loads a kernel
@given(TEXTS)
@example(["", "Ünï 中文字 abc", "A  B\n", " \x1c", "ŉ x\u0345"])
def test_folding_is_normalizing(texts: list[str]) -> None:
    folded = fold(texts)
    got = [bytes(folded.data[a:b]) for a, b in zip(folded.starts, folded.ends)]
    assert got == [normalize(text).encode("utf-8", "replace") for text in texts]
    assert exact_keys(folded) == [exact_key(text) for text in texts]


@settings(deadline=None)
@given(TEXTS)
@example(["one two", "一二三 four", "a\U00020000b"])
def test_tokens_are_those_of_the_normalized_text(texts: list[str]) -> None:
    tokens = token_hashes(texts)
    for row, text in enumerate(texts):
        assert tokens[row].tolist() == [token_hash(token) for token in TOKEN.findall(normalize(text))]


def test_a_word_hashes_the_same_among_other_scripts() -> None:
    plain, mixed = token_hashes(["Take the CAFE road"]), token_hashes(["take THE cafe rôad 咖啡"])
    assert plain[0][:3].tolist() == mixed[0][:3].tolist()
    assert plain[0][3] != mixed[0][3]


@settings(deadline=None)
@given(TEXTS, st.integers(1, 6))
def test_shingles_are_runs_of_tokens(texts: list[str], size: int) -> None:
    tokens = token_hashes(texts)
    shingles = shingle_hashes(tokens, size)
    seen: dict[int, tuple[int, ...]] = {}
    for row in range(len(texts)):
        runs = [tuple(tokens[row][at : at + size].tolist()) for at in range(len(tokens[row]) - size + 1)]
        assert len(shingles[row]) == len(runs)
        for value, run in zip(shingles[row].tolist(), runs, strict=True):
            assert seen.setdefault(value, run) == run  # equal hashes, equal runs ...
    assert len(seen) == len(set(seen.values()))  # ... and the other way round


def test_the_order_of_tokens_counts() -> None:
    one, other = shingle_hashes(token_hashes(["a b c d e", "b a c d e"]), 5).values
    assert one != other


@settings(deadline=None)
@given(TEXTS)
def test_distinct_rows_are_sorted_sets(texts: list[str]) -> None:
    shingles = shingle_hashes(token_hashes(texts), 2)
    before = shingles.values.copy()
    sets = distinct(shingles)
    assert [sets[row].tolist() for row in range(len(sets))] == [
        sorted(set(shingles[row].tolist())) for row in range(len(shingles))
    ]
    assert np.array_equal(shingles.values, before)


@settings(deadline=None)
@given(st.lists(st.text(max_size=9)), st.integers(1, 20))
def test_batches_hold_every_text_once(texts: list[str], limit: int) -> None:
    parts = list(batches(texts, limit))
    assert [text for part in parts for text in texts[part]] == texts
    assert all(part.stop - part.start == 1 or sum(map(len, texts[part])) <= limit for part in parts)
