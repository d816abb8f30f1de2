"""Which way of sending is chosen, by numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.parallel.forecast import Cost, Method, Step, fastest, price, seconds
from training.parallel.link import Line, line_through

times = st.floats(0, 1)
costs = st.builds(Cost, times, times, times, times, times)
options = st.lists(st.fixed_dictionaries({"dense": costs, "top-k": costs, "power-sgd": costs}), min_size=1, max_size=5)


def step(ready: list[float], after: float = 0.0) -> Step:
    return Step(tuple(ready), ready[-1], after)


def dense_of(found: list[dict[Method, Cost]]) -> list[Cost]:
    return [option["dense"] for option in found]


@given(options, st.lists(times, min_size=5, max_size=5), times)
def test_what_is_chosen_is_never_slower_than_dense(
    found: list[dict[Method, Cost]], gaps: list[float], after: float
) -> None:
    when = step([sum(gaps[: at + 1]) for at in range(len(found))], after)
    methods = fastest(when, found, 2)
    chosen = seconds(when, [option[method] for option, method in zip(found, methods, strict=True)])
    dense = seconds(when, dense_of(found))
    assert chosen <= dense
    assert set(methods) == {"dense"} or chosen * (1 + price(methods, 2)) < dense, "fewer seconds a step, but more steps"
    for at, option in enumerate(found):  # no single change would do better
        for method in option:
            other = [*methods[:at], method, *methods[at + 1 :]]
            if set(methods) != {"dense"}:
                each = seconds(when, [o[m] for o, m in zip(found, other, strict=True)])
                assert each * (1 + price(other, 2)) >= chosen * (1 + price(methods, 2))


def test_equal_costs_stay_dense() -> None:
    same = Cost(0.0, 0.1)
    assert fastest(step([0.1, 0.2]), [{"dense": same, "top-k": same, "power-sgd": same}] * 2, 2) == ["dense"] * 2


def test_only_what_the_backward_pass_does_not_hide_is_compressed() -> None:
    """The first bucket has a second of computing to travel behind; packing it would only delay the last one."""
    option: dict[Method, Cost] = {"dense": Cost(0.0, 0.8), "top-k": Cost(0.1, 0.1, unpack=0.1)}
    assert fastest(step([0.0, 1.0]), [option, option], 2) == ["dense", "top-k"]


def test_a_gain_that_more_steps_eat_up_is_none() -> None:
    option: dict[Method, Cost] = {"dense": Cost(0.0, 0.10), "top-k": Cost(0.0, 0.02)}
    assert fastest(step([0.5]), [option], 2) == ["top-k"]  # 0.60 s to 0.52 s
    assert fastest(step([0.5], after=0.5), [option], 2) == ["dense"]  # 1.10 s to 1.02 s
    assert fastest(step([0.5]), [option], 8) == ["dense"], "more ranks choose less each, and need more steps"
    low: dict[Method, Cost] = option | {"power-sgd": Cost(0.0, 0.03)}
    assert fastest(step([0.5]), [low], 8) == ["power-sgd"]


def test_a_step_is_played_through() -> None:
    """Two buckets on one link, the second message of the first behind the first of the second."""
    low = Cost(pack=1, first=2, between=1, second=3, unpack=1)
    # The first is packed at 2 and on the link until 4; the second, later by the first one's packing, at 5 and until 7.
    # Second messages: ready at 6 and 8, on the link until 10 and 13. Unpacked at 11 and 14, and then what comes after.
    assert seconds(Step((1, 3), 3, 0.5), [low, low]) == pytest.approx(14.5)


def test_a_line_is_the_slope_of_large_messages() -> None:
    link = Line(latency=2e-3, per_byte=1e-8)
    sizes = (4_096, 262_144, 4_194_304)
    again = line_through(sizes, [link.seconds(size) for size in sizes])
    assert again.latency == pytest.approx(2e-3) and again.per_byte == pytest.approx(1e-8)
    noisy = line_through(sizes, [3e-3, 2e-3, 1e-3])
    assert noisy.latency >= 0 and noisy.per_byte == 0
