"""Decide files as ingest would, without running anything: the library half of `daymill check`.

A file that can be decided is a success, whatever the decision: a quarantined record does not fail ingest, so it does
not fail `daymill check` either (exit code 0; who wants a gate reads `quarantined`). A path that does not exist, or a
mapping that is none, raises DaymillError (exit code 1). Files are decided one by one: an id that comes again in another
file is found by ingest only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from data.intake import Intake
from data.readers.item import Limits
from data.validate import FieldMap, field_map, unmatched_error

MAX_ENTRIES = 100_000  # listed of a file; `quarantined` counts all
SHOWN = 5  # entries of a file in the table


@dataclass(frozen=True)
class CheckResult:
    """The decision on one file. An entry is {"line", "offset", "rule"}: line 1-based (row number for Parquet) or null,
    offset in bytes (of the decompressed file; null for Parquet); a file refused whole has one entry."""

    file: str
    kept: int
    quarantined: int
    entries: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def json_line(self) -> str:
        """The line that `daymill check --json` prints for the file."""
        shown = {"file": self.file, "kept": self.kept, "quarantined": self.quarantined, "entries": self.entries}
        return json.dumps(shown, ensure_ascii=False)


def check_file(
    path: str | Path,
    fields: FieldMap | Mapping[str, str | Sequence[str] | None] | None = None,
    limits: Limits | None = None,
) -> CheckResult:
    """Decide one file. Raises DaymillError where there is no file or `fields` is no mapping."""
    file = Path(path)
    if file.is_dir():
        raise DaymillError(f"{path} is a folder; name its files, such as {file / '*'}")
    if not file.exists():
        raise DaymillError(f"{path} does not exist")
    intake = Intake(fields if isinstance(fields, FieldMap) else field_map(fields), limits or Limits())
    entries: list[dict[str, Any]] = []
    for batch in intake.decide(file.name, file):
        for place in sorted(batch.refused):
            if len(entries) < MAX_ENTRIES:
                entries.append({"line": batch.lines[place], "offset": batch.offsets[place], "rule": batch.rules[place]})
    return CheckResult(str(path), intake.tallies[0].kept, intake.tallies[0].quarantined, entries, remarks(intake))


def remarks(intake: Intake) -> list[str]:
    """What a person should know of a file besides its refused records."""
    tally = intake.tallies[0]
    notes = tally.notes
    found = [
        (notes.bom, "a byte order mark was stripped"),
        (notes.blank_lines, f"{notes.blank_lines:,} blank lines"),
        (tally.made_ids, f"{tally.made_ids:,} ids made from content"),
        (tally.repairs["date"], f"{tally.repairs['date']:,} dates that are not ISO 8601 go to extra"),
    ]
    wrong = unmatched_error(intake.mapper, intake.fields_seen())
    return [text for there, text in found if there] + ([str(wrong)] if wrong else [])


def render_table(results: Sequence[CheckResult]) -> str:
    """A table for people: a line a file, below it the first refused records, what more there is, and notes."""
    width = max([len(result.file) for result in results] + [len("file")])
    rows = [f"{'file':<{width}}  {'kept':>9}  {'quarantined':>11}"]
    for result in results:
        rows.append(f"{result.file:<{width}}  {result.kept:>9,}  {result.quarantined:>11,}")
        rows += [f"  {place_of(entry)}: {entry['rule']}" for entry in result.entries[:SHOWN]]
        if result.quarantined > SHOWN:
            by_rule = Counter(entry["rule"] for entry in result.entries)
            rules = ", ".join(f"{count:,} {rule}" for rule, count in by_rule.most_common())
            rows.append(f"  and {result.quarantined - SHOWN:,} more; in all {rules}")
        rows += [f"  note: {note}" for note in result.notes]
    if len(results) > 1:
        kept, quarantined = sum(r.kept for r in results), sum(r.quarantined for r in results)
        rows.append(f"{f'{len(results)} files':<{width}}  {kept:>9,}  {quarantined:>11,}")
    return "\n".join(rows)


def place_of(entry: Mapping[str, Any]) -> str:
    if entry["line"] is None:
        return "whole file"
    return f"line {entry['line']:,}" + (f", byte {entry['offset']:,}" if entry["offset"] is not None else "")
