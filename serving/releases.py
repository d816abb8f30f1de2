"""Which model serves, which did, and why: versions, a champion pointer, and a log that only grows.

    releases/versions/<version>/   a verified copy of each bundle that was promoted
    releases/champion.json         the pointer: replaced by one rename
    releases/log.jsonl             who, when, why, what, from which version to which

The pointer's rename is the commit: it carries its own log entry, and the next writer appends the entry where a crash
came in between. So the log never tells of a change that did not happen, and a change is never missing from it.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from serving.manifest import BundleError, Manifest, open_bundle, read_manifest

VERSIONS, POINTER, LOG, LOCK = "versions", "champion.json", "log.jsonl", ".lock"
SWITCHES = ("promote", "rollback")


class ReleaseError(DaymillError):
    """A release cannot be made, or the releases folder is damaged."""


@dataclass(frozen=True)
class Entry:
    """One line of the log. `action`: promote, rollback, or a decision that changed nothing (hold, reject)."""

    seq: int
    when: str  # ISO 8601, UTC, microseconds; never earlier than the entry before
    who: str
    action: str
    previous: str | None  # champion before
    version: str | None  # champion after; for hold and reject the version that was judged
    why: str
    decision: dict[str, Any] | None = None  # the gate's verdict, where one was asked


@dataclass(frozen=True)
class Champion:
    """The version that serves."""

    version: str
    folder: Path
    since: str
    entry: Entry


@dataclass(frozen=True)
class Change:
    """What a command did. `changed` is False where there was nothing to do, and `message` says so."""

    changed: bool
    version: str
    previous: str | None
    message: str


@dataclass(frozen=True)
class Status:
    """What a person asks first."""

    champion: Champion | None
    versions: tuple[Manifest, ...]
    history: tuple[Entry, ...]
    damaged: tuple[str, ...] = field(default=())


def promote(
    root: Path, bundle: Path, why: str, who: str | None = None, decision: dict[str, Any] | None = None
) -> Change:
    """Copy a bundle into versions/ and make it the champion. Raises DaymillError when a file of it is not as built."""
    manifest = open_bundle(bundle).manifest
    with writer(root) as log:
        current = champion(root)
        keep_version(root, bundle, manifest.version)
        if current is not None and current.version == manifest.version:
            return Change(False, current.version, current.version, f"{manifest.version} is the champion already")
        previous = current.version if current else None
        switch(root, log, "promote", previous, manifest.version, why, who, decision)
        return Change(
            True, manifest.version, previous, f"{manifest.version} is the champion, after {previous or 'none'}"
        )


def rollback(root: Path, to: str | None = None, *, why: str, who: str | None = None) -> Change:
    """Make an earlier champion serve again: `to`, or the one before the present one (again and again: further back).

    The files are hashed before the pointer moves. Raises ReleaseError where there is nothing to go back to.
    """
    with writer(root) as log:
        current = champion(root)
        if current is None:
            raise ReleaseError(f"{root}: nothing was released yet; promote a bundle first")
        line = succession(log)
        if to is None:
            if len(line) < 2:
                raise ReleaseError(f"{root}: {current.version} is the first champion; there is none to go back to")
            to = line[-2]
        if to == current.version:
            return Change(False, to, to, f"{to} is the champion already")
        folder = root / VERSIONS / to
        if not folder.is_dir():
            known = ", ".join(sorted(path.name for path in version_folders(root)))
            raise ReleaseError(f"{root}: no version {to!r}; expected one of {known}")
        open_bundle(folder)
        switch(root, log, "rollback", current.version, to, why, who, None)
        return Change(True, to, current.version, f"{to} serves again, instead of {current.version}")


def record(root: Path, version: str, decision: dict[str, Any], why: str, who: str | None = None) -> Entry:
    """Log a decision that changes nothing: the verdict's `decision` (HOLD, REJECT) is the action."""
    action = str(decision["decision"]).lower()
    if action in SWITCHES:
        raise ValueError(f"{action} changes the champion; use {action}()")
    with writer(root) as log:
        current = champion(root)
        entry = next_entry(log, action, current.version if current else None, version, why, who, decision)
        append(root, entry)
        return entry


def champion(root: Path) -> Champion | None:
    """The version that serves, or None before the first release."""
    entry = pointer(root)
    if entry is None or entry.version is None:
        return None
    return Champion(entry.version, root / VERSIONS / entry.version, entry.when, entry)


