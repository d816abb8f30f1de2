"""What an ingest has written so far, so that a killed one goes on behind its last commit and ends with the same bytes.

Row groups of the records and of the ledger are Parquet files of their own (segments) that are joined at the end; the
quarantine and the tallies of finished files are files that grow. A commit stores the rows that do not fill a group yet
and then, by one rename, `state.json`: how much of everything counts. What was written behind it is cut off or
overwritten by the run that goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import DaymillError
from data.ledger import FLUSH_ROWS, LEDGER_SCHEMA
from data.parquet_join import join_parquet
from data.shards import RECORD_SCHEMA, Grouper, conform, parquet_writer

MAX_SHARDS = 64
ONE_PART = 1 << 62  # rows: the ledger is one file
LEDGER_GROUP_BYTES = 64 << 20


class Damaged(Exception):
    """A journal that cannot go on."""


@dataclass(frozen=True)
class CommitEvery:
    """When a commit is due: whichever comes first. A killed run repeats at most this much."""

    rows: int = 50_000
    bytes: int = 64 << 20  # of what was decided
    seconds: float = 5.0


class Segments:
    """A stream of rows as one Parquet file a row group, to be joined to parts."""

    def __init__(self, folder: Path, name: str, groups: Grouper) -> None:
        self.folder, self.name, self.groups = folder, name, groups
        self.parts: list[int] = []  # segments of every finished part
        self.open = 0  # segments of the part that is being written
        self.sizes: list[int] = []  # bytes of every segment

    def write(self, table: pa.Table) -> None:
        for group, ends_part in self.groups.add(conform(table, self.groups.schema)):
            self.write_group(group, ends_part)

    def write_group(self, group: pa.Table, ends_part: bool) -> None:
        path = self.path(len(self.sizes))
        with parquet_writer(path, self.groups.schema) as writer:
            writer.write_table(group, row_group_size=group.num_rows)
        self.sizes.append(path.stat().st_size)
        self.open += 1
        if ends_part:
            self.parts.append(self.open)
            self.open = 0

    def finish(self) -> list[list[Path]]:
        """The segments of every part, what waits included."""
        if self.groups.waiting:
            self.write_group(self.groups.take(False), False)
        counts = [*self.parts, *([self.open] if self.open else [])]
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        return [[self.path(n) for n in range(end - count, end)] for count, end in zip(counts, ends)]

    def store(self, turn: int) -> dict[str, Any]:
        """Keep the rows that wait; returns what `restore` needs."""
        waiting = f"{self.name}-waiting-{turn % 2}.arrow"  # the one of the commit before stays until this one counts
        with pa.ipc.new_file(self.folder / waiting, self.groups.schema) as file:
            for table in self.groups.waiting:
                file.write_table(table)
        return {
            "waiting": waiting,
            "parts": self.parts,
            "open": self.open,
            "sizes": self.sizes,
            "shards": self.groups.shards,
            "part_rows": self.groups.part_rows,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.parts, self.open, self.sizes = state["parts"], state["open"], state["sizes"]
        for number, size in enumerate(self.sizes):
            if self.path(number).stat().st_size != size:
                raise ValueError(f"{self.path(number).name} is not as it was committed")
        self.groups.shards, self.groups.part_rows = state["shards"], state["part_rows"]
        self.write(pa.ipc.open_file(pa.BufferReader((self.folder / state["waiting"]).read_bytes())).read_all())

    def paths(self) -> list[Path]:
        return [self.path(number) for number in range(len(self.sizes))]

    def path(self, number: int) -> Path:
        return self.folder / f"{self.name}-{number:06d}.parquet"


class Journal:
    """The outputs of an ingest in the making, in a folder of their own."""

    def __init__(self, folder: Path, shard_rows: int, every: CommitEvery) -> None:
        self.folder, self.every = folder, every
        folder.mkdir(parents=True, exist_ok=True)
        self.records = Segments(folder, "records", Grouper(RECORD_SCHEMA, shard_rows, MAX_SHARDS))
        groups = Grouper(LEDGER_SCHEMA, ONE_PART, 1, FLUSH_ROWS, LEDGER_GROUP_BYTES)
        self.ledger = Segments(folder, "ledger", groups)
        self.quarantine = Growing(folder / "quarantine.jsonl")
        self.tallies = Growing(folder / "tallies.jsonl")
        self.commits = 0
        self.rows = self.bytes = 0  # since the last commit
        self.since = time.monotonic()

    def add(self, records: pa.Table, ledger: pa.Table, quarantine: bytes) -> None:
        """Decisions on some records."""
        self.records.write(records)
        self.ledger.write(ledger)
        self.quarantine.append(quarantine)
        self.rows += ledger.num_rows
        self.bytes += records.nbytes + len(quarantine)

    def due(self) -> bool:
        """Whether it is time for a commit."""
        every = self.every
        waited = time.monotonic() - self.since >= every.seconds
        return self.rows > 0 and (self.rows >= every.rows or self.bytes >= every.bytes or waited)

    def commit(self, progress: dict[str, Any]) -> None:
        """From here on a killed run goes on behind what was added so far, with this progress."""
        self.commits += 1
        state = {
            "commits": self.commits,
            "records": self.records.store(self.commits),
            "ledger": self.ledger.store(self.commits),
            "quarantine": self.quarantine.flush(),
            "tallies": self.tallies.flush(),
            "progress": progress,
        }
        beside = self.folder / "state.json.writing"
        beside.write_text(json.dumps(state), encoding="utf-8")
        os.replace(beside, self.folder / "state.json")
        self.rows = self.bytes = 0
        self.since = time.monotonic()

    def resume(self) -> dict[str, Any] | None:
        """The progress of the last commit, everything behind it forgotten; None where there was none.

        To be called before anything is added. Raises Damaged where what was committed is not there as it was, which a
        killed process does not do, but a machine without power may.
        """
        path = self.folder / "state.json"
        if not path.exists():
            self.quarantine.cut(0)
            self.tallies.cut(0)
            return None
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            self.records.restore(state["records"])
            self.ledger.restore(state["ledger"])
            self.quarantine.cut(state["quarantine"])
            self.tallies.cut(state["tallies"])
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise Damaged(f"{self.folder} does not hold what its last commit says: {error}") from None
        self.commits = state["commits"]
        progress: dict[str, Any] = state["progress"]
        return progress

    def kept_ids(self) -> Iterator[list[str]]:
        """Ids of the records that were kept before the last commit."""
        for path in self.records.paths():
            yield pq.read_table(path, columns=["id"])["id"].to_pylist()
        for table in self.records.groups.waiting:
            yield table["id"].to_pylist()

    def finish(self, records: Path, ledger: Path, quarantine: Path) -> None:
        """Write the outputs. The journal stays as it is: a run that is killed here finishes again."""
        records.mkdir(parents=True, exist_ok=True)
        if next(records.glob("part-*.parquet"), None):
            raise DaymillError(f"{records} already holds shards; write to a new folder")
        for number, segments in enumerate(self.records.finish()):
            beside = records / f".part-{number:05d}.writing"
            join_parquet(segments, beside)
            beside.rename(records / f"part-{number:05d}.parquet")
        (segments,) = self.ledger.finish()
        join_parquet(segments, ledger)
        self.quarantine.flush()
        shutil.copyfile(self.quarantine.path, quarantine)

    def close(self) -> None:
        self.quarantine.file.close()
        self.tallies.file.close()


class Growing:
    """A file that only grows between commits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: BinaryIO = path.open("ab")

    def append(self, data: bytes) -> None:
        self.file.write(data)

    def flush(self) -> int:
        """Bytes so far, all of them in the file."""
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size

    def cut(self, size: int) -> None:
        if os.fstat(self.file.fileno()).st_size < size:
            raise ValueError(f"{self.path.name} is shorter than it was committed")
        self.file.truncate(size)
