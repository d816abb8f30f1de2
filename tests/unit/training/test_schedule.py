"""The learning rate is a pure function of the step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.schedule import Decay, learning_rate, warmup_steps


@given(
    st.integers(3, 5000),
    st.one_of(st.floats(0, 0.5), st.integers(1, 10_000)),
    st.floats(0, 1),
    st.sampled_from(["cosine", "linear"]),
    st.floats(0, 0.99),
)
def test_rises_from_above_zero_to_the_peak_and_ends_at_the_floor(
    total: int, given: float, floor: float, decay: Decay, hold: float
) -> None:
    warmup = warmup_steps(given, total)
    rates = [learning_rate(step, total, 1e-3, warmup, floor, decay, hold) for step in range(total)]
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


def test_a_warmup_is_a_share_or_a_count_of_steps() -> None:
    assert [warmup_steps(given, 5000) for given in (0, 0.1, 0.5, 1, 1000)] == [0, 500, 2500, 1, 1000]


def test_a_warmup_longer_than_the_run_takes_half_of_it() -> None:
    """The peak is reached and left again, however short the run."""
    warmup = warmup_steps(1000, 50)
    assert warmup == 25
    assert learning_rate(warmup, 50, 5e-5, warmup, 0.05) == 5e-5
    assert learning_rate(49, 50, 5e-5, warmup, 0.05) == pytest.approx(2.5e-6)
    assert warmup_steps(1000, 1) == 0


def test_a_count_of_steps_is_whole() -> None:
    with pytest.raises(ValueError, match="whole number of steps"):
        warmup_steps(1.5, 100)


def test_linear_and_cosine_meet_in_the_middle_and_at_the_ends() -> None:
    for step in (0, 50, 100):
        cosine, linear = (learning_rate(step, 101, 1.0, 0, 0.2, decay) for decay in ("cosine", "linear"))
        assert cosine == pytest.approx(linear)
    assert learning_rate(25, 101, 1.0, 0, 0.2, "linear") < learning_rate(25, 101, 1.0, 0, 0.2, "cosine")


def test_the_peak_is_held_and_the_whole_decay_follows() -> None:
    rates = [learning_rate(step, 111, 1.0, 10, 0.1, "linear", 0.8) for step in range(111)]
    assert set(rates[10:91]) == {1.0}
    assert rates[100] == pytest.approx(0.55) and rates[110] == pytest.approx(0.1)
    assert rates[91:] == sorted(rates[91:], reverse=True) and rates[91] < 1.0


def test_a_floor_of_one_is_a_constant_rate() -> None:
    assert {learning_rate(step, 100, 0.01, 0, 1.0) for step in range(100)} == {0.01}
