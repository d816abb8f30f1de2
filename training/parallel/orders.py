"""What each rank of a pipeline computes, in order: the schedules that torch.distributed.pipelining will run.

GPipe and 1F1B are spelled out; the interleaved and zero-bubble ones are asked of torch's own classes, so that what is
simulated is what will be run.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from data.errors import DaymillError

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-v"]
SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-v")


@dataclass(frozen=True)
class Op:
    """One piece of work: `F` forward, `B` all of a backward pass, `I` and `W` its halves (inputs, weights)."""

    kind: Literal["F", "B", "I", "W"]
    stage: int
    micro_batch: int


def stages_of_rank(schedule: Schedule, ranks: int, a_rank: int, rank: int) -> list[int]:
    """The stages that a rank holds, `a_rank` of them: in a loop (r, r + ranks, ...), or in a V (r, 2 ranks - 1 - r)."""
    if schedule == "zero-bubble-v":
        return [rank, 2 * ranks - 1 - rank]
    return [rank + ranks * turn for turn in range(a_rank)]


def check(schedule: Schedule, ranks: int, micro_batches: int, a_rank: int) -> None:
    """Raises DaymillError where a schedule cannot run with these counts: none of them hangs or answers wrongly."""
    expected = {"gpipe": 1, "1f1b": 1, "zero-bubble": 1, "zero-bubble-v": 2}
    if schedule in expected and a_rank != expected[schedule]:
        raise DaymillError(f"schedule {schedule} has {expected[schedule]} stage(s) a rank; got {a_rank}")
    if schedule == "interleaved" and a_rank < 2:
        raise DaymillError("schedule interleaved needs at least 2 stages a rank; with one it is 1f1b")
    if micro_batches < ranks and schedule != "gpipe":
        raise DaymillError(
            f"{micro_batches} micro-batches cannot fill {ranks} pipeline ranks under {schedule}; "
            f"expected at least {ranks}"
        )
    rounds = max(1, micro_batches // ranks)
    if schedule in ("interleaved", "zero-bubble") and micro_batches % rounds:
        more = next(count for count in range(micro_batches, 2 * micro_batches) if count % (count // ranks) == 0)
        raise DaymillError(
            f"schedule {schedule} with {ranks} ranks cannot divide {micro_batches} micro-batches into {rounds} equal "
            f"rounds; the next count that it can is {more}"
        )


def order(schedule: Schedule, ranks: int, micro_batches: int, a_rank: int = 1) -> list[list[Op]]:
    """For each rank its work in order. Raises DaymillError as `check` does."""
    check(schedule, ranks, micro_batches, a_rank)
    every = range(micro_batches)
    if schedule == "gpipe":
        return [[Op("F", rank, m) for m in every] + [Op("B", rank, m) for m in every] for rank in range(ranks)]
    if schedule == "1f1b":
        return [one_forward_one_backward(rank, ranks, micro_batches) for rank in range(ranks)]
    return torchs_order(schedule, ranks, micro_batches, a_rank)


def one_forward_one_backward(rank: int, ranks: int, micro_batches: int) -> list[Op]:
    """As many forwards as stages lie behind the rank, then one backward for each forward, then what is left."""
    ahead = min(micro_batches, ranks - rank)
    ops = [Op("F", rank, m) for m in range(ahead)]
    for m in range(micro_batches):
        ops.append(Op("B", rank, m))
        if m + ahead < micro_batches:
            ops.append(Op("F", rank, m + ahead))
    return ops


def torchs_order(schedule: Schedule, ranks: int, micro_batches: int, a_rank: int) -> list[list[Op]]:
    """The order that torch's class of the schedule makes, which needs to know nothing of stages but their counts."""
    from torch.distributed import pipelining

    classes: dict[str, Any] = {
        "interleaved": pipelining.ScheduleInterleaved1F1B,
        "zero-bubble": pipelining.ScheduleInterleavedZeroBubble,
        "zero-bubble-v": pipelining.ScheduleZBVZeroBubble,
    }
    total = ranks * a_rank
    stages = [
        SimpleNamespace(
            num_stages=total,
            group_size=ranks,
            group_rank=0,
            stage_index=index,
            is_first=index == 0,
            is_last=index == total - 1,
            submod=None,
        )
        for index in stages_of_rank(schedule, ranks, a_rank, 0)
    ]
    planned = classes[schedule](stages, micro_batches, loss_fn=lambda output, _: output).pipeline_order
    kinds = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    return [
        [
            Op(kinds[action.computation_type.name], action.stage_index, action.microbatch_index)  # type: ignore[arg-type]
            for action in planned[rank]
            if action is not None and action.computation_type.name in kinds
        ]
        for rank in range(ranks)
    ]
