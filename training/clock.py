"""Where a run's wall time goes: seconds by part, and seconds that this process waited for other ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ContextDecorator, contextmanager

import torch

WALL = "wall"
STEP = "step"  # computing and waiting for other ranks
COMPUTE, COMMUNICATION, OTHER = "compute", "communication", "other"
DATA, VALIDATION, CHECKPOINT, TELEMETRY = "data", "validation", "checkpoint", "telemetry"
PARTS = (COMPUTE, COMMUNICATION, DATA, VALIDATION, CHECKPOINT, TELEMETRY, OTHER)


def breakdown(spent: Mapping[str, float]) -> dict[str, float]:
    """Shares of the wall time by part, 1 together; empty where no time has passed."""
    wall = spent.get(WALL, 0.0)
    if wall <= 0:
        return {}
    seconds = {part: spent.get(part, 0.0) for part in PARTS}
    seconds[COMPUTE] = spent.get(STEP, 0.0) - seconds[COMMUNICATION]
    seconds[OTHER] = wall - sum(seconds.values())
    return {part: value / wall for part, value in seconds.items()}


class Clock:
    """Seconds by part of a run, in a dictionary that its state keeps. Parts inside others do not count again."""

    def __init__(self, spent: dict[str, float]) -> None:
        self.spent = spent
        self.busy = False
        self.ticked = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        if self.busy:
            yield
            return
        self.busy, begun = True, time.perf_counter()
        try:
            yield
        finally:
            self.busy = False
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begun

    def tick(self) -> float:
        """Brings the wall time up to now, and returns it."""
        now = time.perf_counter()
        self.spent[WALL] = self.spent.get(WALL, 0.0) + now - self.ticked
        self.ticked = now
        return self.spent[WALL]


class Waiting(ContextDecorator):
    """Counts the seconds of what is inside it or decorated by it; of nested ones the outermost.

    On a GPU the host does not wait for a collective, its stream does: there, the time between two events of the stream.
    """

    def __init__(self) -> None:
        self.counted = 0.0
        self.depth = 0
        self.begun = 0.0
        self.on_gpu = False
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __enter__(self) -> Waiting:
        self.depth += 1
        if self.depth == 1:
            self.begun = time.perf_counter()
            if self.on_gpu:
                self.events.append((mark(), torch.cuda.Event(enable_timing=True)))
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth:
            return
        if self.on_gpu:
            self.events[-1][1].record()
        else:
            self.counted += time.perf_counter() - self.begun

    def add(self, seconds: float) -> None:
        """Waiting that was told apart in another way; what a host sees of a GPU's work is none."""
        if not self.on_gpu:
            self.counted += max(0.0, seconds)

    def seconds(self) -> float:
        """All of it so far. On a GPU this waits until its work is done."""
        if self.events:
            torch.cuda.synchronize()
            self.counted += sum(begin.elapsed_time(end) for begin, end in self.events) / 1000
            self.events.clear()
        return self.counted


def mark() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


waiting = Waiting()  # of this process; whoever waits for another rank does it in here
