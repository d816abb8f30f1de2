"""Shards mapped over this machine's cores: in this process where there is little to do, else in worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Protocol, TypeVar

from threadpoolctl import threadpool_limits

from data.parent import end_with_parent

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Engine(Protocol):
    """Whatever can run a top-level function on many items; answers come in the items' order."""

    def map(self, function: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]: ...


class Local:
    """Up to `workers` processes; one means this process."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
        workers = min(self.workers, len(items))
        if workers < 2:
            yield from map(function, items)
            return
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=begin) as pool:
            try:
                yield from pool.map(function, items)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def begin() -> None:
    """A worker ends with its parent, leaves Ctrl-C to it, and keeps to one core: libraries' own threads would fight."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
