"""The learning rate is a pure function of the step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.schedule import learning_rate


@given(st.integers(3, 5000), st.floats(0, 0.5), st.floats(0, 1))
def test_rises_from_above_zero_to_the_peak_and_ends_at_the_floor(total: int, share: float, floor: float) -> None:
    warmup = round(share * total)
    rates = [learning_rate(step, total, 1e-3, warmup, floor) for step in range(total)]
    assert rates[0] > 0
    assert rates[warmup] == pytest.approx(1e-3)
    assert max(rates) == pytest.approx(1e-3)
    assert rates[: warmup + 1] == sorted(rates[: warmup + 1])
    if total - 1 > warmup:
        assert rates[-1] == pytest.approx(1e-3 * floor, abs=1e-12)
        assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


def test_asked_again_in_any_order_it_answers_the_same() -> None:
    forward = [learning_rate(step, 100, 0.01, 10) for step in range(100)]
    backward = [learning_rate(step, 100, 0.01, 10) for step in reversed(range(100))]
    assert forward == backward[::-1]


def test_a_single_step_trains_at_the_peak() -> None:
    assert learning_rate(0, 1, 0.01, 0) == 0.01
