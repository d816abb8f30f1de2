"""A JSON array of records (or objects one after another), element by element, never as a whole.

A scanner finds where elements end by brackets and strings alone; each element is then parsed strictly by itself, so
that a bad one costs itself only, as long as its brackets balance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from data.readers.item import Bad, FileNotes, Found, Item, Limits
from data.readers.stream import without_bom
from data.strict_json import Refused, parse

SPACE = b" \t\r\n"
# A string is one token; group 1 is empty where it goes on in the next block.
BETWEEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[\[\]{},]', re.DOTALL)
INSIDE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[\[\]{}]', re.DOTALL)
STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL)
QUOTE = ord('"')
OPENING, CLOSING = frozenset(b"[{"), frozenset(b"]}")


class Element(NamedTuple):
    """Bytes between two separators, without the space around them; `raw` is cut where `size` is over the limit."""

    line: int
    offset: int
    raw: bytes
    size: int


def read_json_array(stream: Iterator[bytes], limits: Limits, notes: FileNotes) -> Iterator[Item]:
    """Elements of one array."""
    return read_elements(stream, limits, notes, wrapped=True)


def read_json_objects(stream: Iterator[bytes], limits: Limits, notes: FileNotes) -> Iterator[Item]:
    """Objects one after another with space between, each on any number of lines."""
    return read_elements(stream, limits, notes, wrapped=False)


def read_elements(stream: Iterator[bytes], limits: Limits, notes: FileNotes, wrapped: bool) -> Iterator[Item]:
    skipped, stream = without_bom(stream, notes)
    scanner = Scanner(limits, skipped, wrapped)
    for block in stream:
        for element in scanner.feed(block):
            yield decide(element, limits)
    if scanner.ended_before_the_break():
        yield decide(scanner.cut(scanner.position), limits)
    rest, complaint = scanner.rest()
    if notes.damage:
        yield Bad(rest.line, rest.offset, rest.raw[: limits.raw_bytes], rest.size, notes.damage.rule, notes.damage.note)
    elif complaint:
        yield Bad(rest.line, rest.offset, rest.raw[: limits.raw_bytes], rest.size, "syntax", complaint)


def decide(element: Element, limits: Limits) -> Item:
    line, offset, raw, size = element
    if size > limits.max_record_bytes:
        return Bad(line, offset, raw[: limits.raw_bytes], size, "size", limits.too_large(size))
    try:
        return Found(line, offset, raw, parse(raw, limits.max_depth))
    except Refused as refused:
        note = refused.note if raw else "nothing between two separators"
        return Bad(line, offset, raw[: limits.raw_bytes], size, refused.rule, note)


class Scanner:
    """Cuts a stream of blocks into elements; holds at most one element of the allowed size and a block."""

    def __init__(self, limits: Limits, start: int, wrapped: bool) -> None:
        self.limit, self.keep, self.wrapped = limits.max_record_bytes, limits.raw_bytes, wrapped
        self.buffer = b""  # begins where the current element begins
        self.base, self.line = start, 1  # byte offset and line of the buffer's first byte
        self.position = 0  # where scanning goes on
        self.depth = 0
        self.in_string = False
        self.opened, self.closed = not wrapped, False
        self.count = 0
        self.head: Element | None = None  # of an element over the limit: its place, first bytes, bytes let go so far

    def feed(self, block: bytes) -> Iterator[Element]:
        self.buffer += block
        while not self.closed and (end := self.next_end()) is not None:
            element = self.cut(end)
            last = self.wrapped and self.closed
            if not (last and self.count == 0 and not element.size):  # `[]` holds nothing
                self.count += 1
                yield element
        if len(self.buffer) > self.limit or self.closed:
            self.let_go()

    def next_end(self) -> int | None:
        """Where the current element ends in the buffer; the separator behind it is skipped. None: more is needed."""
        buffer = self.buffer
        if not self.opened:
            start = buffer.find(b"[")
            if start < 0:
                return None
            self.opened = True
            self.drop(start + 1)
            buffer = self.buffer
        position, depth = self.position, self.depth
        end = None
        while end is None:
            if self.in_string:
                token = STRING_REST.match(buffer, position)
            else:
                token = (INSIDE if depth else BETWEEN).search(buffer, position)
            if token is None:
                position = len(buffer)
                break
            mark = QUOTE if self.in_string else buffer[token.start()]
            position = token.end()
            if mark == QUOTE:
                self.in_string = not token[1]
                if self.in_string:
                    break
            elif mark in OPENING:
                depth += 1
            elif mark in CLOSING and depth:
                depth -= 1
                if depth == 0 and not self.wrapped:
                    end = position
            elif mark in CLOSING:
                self.closed = self.wrapped
                end = token.start() if self.wrapped else position
            elif self.wrapped:  # a comma between elements
                end = token.start()
        self.position, self.depth = position, depth
        return end

    def cut(self, end: int) -> Element:
        """The element that ends at `end`; the buffer goes on behind the separator."""
        element = self.element(self.buffer[:end])
        self.head = None
        self.drop(self.position)
        return element

    def element(self, body: bytes) -> Element:
        if self.head is not None:
            return self.head._replace(size=self.head.size + len(body))
        start = len(body) - len(body.lstrip(SPACE))
        raw = body.strip(SPACE)
        return Element(self.line + body.count(b"\n", 0, start), self.base + start, raw, len(raw))

    def ended_before_the_break(self) -> bool:
        """Whether a stream that broke off inside an array did so right behind a whole object."""
        whole = self.opened and not self.closed and self.depth == 0 and not self.in_string
        return whole and self.wrapped and self.buffer.rstrip(SPACE).endswith((b"}", b"]"))

    def let_go(self) -> None:
        """Forget the scanned bytes of an element that is too large to keep, or of what follows the array."""
        at = len(self.buffer) if self.closed else self.position
        body = self.buffer[:at]
        if self.head is None:
            if not body.strip(SPACE):
                return self.drop(at)
            head = self.element(body)
            start = head.offset - self.base
            self.head = head._replace(raw=head.raw[: self.keep], size=at - start)
        else:
            raw = (self.head.raw + body[: self.keep])[: self.keep]
            self.head = self.head._replace(raw=raw, size=self.head.size + at)
        return self.drop(at)

    def drop(self, count: int) -> None:
        self.line += self.buffer.count(b"\n", 0, count)
        self.base += count
        self.buffer = self.buffer[count:]
        self.position = max(self.position - count, 0)

    def rest(self) -> tuple[Element, str]:
        """What is left at the end of the stream, and what is wrong with it ("" if nothing)."""
        element = self.element(self.buffer)
        if not self.wrapped:
            return element, "the last object does not end" if element.size else ""
        if self.closed:
            return element, "text after the end of the array" if element.size else ""
        return element, "the array does not end"
