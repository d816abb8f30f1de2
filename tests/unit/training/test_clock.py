"""Where the time goes: parts add up to the whole, and saving keeps to its share of it."""

from __future__ import annotations

import pytest

from training.clock import CHECKPOINT, PARTS, STEP, WALL, Clock, Waiting, breakdown
from training.spacing import Spacing


class Hands:
    """A clock that is moved by hand."""

    now = 100.0

    def move(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(f"time.{name}", lambda: hands.now)
    return hands


def test_parts_inside_others_do_not_count_again_and_all_is_told(hands: Hands) -> None:
    spent: dict[str, float] = {}
    clock = Clock(spent)
    with clock.part(STEP):
        hands.move(5)
        with clock.part("data"):
            hands.move(1)
    with clock.part("validation"):
        hands.move(2)
    hands.move(2)
    assert clock.tick() == 10 and spent == {STEP: 6, "validation": 2, WALL: 10}
    spent["communication"] = 1.5
    shares = breakdown(spent)
    assert set(shares) == set(PARTS) and sum(shares.values()) == pytest.approx(1)
    assert (shares["compute"], shares["other"]) == pytest.approx((0.45, 0.2))


def test_a_part_that_fails_is_counted_and_closed(hands: Hands) -> None:
    clock = Clock({})
    with pytest.raises(KeyError), clock.part(STEP):
        hands.move(3)
        raise KeyError
    with clock.part("data"):
        hands.move(1)
    assert (clock.spent[STEP], clock.spent["data"]) == (3, 1)


def test_a_run_that_goes_on_goes_on_counting(hands: Hands) -> None:
    clock = Clock({WALL: 50.0, STEP: 40.0})
    with clock.part(STEP):
        hands.move(10)
    clock.tick()
    assert clock.spent == {WALL: 60, STEP: 50}
    assert breakdown({}) == {}


def test_waiting_counts_the_outermost(hands: Hands) -> None:
    waiting = Waiting()

    @waiting
    def inner() -> None:
        hands.move(1)

    with waiting:
        inner()
        hands.move(2)
    inner()
    waiting.add(0.5)
    assert waiting.seconds() == 4.5


def saves(hands: Hands, share: float, cost: float, steps: int, spent: dict[str, float]) -> list[float]:
    """Times of the saves of a run whose steps take a second."""
    clock = Clock(spent)
    spacing = Spacing(15, share, clock)
    begun, found = hands.now, []
    for step in range(1, steps + 1):
        hands.move(1)
        if spacing.due() or step == steps:
            with spacing.saving():
                found.append(hands.now - begun)
                hands.move(cost)
    clock.tick()
    return found


@pytest.mark.parametrize("cost", [0.01, 0.5, 3.0])
def test_saving_keeps_to_its_share_of_the_time(hands: Hands, cost: float) -> None:
    spent: dict[str, float] = {}
    times = saves(hands, 0.02, cost, 2000, spent)
    assert breakdown(spent)[CHECKPOINT] <= 0.02
    assert len(times) > 3 and times[0] == 15, "the first one is not put off"


def test_without_a_limit_it_would_not(hands: Hands) -> None:
    """The control of the test above: every 15 s is what was asked for."""
    spent: dict[str, float] = {}
    assert len(saves(hands, 0.0, 3.0, 2000, spent)) > 100
    assert breakdown(spent)[CHECKPOINT] > 0.15


def test_cheap_saves_come_as_often_as_wished(hands: Hands) -> None:
    assert saves(hands, 0.02, 0.01, 60, {}) == pytest.approx([15, 30.01, 45.02, 60.03], abs=1)


def test_what_earlier_processes_of_a_run_spent_counts(hands: Hands) -> None:
    spent = {WALL: 100.0, CHECKPOINT: 3.0}
    assert saves(hands, 0.02, 0.1, 40, spent)[0] == 40, "only the last one: 3 % were spent already"
