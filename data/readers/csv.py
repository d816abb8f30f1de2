"""CSV with a header (RFC 4180): quotes, line breaks inside quotes, and a line and an offset for every record.

The delimiter is a comma; a tab for .tsv or, like a semicolon, where the header has no comma but has it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import Any

from data.readers.item import Bad, FileNotes, Found, Item, Limits
from data.readers.lines import lines
from data.readers.stream import without_bom
from data.strict_json import Refused

PARSER_LIMIT = 1 << 40  # the module's own bound on a field (128 KiB) is lifted: ours counts the bytes of a record


def read_csv(stream: Iterator[bytes], limits: Limits, notes: FileNotes, delimiter: str = "") -> Iterator[Item]:
    """Rows as objects of strings, empty cells as null. A row with too few or too many fields is refused (`fields`).

    Blank lines are counted, not records. A header that names a column twice or is not UTF-8 refuses the whole file.
    """
    csv.field_size_limit(PARSER_LIMIT)
    skipped, stream = without_bom(stream, notes)
    feed = LineFeed(stream, limits, notes, skipped)
    header: list[str] | None = None
    rows: Iterator[list[str]] = iter(())
    if first := feed.peek():
        rows = csv.reader(feed, delimiter=delimiter or guess_delimiter(first), strict=True)
    while True:
        feed.begin()
        try:
            row = next(rows)
            if feed.cut:
                break
            if not row:
                notes.blank_lines += feed.count
                continue
            check_text(row, feed)
            if header is None:
                header = named_columns(row)
                continue
            if len(row) != len(header):
                raise Refused("fields", f"{len(row)} fields, the header has {len(header)}")
        except StopIteration:
            break
        except (csv.Error, Refused) as error:
            if feed.cut:
                break
            refused = error if isinstance(error, Refused) else Refused("syntax", explain(error))
            if header is None:
                yield feed.rest(refused.rule, f"header: {refused.note}; the file is refused whole")
                return
            yield feed.bad(refused.rule, refused.note)
            continue
        yield Found(feed.line, feed.offset, feed.raw(), {name: cell or None for name, cell in zip(header, row)})
    if notes.damage:
        yield feed.bad(notes.damage.rule, notes.damage.note)


class LineFeed:
    """Hands lines to the csv module and remembers where the current record began and what its bytes are."""

    def __init__(self, stream: Iterator[bytes], limits: Limits, notes: FileNotes, skipped: int) -> None:
        self.limits, self.notes = limits, notes
        self.lines = lines(stream, limits.max_record_bytes, limits.raw_bytes, skipped)
        self.waiting: tuple[int, bytes, int, bool] | None = None  # peeked at
        self.number = 0  # of the last line handed out
        self.end = skipped  # the byte behind it
        self.cut = False  # the stream was damaged inside the current record
        self.begin()

    def begin(self) -> None:
        self.line, self.offset = self.number + 1, self.end
        self.parts: list[bytes] = []
        self.size = self.count = 0

    def peek(self) -> bytes:
        self.waiting = next(self.lines, None)
        return self.waiting[1] if self.waiting else b""

    def __iter__(self) -> LineFeed:
        return self

    def __next__(self) -> str:
        entry, self.waiting = self.waiting or next(self.lines, None), None
        if entry is None:
            self.cut = bool(self.notes.damage and self.parts)
            raise StopIteration
        offset, line, size, ended = entry
        self.number += 1
        self.end = offset + size + ended
        self.count += 1
        self.size += size + ended
        self.parts.append(line + b"\n" if ended else line)
        if not ended and self.notes.damage:
            self.cut = True
        if self.size > self.limits.max_record_bytes:
            self.parts = [self.raw()[: self.limits.raw_bytes]]
            raise Refused("size", self.limits.too_large(self.size))
        # Bytes that are no UTF-8 travel as surrogates, so that they refuse their own record only.
        return self.parts[-1].decode("utf-8", "surrogateescape")

    def raw(self) -> bytes:
        return b"".join(self.parts)

    def bad(self, rule: str, note: str) -> Bad:
        return Bad(self.line, self.offset, self.raw()[: self.limits.raw_bytes], self.size, rule, note)

    def rest(self, rule: str, note: str) -> Bad:
        """The current record and everything behind it as one."""
        bad = self.bad(rule, note)
        return bad._replace(size=bad.size + sum(size + ended for _, _, size, ended in self.lines))


def guess_delimiter(header: bytes) -> str:
    if b"," not in header:
        for mark in ("\t", ";"):
            if mark.encode() in header:
                return mark
    return ","


def named_columns(row: list[str]) -> list[str]:
    """Column names; one without a name is called by its place. Raises Refused for a name that comes twice."""
    names = [name or f"column {place}" for place, name in enumerate(row, 1)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Refused("header", f"columns named twice: {', '.join(map(repr, twice[:5]))}")
    return names


def check_text(row: list[str], feed: LineFeed) -> None:
    if feed.raw().isascii():
        return
    for place, cell in enumerate(row, 1):
        try:
            cell.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused("encoding", f"field {place} is not UTF-8") from None


def explain(error: csv.Error) -> str:
    """The module's complaints, the usual ones in the words of the format."""
    message = str(error)
    known: dict[str, Any] = {
        "unexpected end of data": "a quoted field does not end",
        "expected after": "text behind a closing quote",
    }
    return next((words for part, words in known.items() if part in message), message)
