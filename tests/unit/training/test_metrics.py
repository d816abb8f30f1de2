"""Metrics against scikit-learn and against resampling rows by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from training.metrics import accuracy, best_threshold, bootstrap_interval, f1, macro_f1, paired_bootstrap

CODES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=50)


@settings(max_examples=25)
@given(CODES)
def test_f1_macro_f1_and_accuracy_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = np.array(pairs).T
    assert accuracy(truth, predicted) == pytest.approx(accuracy_score(truth, predicted))
    assert macro_f1(truth, predicted) == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))
    for positive in (0, 1, 2):
        expected = f1_score(truth == positive, predicted == positive, zero_division=0)
        assert f1(truth, predicted, positive) == pytest.approx(expected)


def noisy(rows: int, error: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = (rng.random(rows) < 0.3).astype(int)
    return truth, np.where(rng.random(rows) < error, 1 - truth, truth)


def test_the_interval_is_the_one_that_resampled_rows_give() -> None:
    truth, predicted = noisy(400, 0.1)
    rng = np.random.default_rng(1)
    draws = [f1(truth[rows], predicted[rows]) for rows in rng.integers(0, 400, (2000, 400))]
    value, low, high = bootstrap_interval(truth, predicted, draws=4000)
    assert value == f1(truth, predicted)
    assert (low, high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.012)


def test_more_rows_give_a_narrower_interval() -> None:
    widths = [i.high - i.low for i in (bootstrap_interval(*noisy(rows, 0.1)) for rows in (100, 10_000))]
    assert widths[1] < widths[0] / 5


def test_a_paired_difference_is_sharper_than_two_intervals() -> None:
    truth, a = noisy(1000, 0.05)
    b = a.copy()
    wrong = np.flatnonzero(a == truth)[:20]
    b[wrong] = 1 - b[wrong]
    paired = paired_bootstrap(truth, a, b)
    alone = bootstrap_interval(truth, b)
    assert paired.value == pytest.approx(f1(truth, a) - f1(truth, b))
    assert paired.low > 0, "20 rows lost and none won is no accident"
    assert paired.high - paired.low < alone.high - alone.low


def test_a_model_does_not_differ_from_itself() -> None:
    truth, predicted = noisy(300, 0.2)
    assert paired_bootstrap(truth, predicted, predicted) == (0, 0, 0)


def test_paired_rows_must_be_the_same_rows() -> None:
    with pytest.raises(ValueError, match="predictions"):
        paired_bootstrap([0, 1], [0, 1], [0])
    with pytest.raises(ValueError, match="'f1' or 'accuracy'"):
        bootstrap_interval([0, 1], [0, 1], metric="auc")


def test_without_rows_there_is_nothing_to_know() -> None:
    assert bootstrap_interval([], []) == (0, 0, 0)
    assert accuracy([], []) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), min_size=2, max_size=60))
def test_the_threshold_is_within_its_tolerance_of_the_best_one(rows: list[tuple[bool, int]]) -> None:
    truth, scores = np.array([y for y, _ in rows], dtype=int), np.array([s / 1000 for _, s in rows])
    chosen = best_threshold(truth, scores, smooth=0.01)
    assert 0 <= chosen <= 1
    if truth.any() and not truth.all():
        best = max(f1(truth, (scores >= cut).astype(int)) for cut in scores)
        assert f1(truth, (scores >= chosen).astype(int)) >= best - 0.01 - 1e-9


def test_the_threshold_lies_in_the_middle_of_the_gap() -> None:
    assert best_threshold([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]) == pytest.approx(0.5)


def test_one_class_leaves_the_threshold_at_one_half() -> None:
    assert best_threshold([0, 0], [0.1, 0.9]) == 0.5
    assert best_threshold([1, 1], [0.1, 0.9]) == 0.5
