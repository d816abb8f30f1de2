"""Contestants in processes of their own, taking turns: one works while the others wait, so none steals cores."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def contest(script: Path, names: list[str], rounds: int) -> dict[str, list[float]]:
    """Start `script NAME` for each name and ask each in turn for a figure, `rounds` times.

    A contestant says "ready" once it has warmed up, then answers every line on stdin with one number.
    Raises RuntimeError when one ends early.
    """
    return {name: [told[0] for told in answers] for name, answers in contests(script, names, rounds).items()}


def contests(script: Path, names: list[str], rounds: int) -> dict[str, list[list[float]]]:
    """As `contest`, for contestants that answer with several numbers."""
    figures: dict[str, list[list[float]]] = {name: [] for name in names}
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        for name in names:  # one after the other: a warm-up beside another one would be no warm-up
            command = [sys.executable, str(script), name]
            processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            expect(name, processes[name], "ready")
            print(f"{name}: ready", file=sys.stderr, flush=True)
        for turn in range(rounds):
            for name, process in processes.items():
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                figures[name].append([float(each) for each in expect(name, process).split()])
                print(f"round {turn + 1}/{rounds} {name}: {figures[name][-1][0]:,.0f}", file=sys.stderr, flush=True)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return figures


def expect(name: str, process: subprocess.Popen[str], prefix: str = "figure ") -> str:
    """The next line that begins with `prefix`, without it; libraries may print others."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(prefix):
            return line.removeprefix(prefix).strip()
    raise RuntimeError(f"{name} ended with exit code {process.wait()} before it answered")


def answer(measure: Callable[[], float | tuple[float, ...]]) -> None:
    """The contestant's side: measure once for every line that comes."""
    print("ready", flush=True)
    for _ in sys.stdin:
        told = measure()
        print("figure", *(told if isinstance(told, tuple) else (told,)), flush=True)


def medians(figures: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in figures.items()}
