"""Files in, record shards, quarantine and ledger out, in one pass, bounded memory, and as often as it is killed."""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from data.decided import Decided, decided
from data.drift import schema_drift
from data.errors import DaymillError
from data.intake import FileTally, Intake, restored, stored
from data.journal import CommitEvery, Damaged, Journal
from data.ledger import check_conservation
from data.readers.item import FileNotes, Limits
from data.records import format_of, is_json_lines
from data.shards import count_rows
from data.validate import FieldMap

EXAMPLES = 5
OFTEN = CommitEvery()
FAST_FROM = 64_000_000  # bytes of JSON Lines: below, the scanner's loading (and once a machine, compiling) costs more
METRIC_FILES = 200  # files that are listed one by one in the metrics

Advance = Callable[[int, str], None]  # records done, note
Say = Callable[[str], None]


@dataclass(frozen=True)
class Places:
    """Where the outputs of an ingest go."""

    records: Path
    quarantine: Path
    ledger: Path


@dataclass
class IngestReport:
    """What came in and what became of it."""

    rows_in: int
    kept: int
    quarantined: int
    tallies: list[FileTally]

    def metrics(self) -> dict[str, Any]:
        """Counts by rule and by file, and what is worth knowing of the files."""
        rules: Counter[str] = Counter()
        for tally in self.tallies:
            rules.update(tally.rules)
        files = {
            tally.source: {"kept": tally.kept, "quarantined": tally.quarantined}
            for tally in self.tallies[:METRIC_FILES]
        }
        return {
            "kept": self.kept,
            "quarantined": self.quarantined,
            "repaired": sum(tally.repairs.total() for tally in self.tallies),
            "made_ids": sum(tally.made_ids for tally in self.tallies),
            "blank_lines": sum(tally.notes.blank_lines for tally in self.tallies),
            "byte_order_marks": sum(tally.notes.bom for tally in self.tallies),
            "file_count": len(self.tallies),
            "rules": dict(sorted(rules.items())),
            "files": files,
            "schema_drift": schema_drift(self.tallies),
        }


def ingest(
    files: Sequence[tuple[str, Path]],
    places: Places,
    names: FieldMap,
    limits: Limits,
    shard_rows: int = 50_000,
    advance: Advance | None = None,
    work: Path | None = None,
    say: Say | None = None,
    every: CommitEvery = OFTEN,
    fast_from: int = FAST_FROM,
) -> IngestReport:
    """Decide every record of the files, in their order, and write what was decided.

    quarantine.jsonl has one line a refused record: source, line, offset, rule, note, `bytes` (its full length) and
    `raw` (its first bytes in base64, up to the limit). The same files give the same bytes. In `work`, a folder that
    belongs to these files and options, a killed run leaves what it had done: the next one goes on behind its last
    commit and ends with the same bytes. JSON Lines of `fast_from` bytes and more in all go through the compiled
    scanner. Raises DaymillError where a mapped field is in no record, where nothing is kept, and where records are not
    conserved.
    """
    own = work is None
    folder = places.records.with_name(f".{places.records.name}.work") if work is None else work
    if own:
        shutil.rmtree(folder, ignore_errors=True)
    with Run(folder, names, limits, shard_rows, every, advance, say or (lambda _: None)) as run:
        fast = sum(path.stat().st_size for _, path in files if format_of(path) in ("jsonl", "json")) >= fast_from
        for source, path in files[run.files_done :]:
            run.take_file(source, path, fast)
        report = run.finish(places)
    if own:
        shutil.rmtree(folder)
    return report


