"""Similarity is exact: what Python's sets say of runs of five tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.jaccard import jaccard
from data.dedup.tokens import distinct, shingle_hashes, token_hashes
from data.quality.scripts import TOKEN
from data.text import normalize

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "中", "文", "é"]), max_size=40).map(" ".join)


def shingles(text: str) -> set[tuple[str, ...]]:
    tokens = TOKEN.findall(normalize(text))
    return {tuple(tokens[at : at + 5]) for at in range(len(tokens) - 4)}


def similarity(texts: list[str], a: list[int], b: list[int]) -> list[float]:
    sets = distinct(shingle_hashes(token_hashes(texts), 5))
    return jaccard(sets.values, sets.starts[:-1], sets.starts[1:], np.array(a), np.array(b)).tolist()


@settings(deadline=None)  # the first call loads a kernel
@given(st.lists(WORDS, min_size=2, max_size=5))
def test_pairs_are_as_similar_as_their_sets(texts: list[str]) -> None:
    pairs = [(a, b) for b in range(len(texts)) for a in range(b)]
    expected = []
    for a, b in pairs:
        one, other = shingles(texts[a]), shingles(texts[b])
        expected.append(len(one & other) / len(one | other) if one | other else 0.0)
    assert similarity(texts, *map(list, zip(*pairs, strict=True))) == expected


def test_texts_of_nothing_are_not_similar() -> None:
    assert similarity(["", "one two", "a b c d e"], [0, 0, 2], [1, 2, 2]) == [0.0, 0.0, 1.0]
