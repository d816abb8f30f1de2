"""Fingerprints: defined or none, near where texts share what is rare, and never equal by accident."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.simhash import BUCKETS, UNIT, count_features, rarity, simhash
from data.dedup.tokens import token_hashes

COMMON = ["the", "of", "and", "to", "in", "is", "that", "for", "it", "was", "on", "are"]


def distance(a: int, b: int) -> int:
    return (int(a) ^ int(b)).bit_count()


def made_up(seed: int) -> list[str]:
    generator = random.Random(seed)
    rare = ["".join(generator.choices("bcdfghklmnprstvw", k=6)) for _ in range(60)]
    return [word for pair in zip(generator.choices(COMMON, k=60), rare) for word in pair]


def weights_of(texts: list[str]) -> np.ndarray:
    counts = np.zeros(BUCKETS, np.int64)
    count_features(token_hashes(texts), counts)
    return rarity(counts)


def test_odd_texts_have_a_fingerprint_or_none() -> None:
    texts = ["spam " * 300, "", "?! ... --", "ham " * 300, "天气很好我们去公园", "我买了一本新的书", "two words"]
    found = simhash(texts)
    assert found.signed.tolist() == [True, False, False, True, True, True, False]
    prints = found.values[found.signed]
    assert min(distance(a, b) for at, a in enumerate(prints) for b in prints[:at]) > 8


def test_characters_count_with_their_neighbors() -> None:
    one, other = simhash(["上海自来水来自海上", "海上自来水来自上海"]).values  # the same characters in another order
    assert one != other


def test_rare_words_weigh_more() -> None:
    texts = [" ".join(made_up(seed)) for seed in range(40)]
    weights = weights_of(texts)
    words = made_up(0)
    less_common = " ".join(words[1::2] + COMMON)  # all of its rare words, its common ones once
    alike, weighted = (simhash([texts[0], less_common], w).values for w in (None, weights))
    assert distance(*weighted) < distance(*alike)


def test_every_bit_is_used() -> None:
    prints = simhash([" ".join(made_up(seed)[1::2]) for seed in range(100)]).values
    shares = [(prints >> np.uint64(bit) & np.uint64(1)).mean() for bit in range(64)]
    assert min(shares) > 0.2 and max(shares) < 0.8


BAG, UNLIKE = made_up(0), rarity(np.arange(BUCKETS))


@settings(deadline=None, max_examples=30)  # the first call loads a kernel
@given(st.permutations(BAG))
def test_words_are_a_bag(words: list[str]) -> None:
    assert simhash([" ".join(words)], UNLIKE).values == simhash([" ".join(BAG)], UNLIKE).values


def test_counts_of_parts_add_up() -> None:
    texts = [" ".join(made_up(seed)) for seed in range(4)]
    parts = sum(count_of(text) for text in texts)
    counts = np.zeros(BUCKETS, np.int64)
    count_features(token_hashes(texts), counts)
    assert np.array_equal(counts, parts) and counts.sum() == 480


def count_of(text: str) -> np.ndarray:
    counts = np.zeros(BUCKETS, np.int64)
    count_features(token_hashes([text]), counts)
    return counts


def test_weights_are_whole_and_positive() -> None:
    weights = rarity(np.array([0, 1, 1000, 10**9]))
    assert weights.dtype == np.int32 and weights.tolist() == sorted(weights, reverse=True)
    assert weights[-1] == 1 and weights[0] == round(UNIT * np.log(10**9 + 1002))