def status(root: Path) -> Status:
    """Champion, versions on disk and the whole log. Versions whose manifest cannot be read are named as damaged."""
    good, damaged = [], []
    for folder in version_folders(root):
        try:
            good.append(read_manifest(folder))
        except BundleError as error:
            damaged.append(str(error))
    good.sort(key=lambda manifest: manifest.created)
    return Status(champion(root), tuple(good), tuple(history(root)), tuple(damaged))


def history(root: Path) -> list[Entry]:
    """All entries, oldest first, the pointer's own included where a crash kept it out of the log."""
    entries = read_log(root)
    latest = pointer(root)
    if latest is not None and (not entries or latest.seq > entries[-1].seq):
        entries.append(latest)
    return entries


def served_at(root: Path, time: datetime) -> str | None:
    """The version that was champion at `time` (naive times are UTC); None before the first release."""
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    served = None
    for entry in history(root):
        if entry.action in SWITCHES and datetime.fromisoformat(entry.when) <= moment:
            served = entry.version
    return served


def succession(log: list[Entry]) -> list[str]:
    """The champions that stand behind the present one, it last: a promotion adds one, a rollback takes off the top."""
    line: list[str] = []
    for entry in log:
        if entry.version is None or entry.action not in SWITCHES:
            continue
        if entry.action == "rollback" and entry.version in line:
            while line[-1] != entry.version:
                line.pop()
        else:
            line.append(entry.version)
    return line


@contextmanager
def writer(root: Path) -> Iterator[list[Entry]]:
    """Be the one writer (the kernel frees the lock with the process); yields the log, completed after a crash."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        logged, full = read_log(root), history(root)
        for entry in full[len(logged) :]:
            append(root, entry)
        for leftover in (root / VERSIONS).glob(".incoming-*"):
            shutil.rmtree(leftover)
        yield full


def keep_version(root: Path, bundle: Path, version: str) -> None:
    """Copy a bundle to versions/<version>, hashed after the copy, there as a whole or not at all."""
    place = root / VERSIONS / version
    if place.exists():
        try:
            open_bundle(place)
            return
        except BundleError:
            shutil.rmtree(place)  # damaged on disk: mended by the copy that comes now
    beside = root / VERSIONS / f".incoming-{version}"
    shutil.copytree(bundle, beside)
    open_bundle(beside)
    for path in (*beside.iterdir(), beside):
        flush(path)
    os.rename(beside, place)
    flush(place.parent)


def switch(
    root: Path,
    log: list[Entry],
    action: str,
    previous: str | None,
    version: str,
    why: str,
    who: str | None,
    decision: dict[str, Any] | None,
) -> None:
    """Move the pointer by one rename, then log it."""
    entry = next_entry(log, action, previous, version, why, who, decision)
    beside = root / f".{POINTER}.writing"
    beside.write_text(json.dumps(asdict(entry), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    flush(beside)
    os.replace(beside, root / POINTER)
    flush(root)
    append(root, entry)


def next_entry(
    log: list[Entry],
    action: str,
    previous: str | None,
    version: str,
    why: str,
    who: str | None,
    decision: dict[str, Any] | None,
) -> Entry:
    if not why.strip():
        raise ReleaseError(f"{action} {version}: expected a reason; the log is read by those who come after")
    now = datetime.now(UTC)
    if log:  # a clock that was set back must not reorder history
        now = max(now, datetime.fromisoformat(log[-1].when) + timedelta(microseconds=1))
    when = now.isoformat(timespec="microseconds")
    return Entry(len(log) + 1, when, who or getpass.getuser(), action, previous, version, why.strip(), decision)


def append(root: Path, entry: Entry) -> None:
    """Add one line to the log; what a crash left of a line before it is cut off (the pointer still has that entry)."""
    path = root / LOG
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        complete = content.rfind(b"\n") + 1
        if complete != len(content):
            file.truncate(complete)
        file.write(json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_log(root: Path) -> list[Entry]:
    """The complete lines of the log. Raises ReleaseError for one that is no entry."""
    path = root / LOG
    if not path.exists():
        return []
    content = path.read_bytes()
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return [parse_entry(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def pointer(root: Path) -> Entry | None:
    path = root / POINTER
    try:
        return parse_entry(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


def parse_entry(text: bytes, where: str) -> Entry:
    try:
        return Entry(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise ReleaseError(f"{where}: not a release entry ({error})") from None


def version_folders(root: Path) -> list[Path]:
    folder = root / VERSIONS
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []


def flush(path: Path) -> None:
    """fsync of a file or folder, so that a power cut cannot keep a rename and lose what it names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
