"""XML: the children of the root are records. Streaming, and without anything that a DTD could do.

An element of text only is a string; one with children is an object, a child that repeats a list; attributes are keys
with `@` before their name, text beside children or attributes is `#text`. Nothing is expanded, fetched or defaulted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from data.readers.item import Bad, FileNotes, Found, Item, Limits
from data.readers.stream import without_bom
from data.strict_json import Refused

XML_DEPTH = 10_000  # the parser remembers every open element: past this the rest of the file is refused
FEED = 1 << 16


def read_xml(stream: Iterator[bytes], limits: Limits, notes: FileNotes) -> Iterator[Item]:
    """Records in order. A DTD refuses the whole file; where the file breaks, one refused record is the rest of it."""
    skipped, stream = without_bom(stream, notes)
    reader = XmlReader(limits, skipped)
    pieces = (block[at : at + FEED] for block in stream for at in range(0, len(block), FEED))
    try:
        for piece in pieces:
            yield from reader.feed(piece)
        if not reader.blank:
            yield from reader.feed(b"", final=True)
        if notes.damage:  # the document is whole, the stream that held it is not
            at = reader.bytes.end
            yield Bad(reader.bytes.line_at(at), at, b"", 0, notes.damage.rule, notes.damage.note)
    except (Refused, expat.ExpatError) as error:
        yield from reader.take()
        if isinstance(error, Refused):
            rule, note = error.rule, error.note
        elif reader.final and notes.damage:
            rule, note = notes.damage.rule, notes.damage.note
        else:
            rule, note = reader.rule_of_break(), expat.ErrorString(error.code)
        rest = reader.rest(rule, note)
        for piece in pieces:  # whatever follows belongs to this one refused record
            raw = (rest.raw + piece)[: limits.raw_bytes]
            rest = rest._replace(raw=raw, size=rest.size + len(piece))
        yield rest


class XmlReader:
    """The handlers of one document; holds one record, its own bytes up to the limit, and a block."""

    def __init__(self, limits: Limits, start: int) -> None:
        self.limits, self.first = limits, start
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.text
        parser.StartDoctypeDeclHandler = self.doctype
        self.bytes = Window(start)
        self.blank = True  # nothing but space so far
        self.final = False
        self.depth = 0
        self.offset: int | None = None  # of the open record
        self.problem: Refused | None = None  # with the open record
        self.head = b""  # first bytes of an open record with a problem
        self.nodes: list[dict[str, Any]] = []  # open elements of the open record
        self.texts: list[list[str]] = []  # and their own text so far
        self.items: list[Item] = []

    def feed(self, block: bytes, final: bool = False) -> list[Item]:
        """Records that end in this block. Raises Refused or ExpatError where the file cannot be read on."""
        self.final = final
        self.bytes.append(block)
        self.blank = self.blank and not block.strip()
        if not self.blank:
            try:
                self.parser.Parse(block, final)
            except (ValueError, LookupError) as error:  # an encoding of several bytes a character, or none we know
                raise Refused("encoding", f"declared encoding: {error}; convert the file to UTF-8") from None
        at = self.place()
        if self.bytes.end - at > self.limits.max_record_bytes:
            raise Refused("size", f"one tag or comment of over {self.limits.max_record_bytes:,} bytes")
        self.bytes.forget(at if self.offset is None or self.problem else self.offset)
        return self.take()

    def place(self) -> int:
        """Offset of what the parser is at: the tag or text whose handler runs, or the first byte not yet read."""
        return self.first + max(self.parser.CurrentByteIndex, 0)

    def take(self) -> list[Item]:
        items, self.items = self.items, []
        return items

    def start(self, _name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth == 1:
            return
        if self.depth == 2:
            self.offset, self.problem = self.place(), None
        if self.depth > XML_DEPTH:
            raise Refused("depth", f"nested deeper than {XML_DEPTH:,} levels; the rest of the file is refused")
        if self.depth - 1 > self.limits.max_depth:
            self.give_up("depth", f"nested deeper than {self.limits.max_depth} levels")
        self.check_size()
        if not self.problem:
            self.nodes.append({f"@{key}": value for key, value in attributes.items()})
            self.texts.append([])

    def text(self, data: str) -> None:
        if self.texts:
            self.texts[-1].append(data)
            self.check_size()

    def end(self, name: str) -> None:
        self.depth -= 1
        if self.depth == 0:
            return
        if self.problem:
            if self.depth == 1:
                self.finish_bad(self.problem)
            return
        node, text = self.nodes.pop(), "".join(self.texts.pop())
        if self.depth > 1:
            add_child(self.nodes[-1], name, with_text(node, text) if node else text)
        else:
            self.finish(with_text(node, text))

    def doctype(self, *_: object) -> None:
        raise Refused("dtd", "a document type declaration can define entities: a file with one is refused whole")

    def check_size(self) -> None:
        limit = self.limits.max_record_bytes
        if self.offset is not None and not self.problem and self.place() - self.offset > limit:
            self.give_up("size", f"more than {limit:,} bytes")

    def give_up(self, rule: str, note: str) -> None:
        """Read on to the end of the open record without holding any more of it."""
        if not self.problem:
            assert self.offset is not None
            self.problem = Refused(rule, note)
            self.head = self.bytes.cut(self.offset, self.offset + self.limits.raw_bytes)
            self.bytes.line_at(self.offset)
            self.nodes, self.texts = [], []

    def finish(self, value: dict[str, Any]) -> None:
        assert self.offset is not None
        raw = self.bytes.cut(self.offset, self.end_of_record())
        if len(raw) > self.limits.max_record_bytes:
            self.give_up("size", self.limits.too_large(len(raw)))
            return self.finish_bad(Refused("size", self.limits.too_large(len(raw))))
        self.items.append(Found(self.bytes.line_at(self.offset), self.offset, raw, value))
        self.offset = None
        return None

    def finish_bad(self, problem: Refused) -> None:
        assert self.offset is not None
        size = self.end_of_record() - self.offset
        line = self.bytes.line_at(self.offset)
        self.items.append(
            Bad(line, self.offset, self.head[: min(size, len(self.head))], size, problem.rule, problem.note)
        )
        self.offset = self.problem = None

    def end_of_record(self) -> int:
        """The byte behind the tag that ends the record; the parser stands at `</...>`, or behind an empty `<.../>`."""
        at = self.place()
        return self.bytes.find(b">", at) + 1 if self.bytes.cut(at, at + 2) == b"</" else at

    def rest(self, rule: str, note: str) -> Bad:
        """What is refused when the file cannot be read on: from the open record, or the break, to its end."""
        at = self.offset if self.offset is not None else max(self.place(), self.bytes.at)
        head = self.head if self.problem else self.bytes.cut(at, at + self.limits.raw_bytes)
        return Bad(self.bytes.line_at(at), at, head, self.bytes.end - at, rule, note)

    def rule_of_break(self) -> str:
        """`encoding` where the bytes at the break are no UTF-8, otherwise `syntax`."""
        at = self.first + self.parser.ErrorByteIndex
        try:
            self.bytes.cut(at, at + 4).decode("utf-8")
        except UnicodeDecodeError as error:
            return "encoding" if error.start == 0 and error.reason != "unexpected end of data" else "syntax"
        return "syntax"


class Window:
    """The last bytes of a stream, addressed by their offset in it, and the line of a byte."""

    def __init__(self, start: int) -> None:
        self.buffer, self.at = b"", start
        self.line, self.counted_to = 1, start

    @property
    def end(self) -> int:
        return self.at + len(self.buffer)

    def append(self, block: bytes) -> None:
        self.buffer += block

    def cut(self, start: int, end: int) -> bytes:
        return self.buffer[start - self.at : end - self.at]

    def find(self, mark: bytes, start: int) -> int:
        """Offset of the next `mark`, or of the last byte where there is none."""
        found = self.buffer.find(mark, start - self.at)
        return self.at + found if found >= 0 else self.end - 1

    def forget(self, before: int) -> None:
        if before > self.at:
            self.line_at(before)
            self.buffer, self.at = self.buffer[before - self.at :], before

    def line_at(self, offset: int) -> int:
        """1-based line of a byte, LF only; a byte before one that was asked for has that one's line."""
        if offset > self.counted_to:
            self.line += self.buffer.count(b"\n", self.counted_to - self.at, offset - self.at)
            self.counted_to = offset
        return self.line


def with_text(node: dict[str, Any], text: str) -> dict[str, Any]:
    if text.strip():
        node["#text"] = text
    return node


def add_child(node: dict[str, Any], name: str, value: Any) -> None:
    if name not in node:
        node[name] = value
    elif isinstance(node[name], list):  # no element's own value is a list, so this one holds repeats
        node[name].append(value)
    else:
        node[name] = [node[name], value]
