"""JSON Lines: one strict JSON text a line; a bad line costs that line only."""

from __future__ import annotations

from collections.abc import Iterator

from data.readers.item import Bad, FileNotes, Found, Item, Limits
from data.readers.lines import lines
from data.readers.stream import without_bom
from data.strict_json import Refused, parse


def read_jsonl(stream: Iterator[bytes], limits: Limits, notes: FileNotes) -> Iterator[Item]:
    """Records of a stream of bytes; blank lines are counted, not records.

    Of a damaged stream, what ends with LF is kept and the cut tail is one refused record, also where it is empty.
    """
    skipped, stream = without_bom(stream, notes)
    number, end = 0, skipped
    for offset, line, size, ended in lines(stream, limits.max_record_bytes, limits.raw_bytes, skipped):
        number += 1
        end = offset + size + ended
        if not ended and notes.damage:
            yield Bad(number, offset, line[: limits.raw_bytes], size, notes.damage.rule, notes.damage.note)
            return
        if item := line_item(number, offset, line, size, limits):
            yield item
        else:
            notes.blank_lines += 1
    if notes.damage:
        yield Bad(number + 1, end, b"", 0, notes.damage.rule, notes.damage.note)


def line_item(number: int, offset: int, line: bytes, size: int, limits: Limits) -> Item | None:
    """The decision on one line (cut to its first bytes where it is over the limit); None for a blank one."""
    if size > limits.max_record_bytes:
        return Bad(number, offset, line[: limits.raw_bytes], size, "size", limits.too_large(size))
    try:
        return Found(number, offset, line, parse(line, limits.max_depth))
    except Refused as refused:
        if not line.strip(b" \t\r"):
            return None
        return Bad(number, offset, line[: limits.raw_bytes], size, refused.rule, refused.note)
