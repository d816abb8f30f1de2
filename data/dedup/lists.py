"""How the vocabularies are written: words between white space, and tables with one value a line."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def table(text: str) -> dict[str, str]:
    """One line a value: the canonical word, then every other way to write it."""
    found: dict[str, str] = {}
    for line in text.strip().splitlines():
        canonical, *others = line.split()
        found.update(dict.fromkeys((canonical, *others), canonical))
    return found


def numbered(text: str, start: int) -> dict[str, int]:
    """The words of each line with the line's number, counted from `start`."""
    return {word: number for number, line in enumerate(text.strip().splitlines(), start) for word in line.split()}
