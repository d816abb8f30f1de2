"""Pipeline schedules: each does all work once, waits for nothing that comes later, and idles as the formulas say."""

from __future__ import annotations

from contextlib import suppress

import pytest

from data.errors import DaymillError
from training.parallel.orders import SCHEDULES, Op, Schedule, order, stages_of_rank
from training.parallel.simulate import StageCost, play

EVEN = StageCost(1.0, 1.0, 1.0, activations=1.0, kept_for_weights=0.5)
A_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 1, "zero-bubble-v": 2}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_all_work_is_done_once_and_by_its_rank(schedule: Schedule, ranks: int, rounds: int) -> None:
    micro_batches, a_rank = ranks * rounds, A_RANK[schedule]
    work = order(schedule, ranks, micro_batches, a_rank)
    done = [op for rank in work for op in rank]
    halves = [Op("I", op.stage, op.micro_batch) for op in done if op.kind == "W"]
    whole = [op for op in done if op.kind == "B"]
    every = {(stage, m) for stage in range(ranks * a_rank) for m in range(micro_batches)}
    assert len(done) == len(set(done))
    assert {(op.stage, op.micro_batch) for op in done if op.kind == "F"} == every
    assert sorted((op.stage, op.micro_batch) for op in [*halves, *whole]) == sorted(every)
    assert {op for op in done if op.kind == "I"} == set(halves)
    for rank, ops in enumerate(work):
        assert {op.stage for op in ops} == set(stages_of_rank(schedule, ranks, a_rank, rank))
    played = play(work, [EVEN] * (ranks * a_rank))
    assert sum(played.busy) == pytest.approx(3 * ranks * a_rank * micro_batches)
    ends = {timed.op: timed.end for rank in played.ranks for timed in rank}
    starts = {timed.op: timed.start for rank in played.ranks for timed in rank}
    for op in done:
        if op.kind == "F" and op.stage:
            assert starts[op] >= ends[Op("F", op.stage - 1, op.micro_batch)]
        if op.kind in "BI":
            assert starts[op] >= ends[Op("F", op.stage, op.micro_batch)]
        if op.kind == "W":
            assert starts[op] >= ends[Op("I", op.stage, op.micro_batch)]


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 8), (4, 4), (4, 16), (4, 28), (8, 16), (8, 32)])
def test_idle_time_is_what_the_formulas_say(ranks: int, micro_batches: int) -> None:
    """Even stages, a backward pass of twice a forward, sending for nothing; m micro-batches, p ranks, v stages each."""

    def utilization(schedule: Schedule) -> float:
        a_rank = A_RANK[schedule]
        part = StageCost(1 / a_rank, 1 / a_rank, 1 / a_rank)
        return play(order(schedule, ranks, micro_batches, a_rank), [part] * (ranks * a_rank)).utilization

    m, p = micro_batches, ranks
    assert utilization("gpipe") == pytest.approx(m / (m + p - 1))
    assert utilization("1f1b") == pytest.approx(m / (m + p - 1))
    assert utilization("interleaved") == pytest.approx(m / (m + (p - 1) / 2))
    assert utilization("zero-bubble") == pytest.approx(m / (m + (p - 1) / 3))
    assert utilization("zero-bubble-v") >= utilization("zero-bubble") - 1e-9


def test_what_ninety_percent_takes() -> None:
    """At 4 ranks: 27 micro-batches under 1F1B; 14 by the interleaved formula and 9 by the zero-bubble one, of which
    torch can do 15 and 10; 6 in a V."""
    for schedule, enough in (("1f1b", 27), ("interleaved", 15), ("zero-bubble", 10), ("zero-bubble-v", 6)):
        a_rank = A_RANK[schedule]
        part = StageCost(1 / a_rank, 1 / a_rank, 1 / a_rank)
        reached = {}
        for count in range(4, enough + 1):
            with suppress(DaymillError):
                reached[count] = play(order(schedule, 4, count, a_rank), [part] * (4 * a_rank)).utilization  # type: ignore[arg-type]
        assert reached.pop(enough) >= 0.9 - 1e-9
        assert reached and max(reached.values()) < 0.9


def test_gpipe_holds_all_micro_batches_and_the_others_as_many_as_ranks() -> None:
    held = {name: play(order(name, 4, 16, A_RANK[name]), [EVEN] * (4 * A_RANK[name])).peak_bytes for name in SCHEDULES}
    assert held["gpipe"] == [16] * 4
    assert held["1f1b"] == [4, 3, 2, 1]
    assert max(held["zero-bubble"]) <= 4.5


def test_a_slow_stage_and_slow_links_cost_what_they_must() -> None:
    slow = [EVEN, StageCost(2, 2, 2), EVEN, EVEN]
    played = play(order("1f1b", 4, 16), slow)
    even = play(order("1f1b", 4, 16), [EVEN] * 4)
    assert played.busy[1] == 96 and played.seconds >= 96 + 3
    assert played.utilization < even.utilization
    assert play(order("1f1b", 2, 4), [EVEN] * 2, send=0.5).seconds > play(order("1f1b", 2, 4), [EVEN] * 2).seconds
    assert play(order("1f1b", 2, 4), [EVEN] * 2, each=0.5).seconds == pytest.approx((3 + 1) * 5)


@pytest.mark.parametrize(
    ("schedule", "ranks", "micro_batches", "a_rank", "said"),
    [
        ("1f1b", 4, 3, 1, "3 micro-batches cannot fill 4 pipeline ranks"),
        ("zero-bubble", 4, 9, 1, "the next count that it can is 10"),
        ("interleaved", 4, 14, 2, "the next count that it can is 15"),
        ("interleaved", 4, 16, 1, "at least 2 stages a rank"),
        ("1f1b", 4, 16, 2, "has 1 stage"),
    ],
)
def test_what_cannot_run_is_refused(schedule: Schedule, ranks: int, micro_batches: int, a_rank: int, said: str) -> None:
    with pytest.raises(DaymillError, match=said):
        order(schedule, ranks, micro_batches, a_rank)


def test_an_order_that_waits_for_itself_is_no_hang() -> None:
    with pytest.raises(DaymillError, match="waits for itself"):
        play([[Op("B", 0, 0), Op("F", 0, 0)]], [EVEN])