class Run:
    """An ingest under way: the intake, its journal, and how far both are."""

    def __init__(
        self,
        folder: Path,
        names: FieldMap,
        limits: Limits,
        shard_rows: int,
        every: CommitEvery,
        advance: Advance | None,
        say: Say,
    ) -> None:
        self.advance = advance
        self.intake = Intake(names, limits)
        self.examples: list[str] = []
        self.files_done = 0
        self.cursor: tuple[int, int] | None = None  # in the file that is being read
        self.journal = Journal(folder, shard_rows, every)
        try:
            progress = self.journal.resume()
        except Damaged as damage:
            say(f"begins anew: {damage}")
            self.journal.close()
            shutil.rmtree(folder)
            self.journal = Journal(folder, shard_rows, every)
            progress = self.journal.resume()
        if progress:
            self.restore(progress)
            rows = sum(tally.found for tally in self.intake.tallies)
            say(f"goes on behind {rows:,} records that an interrupted run had done")
            if advance:
                advance(rows, self.intake.tallies[-1].source)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()

    def take_file(self, source: str, path: Path, fast: bool) -> None:
        for done in self.decide(source, path, fast):
            if not len(done):
                continue
            self.journal.add(done.records, done.ledger, quarantine_lines(done))
            self.examples += examples_of(done, EXAMPLES - len(self.examples))
            self.cursor = done.cursor
            if self.advance:
                self.advance(len(done), source)
            if self.journal.due():
                self.journal.commit(self.progress())
        self.journal.tallies.append(json.dumps(stored(self.intake.tally(source))).encode() + b"\n")
        self.files_done += 1
        self.cursor = None

    def decide(self, source: str, path: Path, fast: bool) -> Iterator[Decided]:
        """Decisions on a file, behind those that were committed."""
        tally = self.intake.tally(source)
        try:
            fast = fast and is_json_lines(path)
        except OSError:  # the readers say so in their own way
            fast = False
        if fast:
            from data.fast_intake import decide_lines

            yield from decide_lines(self.intake, source, path, self.cursor)
        else:
            tally.notes = FileNotes()  # what was committed is read over, and noticed, once more
            for batch in self.intake.decide(source, path, skip=tally.found):
                yield decided(batch)

    def progress(self) -> dict[str, Any]:
        mapper, tallies = self.intake.mapper, self.intake.tallies
        return {
            "files_done": self.files_done,
            "cursor": self.cursor,
            "tally": stored(tallies[-1])
            if len(tallies) > self.files_done
            else None,  # those of finished files are kept
            "objects": mapper.objects,
            "matched": sorted(mapper.matched),
            "examples": self.examples,
        }

    def restore(self, progress: dict[str, Any]) -> None:
        self.files_done, self.examples = progress["files_done"], progress["examples"]
        self.cursor = tuple(progress["cursor"]) if progress["cursor"] else None
        self.intake.mapper.objects = progress["objects"]
        self.intake.mapper.matched = set(progress["matched"])
        finished = self.journal.tallies.path.read_bytes().splitlines()
        under_way = [progress["tally"]] if progress["tally"] else []
        self.intake.tallies = [restored(values) for values in [*map(json.loads, finished), *under_way]]
        for ids in self.journal.kept_ids():
            self.intake.seen.admit(ids)

    def finish(self, places: Places) -> IngestReport:
        self.intake.complain()
        tallies = self.intake.tallies
        rows_in = sum(tally.found for tally in tallies)
        if not any(tally.kept for tally in tallies):
            raise DaymillError(nothing_kept(rows_in, self.examples, len(tallies)))
        if self.journal.commits:  # long enough to have been in need of it
            self.journal.commit(self.progress())
        self.journal.finish(places.records, places.ledger, places.quarantine)
        counts = check_conservation(rows_in, places.ledger)
        stored_rows = count_rows(places.records)
        if stored_rows != counts["kept"]:
            raise DaymillError(
                f"{counts['kept']:,} records were kept but {stored_rows:,} are stored: a defect, do not use them"
            )
        return IngestReport(rows_in, stored_rows, counts["quarantined"], tallies)


def quarantine_lines(done: Decided) -> bytes:
    """Lines of quarantine.jsonl."""
    entries = [
        {
            "source": done.source,
            "line": refusal.line,
            "offset": refusal.offset,
            "rule": refusal.rule,
            "note": refusal.note,
            "bytes": refusal.size,
            "raw": base64.b64encode(refusal.raw).decode(),
        }
        for refusal in done.refused
    ]
    return b"".join(orjson.dumps(entry) + b"\n" for entry in entries)


def examples_of(done: Decided, wanted: int) -> list[str]:
    """Places and rules of the first refused records, without anything of their text."""
    found = []
    for refusal in done.refused[: max(wanted, 0)]:
        line = f":{refusal.line}" if refusal.line else ""
        found.append(f"{done.source}{line}: {refusal.rule} ({refusal.note})")
    return found


def nothing_kept(rows_in: int, examples: list[str], files: int) -> str:
    if not rows_in:
        return f"no record at all in {files} file(s); expected at least one"
    listed = "\n  ".join(examples)
    return (
        f"none of {rows_in:,} records was kept; the first ones:\n  {listed}\n"
        "see every one with `daymill check FILE`, and check ingest.fields in params.yaml"
    )


def read_quarantine(path: Path) -> list[dict[str, Any]]:
    """Entries of a quarantine file, `raw` as bytes."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [entry | {"raw": base64.b64decode(entry["raw"])} for entry in entries]
