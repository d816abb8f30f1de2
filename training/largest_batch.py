"""The largest micro-batch that fits, found by trial: doubled until one does not, then halved into the gap.

Each try is a process (`training.batch_trial`) under a watch that ends it at the limit, so nothing else on the machine
suffers; killed for its memory, it has answered.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from data.errors import DaymillError
from training.batch_trial import MIB, OUT_OF_MEMORY, Job, Took

ROOT = Path(__file__).resolve().parents[1]  # where a child finds its module
WATCH_EVERY_S = 0.02
FINE = 16  # the search ends where the gap is a sixteenth of what fits
SHOWN_LINES = 5  # of a try that broke


@dataclass(frozen=True)
class Try:
    """One size that was tried; speed and peak are 0 where it ended before they were known."""

    rows: int
    fits: bool
    peak_mib: float
    tokens_per_s: float
    why: str = ""  # it does not fit


def search(attempt: Callable[[int], Try], most: int) -> list[Try]:
    """Tries in their order; the largest that fits is the answer, and everything above the gap does not."""
    tries = [attempt(1)]
    while tries[-1].fits and tries[-1].rows < most:
        tries.append(attempt(min(most, 2 * tries[-1].rows)))
    if tries[-1].fits or len(tries) == 1:
        return tries
    fits, too_many = tries[-2].rows, tries[-1].rows
    while too_many - fits > max(1, fits // FINE):
        middle = (fits + too_many) // 2
        tries.append(attempt(middle))
        if tries[-1].fits:
            fits = middle
        else:
            too_many = middle
    return tries


def largest(tries: list[Try]) -> Try | None:
    return max((each for each in tries if each.fits), key=lambda each: each.rows, default=None)


def split_of(together: int, fits: int) -> tuple[int, int]:
    """Rows and accumulate whose product is `together`: as many rows as fit and divide it."""
    rows = max(each for each in range(1, min(fits, together) + 1) if together % each == 0)
    return rows, together // rows


def trial(job: Job, rows: int, longest_s: float) -> Try:
    """Run one try and say how it ended. Raises DaymillError where it broke for another reason than memory or time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.json")
        replace(job, config=job.config | {"rows": rows}).save(path)
        errors = Path(folder, "errors")
        with errors.open("w+b") as stream:
            command = [sys.executable, "-m", "training.batch_trial", str(path)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, cwd=ROOT)
            try:
                peak, why = watch(child, job.limit_mib if job.device == "cpu" else None, longest_s)
            finally:
                child.kill()
            told, _ = child.communicate()
        if why:
            return Try(rows, False, peak, 0.0, why)
        return judged(rows, child.returncode, peak, job.limit_mib, told, errors.read_text("utf-8", "replace"))


def judged(rows: int, code: int, peak: float, limit_mib: int, told: str, errors: str) -> Try:
    """What the end of a child says: its exit code, the most memory seen of it, what it printed."""
    if code == OUT_OF_MEMORY:
        return Try(rows, False, peak, 0.0, "an allocation was refused")
    if code == -signal.SIGKILL:
        return Try(rows, False, peak, 0.0, "killed by the system for its memory")
    if code:
        lines = errors.strip().splitlines()
        raise DaymillError(f"a try of {rows} rows broke: {'; '.join(lines[-SHOWN_LINES:])}")
    took = Took(**json.loads(told.splitlines()[-1]))
    if took.peak_mib > limit_mib:
        return Try(rows, False, took.peak_mib, took.tokens_per_s, "over the limit")
    return Try(rows, True, took.peak_mib, took.tokens_per_s)


def watch(child: subprocess.Popen[str], limit_mib: int | None, longest_s: float) -> tuple[float, str]:
    """The most resident memory seen of a child until it ended, and why it was ended, if it was."""
    peak, deadline = 0.0, time.monotonic() + longest_s
    process = psutil.Process(child.pid)
    while child.poll() is None:
        try:
            peak = max(peak, process.memory_info().rss / MIB)
        except psutil.NoSuchProcess:
            break
        if limit_mib is not None and peak > limit_mib:
            return peak, "over the limit"
        if time.monotonic() > deadline:
            return peak, f"took longer than {longest_s:.0f} s"
        time.sleep(WATCH_EVERY_S)
    child.wait()
    return peak, ""


def memory_to_spare() -> int:
    """MiB that are available here: to the machine, or to the container where it has fewer."""
    machine = psutil.virtual_memory().available
    return min([machine, *left_of_cgroups()]) // MIB


def left_of_cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Bytes that this process's control groups (v2, or v1's memory controller) still allow; none where none is set."""
    found: list[int] = []
    if not own.exists():
        return found
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        base = root if not controllers else root / "memory"
        here = base / path.lstrip("/")
        for folder in [here, *here.parents]:
            limit, used = folder / names[0], folder / names[1]
            if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
                found.append(max(0, int(text) - int(used.read_text()) + reclaimable(folder)))
            if folder == base:
                break
    return found


def reclaimable(group: Path) -> int:
    """Bytes of files that the kernel keeps for a control group only as long as nobody needs the memory."""
    stat = group / "memory.stat"
    pairs = (line.split() for line in stat.read_text().splitlines()) if stat.exists() else ()
    return next((int(count) for name, count in pairs if name == "inactive_file"), 0)
