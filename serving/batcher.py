"""A small dynamic batcher: rows of different requests share model calls, and nobody waits for anybody's mistake.

One loop makes one model call at a time, off the event loop. A call takes the oldest waiting row and the waiting rows
of the same model nearest to it in length: nothing starves, little is padding, and two versions never meet in a call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from data.errors import DaymillError

Ids = NDArray[np.int32]
Logits = NDArray[np.float32]
log = logging.getLogger("daymill.serving")


class Model(Protocol):
    def logits(self, rows: Sequence[Ids], /) -> Logits: ...


class Overloaded(DaymillError):
    """The queue is full; try again in a moment."""


class ModelFailed(DaymillError):
    """The model raised on the rows of this request."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a model call and of the queue before it."""

    max_rows: int = 32  # rows a model call
    max_tokens: int = 8192  # tokens a model call, padding included; a longer single row goes alone
    max_wait_ms: float = 1.0  # how long a row waits for company while the model is idle
    queue_rows: int = 1024  # rows waiting; beyond that requests are refused

    def __post_init__(self) -> None:
        if min(self.max_rows, self.max_tokens, self.queue_rows) < 1 or self.max_wait_ms < 0:
            raise DaymillError(f"{self}: expected at least 1 row and token, and no negative wait")


@dataclass(frozen=True)
class Call:
    """What a finished model call was, for the metrics."""

    rows: int
    tokens: int  # real ones
    padded: int  # with padding
    seconds: float


@dataclass(eq=False)
class Job:
    """The rows of one request and what has been answered of them."""

    model: Model
    rows: Sequence[Ids]
    future: asyncio.Future[Logits]
    since: float = field(default_factory=time.perf_counter)
    answered: dict[int, Logits] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Waiting:
    """One row in the queue."""

    job: Job
    at: int

    @property
    def length(self) -> int:
        return len(self.job.rows[self.at])


class Batcher:
    """`await infer(model, rows)` from any number of tasks; `start()` and `close()` around it."""

    def __init__(self, limits: Limits, on_call: Callable[[Call], None] | None = None) -> None:
        self.limits = limits
        self.on_call = on_call
        self.queue: list[Waiting] = []
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self.loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.loop = asyncio.create_task(self._serve(), name="batcher")

    async def close(self) -> None:
        """Stop; requests that still wait are refused."""
        if self.loop is not None:
            self.loop.cancel()
            await asyncio.gather(self.loop, return_exceptions=True)
        refuse(waiting.job for waiting in self.queue)
        self.queue.clear()
        await asyncio.to_thread(self.thread.shutdown)  # a call under way ends first

    @property
    def depth(self) -> int:
        """Rows waiting for a call."""
        return len(self.queue)

    async def infer(self, model: Model, rows: Sequence[Ids]) -> Logits:
        """Logits [N, C] of `rows`. Raises Overloaded when the queue has no room, ModelFailed when the model raises."""
        if not rows:
            raise ValueError("no rows")
        if len(self.queue) + len(rows) > self.limits.queue_rows:
            self._drop_cancelled()
            if len(self.queue) + len(rows) > self.limits.queue_rows:
                raise Overloaded(f"{len(self.queue)} rows wait already; at most {self.limits.queue_rows} may")
        job = Job(model, rows, asyncio.get_running_loop().create_future())
        self.queue.extend(Waiting(job, at) for at in range(len(rows)))
        self.arrived.set()
        return await job.future

    async def _serve(self) -> None:
        while True:
            await self.arrived.wait()
            await self._wait_for_company()
            self._drop_cancelled()
            if not self.queue:
                self.arrived.clear()
                continue
            call = choose(self.queue, self.limits)
            taken = set(call)
            self.queue = [waiting for waiting in self.queue if waiting not in taken]
            await self._answer(call)

    async def _wait_for_company(self) -> None:
        while 0 < len(self.queue) < self.limits.max_rows:
            left = self.queue[0].job.since + self.limits.max_wait_ms / 1e3 - time.perf_counter()
            if left <= 0:
                return
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), left)
            except TimeoutError:
                self.arrived.set()

    async def _answer(self, call: list[Waiting]) -> None:
        """One model call; when it fails, each request of it alone, so that only the guilty one sees the error."""
        jobs = list(dict.fromkeys(waiting.job for waiting in call))
        try:
            await self._call(call)
        except asyncio.CancelledError:
            refuse(jobs)
            raise
        except Exception as error:
            if len(jobs) == 1:
                log.error("model call of %d rows failed: %s: %s", len(call), type(error).__name__, error)
                if not jobs[0].future.done():
                    jobs[0].future.set_exception(ModelFailed(f"the model failed on this request ({error})"))
                return
            for job in jobs:
                await self._answer([waiting for waiting in call if waiting.job is job])

    async def _call(self, call: list[Waiting]) -> None:
        rows = [waiting.job.rows[waiting.at] for waiting in call]
        start = time.perf_counter()
        logits = await asyncio.get_running_loop().run_in_executor(self.thread, call[0].job.model.logits, rows)
        longest = max(len(row) for row in rows)
        if self.on_call is not None:
            self.on_call(Call(len(rows), sum(map(len, rows)), longest * len(rows), time.perf_counter() - start))
        for waiting, row in zip(call, logits, strict=True):
            job = waiting.job
            job.answered[waiting.at] = row
            if len(job.answered) == len(job.rows) and not job.future.done():
                job.future.set_result(np.stack([job.answered[at] for at in range(len(job.rows))]))

    def _drop_cancelled(self) -> None:
        self.queue = [waiting for waiting in self.queue if not waiting.job.future.done()]


def refuse(jobs: Iterable[Job]) -> None:
    """Answer requests whose turn will not come."""
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(Overloaded("the server is stopping"))


def choose(queue: Sequence[Waiting], limits: Limits) -> list[Waiting]:
    """The rows of the next call: the oldest one and, of its model, those nearest in length that fit."""
    oldest = queue[0]
    same = [waiting for waiting in queue if waiting.job.model is oldest.job.model]
    same.sort(key=lambda waiting: abs(waiting.length - oldest.length))  # stable: older first among equals
    call, longest = [oldest], oldest.length
    for waiting in same:
        if len(call) >= limits.max_rows:
            break
        longer = max(longest, waiting.length)
        if waiting is not oldest and (len(call) + 1) * longer <= limits.max_tokens:
            call.append(waiting)
            longest = longer
    return call
