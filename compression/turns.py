"""Engines timed against each other: one process each, taking turns in short blocks.

Engines that share a process steal each other's cores by spinning, and medians come out wrong by 2 to 8 times; engines
timed one after the other see different moods of the machine. The coordinator is here, the worker at the bottom.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import DaymillError


@dataclass(frozen=True)
class Contender:
    """One engine with one graph in one precision. `graph` is the graph's short name, `path` its file or folder."""

    engine: str
    precision: str
    graph: str
    path: Path

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision} {self.graph}"


@dataclass(frozen=True)
class Cell:
    """One shape of the grid: rows a call, tokens a row."""

    batch: int
    seq: int


@dataclass(frozen=True)
class Block:
    """How long one turn is: `calls` timed calls, fewer (down to 3) where they would take longer than `seconds`."""

    calls: int = 15
    seconds: float = 0.25


class Worker:
    """A process that holds one engine and runs it when told to."""

    def __init__(self, contender: Contender, threads: int, vocab_size: int) -> None:
        self.contender = contender
        command = [sys.executable, "-m", "compression.turns"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.send(
            engine=contender.engine,
            precision=contender.precision,
            path=str(contender.path),
            threads=threads,
            vocab_size=vocab_size,
        )

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise DaymillError(f"the benchmark process of {self.contender.name} ended with {self.process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise DaymillError(f"{self.contender.name}: {reply['error']}")
        return reply

    def memory_mb(self) -> float:
        self.send(memory=True)
        return float(self.receive()["memory_mb"])

    def close(self) -> None:
        """Close its stdin, which ends it; kill it when that does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def workers(contenders: Sequence[Contender], threads: int, vocab_size: int) -> Iterator[list[Worker]]:
    """One ready process for each contender; all are ended with the block, however it ends."""
    with ExitStack() as stack:
        team = []
        for contender in contenders:
            team.append(Worker(contender, threads, vocab_size))
            stack.callback(team[-1].close)
        for worker in team:
            worker.receive()
        yield team


def take_turns(
    team: Sequence[Worker], cells: Sequence[Cell], main: Sequence[Cell], block: Block, seconds: float
) -> Iterator[tuple[str, Cell, list[float]]]:
    """Times (ms) of block after block: all cells once, then the `main` cells again until `seconds` are over.

    The cells of `main` are measured in at least two rounds, however slow the machine is.
    """
    end = time.monotonic() + seconds
    rounds = 0
    while rounds < 2 or time.monotonic() < end:
        for cell in cells if rounds == 0 else main:
            for worker in team:
                worker.send(batch=cell.batch, seq=cell.seq, calls=block.calls, seconds=block.seconds)
                yield worker.contender.name, cell, worker.receive()["ms"]
        rounds += 1


def serve() -> None:
    """The worker: a first line says what to load, each further line asks for one block; ends with its stdin."""
    lines = iter(sys.stdin.readline, "")
    task = json.loads(next(lines))
    try:
        engine = load(task)
        reply({"ready": True})
        for line in lines:
            command = json.loads(line)
            if command.get("memory"):
                reply({"memory_mb": memory_mb()})
            else:
                cell, block = Cell(command["batch"], command["seq"]), Block(command["calls"], command["seconds"])
                reply({"ms": time_block(engine, cell, block, task["vocab_size"])})
    except DaymillError as error:
        reply({"error": str(error)})


def load(task: dict[str, Any]) -> Any:
    """The engine of a task; torch is imported for eager only, so that memory figures stay the engines' own."""
    path, precision, threads = Path(task["path"]), task["precision"], task["threads"]
    if task["engine"] == "eager":
        from compression.engines import open_engine

        return open_engine(task["engine"], path, precision, threads)
    from compression.sessions import open_session

    return open_session(task["engine"], path, precision, threads)


def time_block(engine: Any, cell: Cell, block: Block, vocab_size: int) -> list[float]:
    """Milliseconds of each timed call on random tokens without padding; the first call is not counted."""
    ids = np.random.default_rng(0).integers(0, vocab_size, (cell.batch, cell.seq))
    mask = np.ones_like(ids)
    engine.run(ids, mask)
    times: list[float] = []
    while len(times) < block.calls and (len(times) < 3 or sum(times) < block.seconds * 1e3):
        start = time.perf_counter()
        engine.run(ids, mask)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def memory_mb() -> float:
    """Memory of this process, MiB: its proportional share where the kernel tells it, else the resident set."""
    try:
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import psutil

    return float(psutil.Process().memory_info().rss) / (1 << 20)


def reply(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    try:
        serve()
    except BrokenPipeError:  # the coordinator was killed: nobody is left to tell
        os._exit(1)
