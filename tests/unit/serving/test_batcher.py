"""The batcher: everyone gets their own answer, whatever the others do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from data.errors import DaymillError
from serving.batcher import Batcher, Call, Ids, Limits, Logits, ModelFailed, Overloaded


class Echo:
    """A model whose logits [N, 2] are the row's first token and its length; it notes its calls."""

    def __init__(self, hold: threading.Event | None = None) -> None:
        self.calls: list[list[int]] = []
        self.hold = hold

    def logits(self, rows: Sequence[Ids], /) -> Logits:
        self.calls.append([int(row[0]) for row in rows])
        if self.hold is not None:
            assert self.hold.wait(10)
        if any(row[0] == 666 for row in rows):
            raise RuntimeError("poison")
        return np.array([[row[0], len(row)] for row in rows], dtype=np.float32)


def rows(*first: int, length: int = 3) -> list[Ids]:
    return [np.array([token, *range(length - 1)], dtype=np.int32) for token in first]


def with_batcher(limits: Limits, body: Callable[[Batcher], Awaitable[Any]], calls: list[Call] | None = None) -> Any:
    async def run() -> Any:
        batcher = Batcher(limits, calls.append if calls is not None else None)
        batcher.start()
        try:
            return await asyncio.wait_for(body(batcher), 20)
        finally:
            await batcher.close()

    return asyncio.run(run())


def test_requests_share_calls_and_get_their_own_rows() -> None:
    model = Echo()

    async def body(batcher: Batcher) -> list[Logits]:
        return await asyncio.gather(*(batcher.infer(model, rows(at, at + 100)) for at in range(10)))

    answers = with_batcher(Limits(max_rows=20, max_wait_ms=20), body)
    assert [answer[:, 0].tolist() for answer in answers] == [[at, at + 100] for at in range(10)]
    assert len(model.calls) == 1


def test_no_call_is_larger_than_the_limit() -> None:
    """MLServer ignores row counts: requests of 20 rows, at most 8 a call."""
    model, calls = Echo(), []

    async def body(batcher: Batcher) -> list[Logits]:
        return await asyncio.gather(*(batcher.infer(model, rows(*range(at, at + 20))) for at in (0, 100, 200)))

    answers = with_batcher(Limits(max_rows=8), body, calls)
    assert [answer[:, 0].tolist() for answer in answers] == [list(range(at, at + 20)) for at in (0, 100, 200)]
    assert max(len(call) for call in model.calls) == 8
    assert sum(call.rows for call in calls) == 60 and len(calls) == len(model.calls) == 8


def test_tokens_bound_a_call_and_lengths_sort_it() -> None:
    model, calls = Echo(), []
    mixed = [row for at in range(8) for row in rows(at, length=2 if at % 2 else 50)]

    async def body(batcher: Batcher) -> Logits:
        return await batcher.infer(model, mixed)

    answers = with_batcher(Limits(max_rows=8, max_tokens=100), body, calls)
    assert answers[:, 0].tolist() == list(range(8))
    assert all(call.padded <= 100 for call in calls)
    assert sum(call.padded - call.tokens for call in calls) == 0


def test_one_cancelled_of_three_leaves_the_others() -> None:
    """MLServer#1306: the others of a cancelled request hang."""
    hold = threading.Event()
    model = Echo(hold)

    async def body(batcher: Batcher) -> list[Logits]:
        first = asyncio.create_task(batcher.infer(model, rows(1)))
        await asyncio.sleep(0.05)  # the first is in the model, the next three wait
        others = [asyncio.create_task(batcher.infer(model, rows(at, at + 10))) for at in (2, 3, 4)]
        await asyncio.sleep(0.05)
        others[1].cancel()
        hold.set()
        return [await first, await others[0], await others[2]]

    answers = with_batcher(Limits(max_rows=8, max_wait_ms=0), body)
    assert [answer[:, 0].tolist() for answer in answers] == [[1], [2, 12], [4, 14]]
    assert model.calls == [[1], [2, 12, 4, 14]]


def test_cancelling_inside_a_call_leaves_the_others() -> None:
    hold = threading.Event()
    model = Echo(hold)

    async def body(batcher: Batcher) -> Logits:
        mine, theirs = (asyncio.create_task(batcher.infer(model, rows(at))) for at in (1, 2))
        await asyncio.sleep(0.1)
        theirs.cancel()
        await asyncio.sleep(0)
        hold.set()
        return await mine

    assert with_batcher(Limits(max_wait_ms=20), body)[:, 0].tolist() == [1]
    assert model.calls == [[1, 2]]


def test_one_poisonous_request_fails_alone() -> None:
    model = Echo()

    async def body(batcher: Batcher) -> list[Any]:
        asked = (batcher.infer(model, rows(at)) for at in (1, 666, 3))
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third = with_batcher(Limits(max_wait_ms=20), body)
    assert first[:, 0].tolist() == [1] and third[:, 0].tolist() == [3]
    assert isinstance(second, ModelFailed) and "poison" in str(second)


def test_a_full_queue_refuses_and_recovers() -> None:
    hold = threading.Event()
    model = Echo(hold)

    async def body(batcher: Batcher) -> list[int]:
        first = asyncio.create_task(batcher.infer(model, rows(0)))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(batcher.infer(model, rows(*range(1, 5))))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="4 rows wait already"):
            await batcher.infer(model, rows(5))
        waiting.cancel()
        await asyncio.sleep(0)
        after = asyncio.create_task(batcher.infer(model, rows(6)))  # a cancelled request gives its place back
        await asyncio.sleep(0)
        hold.set()
        return [*(await first)[:, 0], *(await after)[:, 0]]

    assert with_batcher(Limits(queue_rows=4, max_wait_ms=0), body) == [0, 6]


def test_two_models_never_meet_in_a_call() -> None:
    old, new = Echo(), Echo()

    async def body(batcher: Batcher) -> list[Logits]:
        asked = (batcher.infer(old if at % 2 else new, rows(at)) for at in range(20))
        return await asyncio.gather(*asked)

    answers = with_batcher(Limits(max_rows=32, max_wait_ms=20), body)
    assert [int(answer[0, 0]) for answer in answers] == list(range(20))
    assert {at % 2 for call in old.calls for at in call} == {1}
    assert {at % 2 for call in new.calls for at in call} == {0}


def test_the_oldest_row_is_never_starved() -> None:
    """A row of unusual length goes with the first call, however many others wait."""
    model = Echo()

    async def body(batcher: Batcher) -> None:
        odd = batcher.infer(model, rows(7, length=500))
        await asyncio.gather(odd, *(batcher.infer(model, rows(1)) for _ in range(30)))

    with_batcher(Limits(max_rows=4, max_wait_ms=5), body)
    assert 7 in model.calls[0]


def test_closing_refuses_who_waits() -> None:
    hold = threading.Event()
    model = Echo(hold)

    async def run() -> list[Any]:
        batcher = Batcher(Limits(max_rows=1, max_wait_ms=0))
        batcher.start()
        asked = [asyncio.create_task(batcher.infer(model, rows(at))) for at in (1, 2)]
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.1, hold.set)
        await batcher.close()
        return await asyncio.gather(*asked, return_exceptions=True)

    assert all(isinstance(answer, Overloaded) for answer in asyncio.run(run()))


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(DaymillError, match="at least 1"):
        Limits(max_rows=0)
