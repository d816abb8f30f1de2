"""How the files of a source differ in their fields: reported, never fatal."""

from __future__ import annotations

from collections.abc import Sequence
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


def types_of(tally: FileTally, key: str) -> str:
    return " or ".join(sorted(name.removeprefix("a ").removeprefix("an ") for name in tally.types[key]))
