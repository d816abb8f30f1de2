"""How the files of a source differ in their fields: reported, never fatal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from data.intake import FileTally

LISTED = 20  # files and fields in a report


def schema_drift(tallies: Sequence[FileTally]) -> dict[str, dict[str, Any]]:
    """By file: fields that the first file with records lacks (`added`), that it alone has (`missing`), and fields whose
    type is another (`types`: "string -> number", from the first 1,000 records of each). Files without drift are left
    out; a field that is always null has no type and does not drift."""
    with_fields = [tally for tally in tallies if tally.shapes]
    if not with_fields:
        return {}
    first = with_fields[0]
    expected = set(first.fields())
    drift: dict[str, dict[str, Any]] = {}
    for tally in with_fields[1:]:
        found = set(tally.fields())
        changed = {
            key: f"{types_of(first, key)} -> {types_of(tally, key)}"
            for key in sorted(expected & found)
            if first.types.get(key) and tally.types.get(key) and first.types[key] != tally.types[key]
        }
        entry: dict[str, Any] = {
            "added": sorted(found - expected)[:LISTED],
            "missing": sorted(expected - found)[:LISTED],
            "types": dict(list(changed.items())[:LISTED]),
        }
        if any(entry.values()) and len(drift) < LISTED:
            drift[tally.source] = {name: value for name, value in entry.items() if value}
    return drift


def drift_warnings(drift: Mapping[str, Mapping[str, Any]], shown: int = 5) -> list[str]:
    """A line a file, for people: its new and missing fields and changed types beside the first file's."""
    lines = []
    for source, entry in list(drift.items())[:shown]:
        parts = [
            f"{word} {', '.join(entry[key])}"
            for key, word in (("added", "new"), ("missing", "without"))
            if key in entry
        ]
        parts += [f"{name}: {change}" for name, change in entry.get("types", {}).items()]
        lines.append(f"{source}: other fields than the first file: {'; '.join(parts)}")
    if len(drift) > shown:
        lines.append(f"and {len(drift) - shown} more files with other fields; see schema_drift in the stage's metrics")
    return lines


def types_of(tally: FileTally, key: str) -> str:
    return " or ".join(sorted(name.removeprefix("a ").removeprefix("an ") for name in tally.types[key]))
