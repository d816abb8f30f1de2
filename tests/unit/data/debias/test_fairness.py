"""Gaps by hand, what chance does, and intervals beside resampling row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.debias import fairness
from data.debias.fairness import chance_gap, compare, counts_of, equal_odds, gaps_of, rates_of, resampled

ROWS = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=60)


def columns(rows: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.array(column, dtype=np.int64) for column in zip(*rows)]


def test_the_gap_is_the_larger_difference_of_true_and_false_positive_rates() -> None:
    # group 0: 4 of 8 true positives, 2 of 10 false ones; group 1: 7 of 10 and 1 of 10
    counts = np.array([[[8, 2], [4, 4]], [[9, 1], [3, 7]]])
    assert gaps_of(rates_of(counts, 1)).tolist() == pytest.approx([0.1, 0.2])
    assert equal_odds(counts, 1) == pytest.approx(0.2)


def test_of_three_groups_the_two_furthest_apart_count() -> None:
    counts = np.array([[[10, 0], [5, 5]], [[10, 0], [2, 8]], [[10, 0], [4, 6]]])
    assert equal_odds(counts, 1) == pytest.approx(0.3)


def test_too_few_records_have_no_rate() -> None:
    counts = np.array([[[5, 5], [0, 2]], [[5, 5], [10, 0]]])
    assert equal_odds(counts, 1) == 1.0
    assert equal_odds(counts, 3) == 0.0
    assert np.isnan(equal_odds(counts, 11))


@given(ROWS)
def test_a_gap_is_a_share_and_does_not_depend_on_order_or_names(rows: list[tuple[int, ...]]) -> None:
    groups, truth, predicted = columns(rows)
    gap = equal_odds(counts_of(groups, truth, predicted, (3, 3)), 1)
    renamed = equal_odds(counts_of(2 - groups[::-1], truth[::-1], predicted[::-1], (3, 3)), 1)
    assert np.isnan(gap) == np.isnan(renamed)
    if not np.isnan(gap):
        assert 0 <= gap <= 1
        assert gap == pytest.approx(renamed)
    alone = equal_odds(counts_of(np.zeros_like(groups), truth, predicted, (3, 3)), 1)
    assert np.isnan(alone), "one group alone has nobody to differ from"


def test_right_answers_have_no_gap() -> None:
    rng = np.random.default_rng(0)
    groups, truth = rng.integers(0, 2, 200), rng.integers(0, 3, 200)
    assert equal_odds(counts_of(groups, truth, truth, (2, 3)), 1) == 0


def unfair(rng: np.random.Generator, count: int, rates: tuple[float, float]) -> list[np.ndarray]:
    """Groups, truth, and answers that find the positive ones of the groups at these rates."""
    groups, truth = rng.integers(0, 2, count), rng.integers(0, 2, count)
    found = rng.random(count) < np.array(rates)[groups]
    return [groups, truth, np.where(truth == 1, found, 0).astype(np.int64)]


def test_random_groups_stay_below_chance_and_real_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "SHUFFLES", 60)
    rng = np.random.default_rng(1)
    exceeded = 0
    for seed in range(30):
        groups, truth, answers = unfair(rng, 400, (0.7, 0.7))
        gap = equal_odds(counts_of(groups, truth, answers, (2, 2)), 10)
        exceeded += gap > chance_gap(groups, truth, answers, (2, 2), 10, seed)
    assert exceeded <= 5
    groups, truth, answers = unfair(rng, 400, (0.5, 0.8))
    gap = equal_odds(counts_of(groups, truth, answers, (2, 2)), 10)
    assert gap > chance_gap(groups, truth, answers, (2, 2), 10)


def test_intervals_are_those_of_resampled_rows() -> None:
    rng = np.random.default_rng(2)
    groups, truth, before = unfair(rng, 600, (0.5, 0.8))
    after = np.where(rng.random(600) < 0.1, 1 - before, before)
    gap, accuracy = compare(groups, truth, before, after, (2, 2), 10)
    drawn = []
    for _ in range(250):
        at = rng.integers(0, 600, 600)
        drawn.append([
            equal_odds(counts_of(groups[at], truth[at], answers[at], (2, 2)), 10) for answers in (before, after)
        ] + [(answers[at] == truth[at]).mean() for answers in (before, after)])  # fmt: skip
    table = np.array(drawn)
    naive = np.quantile(table[:, 1] - table[:, 0], [0.025, 0.975])
    assert [gap.low, gap.high] == pytest.approx(naive.tolist(), abs=0.02)
    naive = np.quantile(table[:, 3] - table[:, 2], [0.025, 0.975])
    assert [accuracy.low, accuracy.high] == pytest.approx(naive.tolist(), abs=0.01)
    assert gap.before == equal_odds(counts_of(groups, truth, before, (2, 2)), 10)
    assert accuracy.difference == pytest.approx((after == truth).mean() - (before == truth).mean())


def test_the_same_answers_change_nothing_in_any_draw() -> None:
    groups, truth, answers = unfair(np.random.default_rng(3), 200, (0.5, 0.8))
    gap, accuracy = compare(groups, truth, answers, answers, (2, 2), 10)
    assert (gap.difference, gap.low, gap.high) == (0, 0, 0)
    assert (accuracy.difference, accuracy.low, accuracy.high) == (0, 0, 0)


def test_cells_that_are_too_small_stay_out_of_every_draw() -> None:
    groups = np.array([0] * 50 + [1] * 50)
    truth = np.array([0] * 45 + [1] * 5 + [0] * 40 + [1] * 10)
    answers = np.where(groups == 0, 0, truth)  # the five positive ones of group 0 are all missed
    (gap, _), _ = resampled(groups, truth, answers, answers, (2, 2), 10)
    assert gap.max() == 0
    (gap, _), _ = resampled(groups, truth, answers, answers, (2, 2), 5)
    assert gap[0] == 1
