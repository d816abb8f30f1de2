"""Weights: bounded, of mean 1, and what they do to the odds that a model learns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.debias.weights import bounded, spread


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50), st.floats(1.01, 100))
def test_weights_have_mean_one_within_bounds_and_keep_their_order(ratio: list[float], largest: float) -> None:
    given_ratio = np.array(ratio)
    weights = bounded(given_ratio, largest)
    assert weights.mean() == pytest.approx(1, abs=1e-9)
    assert weights.min() >= 1 / largest - 1e-12 and weights.max() <= largest + 1e-12
    order = np.argsort(given_ratio, kind="stable")
    assert (np.diff(weights[order]) >= 0).all()


def test_what_lies_within_the_bounds_stays_in_proportion() -> None:
    weights = bounded(np.array([1.0, 2.0] * 50 + [1e9]), 3.0)
    assert weights[1] / weights[0] == pytest.approx(2)
    assert weights[-1] == 3
    assert bounded(np.full(7, 5.0), 3.0).tolist() == pytest.approx([1.0] * 7)


def test_a_quotient_of_probabilities_turns_the_odds_into_those_above_it() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(0, 3, 60_000)
    p, q = np.array([0.2, 0.5, 0.9]), np.array([0.4, 0.5, 0.7])
    label = (rng.random(len(text)) < p[text]).astype(int)
    weights = bounded(np.where(label == 1, q[text] / p[text], (1 - q[text]) / (1 - p[text])), 10.0)
    for value in range(3):
        here = text == value
        assert np.average(label[here], weights=weights[here]) == pytest.approx(q[value], abs=0.01)
        assert weights[here].mean() == pytest.approx(1, abs=0.02), "no text gains or loses importance"


def test_the_effective_share_tells_how_far_weights_differ() -> None:
    assert spread(np.ones(10))["effective_share"] == 1
    assert spread(np.array([2.0, 0.0]))["effective_share"] == pytest.approx(0.5)
