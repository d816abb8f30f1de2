"""One pipeline run and one embedded server a project: an OS lock whose file says who holds it, and since when."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from data.errors import DaymillError
from flows.settings import WORK

WRITTEN_WITHIN_S = 1.0  # a new holder has locked the file and not written it yet, or someone only looks
mine: set[Path] = set()  # held by this process: the command takes the lock, the flow that it runs finds it held


class AlreadyRunning(DaymillError):
    """Somebody else holds the lock; the message says since when and by which pid."""


def pipeline_lock(root: Path) -> Path:
    return root / WORK / "pipeline.lock"


@contextmanager
def hold(path: Path, what: str, **details: Any) -> Iterator[None]:
    """Hold the lock at `path`, or raise AlreadyRunning. The kernel frees it when the process dies, however it dies."""
    path = path.resolve()
    if path in mine:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        limit = time.monotonic() + WRITTEN_WITHIN_S
        while not taken(file):
            found = read(file)
            if found or time.monotonic() > limit:
                raise AlreadyRunning(f"{what} is already running {describe(found)}")
            time.sleep(0.02)
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "since": time.time(), **details}))
        file.flush()
        mine.add(path)
        try:
            yield
        finally:
            mine.discard(path)
            file.truncate(0)


def holder(path: Path) -> dict[str, Any] | None:
    """Who holds the lock, or None when nobody does."""
    if not path.exists():
        return None
    with path.open("a+") as file:
        if path.resolve() not in mine and taken(file):
            return None
        return read(file)


def taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read(file: IO[str]) -> dict[str, Any]:
    """What a living holder wrote; nothing when it has not written yet or the text is of one that was killed."""
    file.seek(0)
    try:
        found = dict(json.loads(file.read()))
    except ValueError:
        return {}
    return found if alive(found["pid"]) else {}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def describe(found: dict[str, Any]) -> str:
    """`since 2026-11-29 08:00:00 by pid 4711`."""
    if "since" not in found:
        return "by another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["since"]))
    return f"since {since} by pid {found['pid']}"
