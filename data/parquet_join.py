"""Parquet files of one schema as one, without decoding them: their row groups are copied as they are.

A file is `PAR1`, the row groups, a footer in Thrift's compact protocol, the footer's length and `PAR1` again
(https://parquet.apache.org/docs/file-format). Joined, the row groups stand elsewhere in the file, so the offsets in
their footers move; all else stays. The result has the bytes that one writer would have written group by group.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.errors import DaymillError

MAGIC = b"PAR1"
TAIL = 8  # the footer's length and the magic

# Types of the compact protocol.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

# Fields of the structs, by their numbers in parquet.thrift.
FILE_ROWS, FILE_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_OFFSET, GROUP_ORDINAL = 1, 5, 7
CHUNK_OFFSET, CHUNK_META = 2, 3
META_OFFSETS = (9, 10, 11)  # of the data, index and dictionary pages

Struct = dict[int, tuple[int, Any]]  # field number -> type, value


def join_parquet(parts: Sequence[Path], target: Path) -> None:
    """Write the row groups of `parts`, in order, as one file. Raises DaymillError for what is no such file."""
    whole: Struct = {}
    groups: list[Struct] = []
    rows = 0
    with target.open("wb") as out:
        out.write(MAGIC)
        for part in parts:
            with part.open("rb") as file:
                footer, body = read_footer(file, part)
                for group in footer[FILE_GROUPS][1][1]:
                    move(group, out.tell() - len(MAGIC), len(groups))
                    groups.append(group)
                file.seek(len(MAGIC))
                copy(file, out, body)
            rows += footer[FILE_ROWS][1]
            whole = whole or footer
        whole[FILE_ROWS] = (I64, rows)
        whole[FILE_GROUPS] = (LIST, (STRUCT, groups))
        footer_bytes = bytearray()
        write_struct(footer_bytes, whole)
        out.write(footer_bytes + struct.pack("<I", len(footer_bytes)) + MAGIC)


def read_footer(file: Any, path: Path) -> tuple[Struct, int]:
    """The footer of a file, and how many bytes of row groups come before it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - TAIL, 0))
    tail = file.read(TAIL)
    length = struct.unpack("<I", tail[:4])[0] if len(tail) == TAIL else 0
    body = size - TAIL - length - len(MAGIC)
    if tail[4:] != MAGIC or body < 0:
        raise DaymillError(f"{path} is not a whole Parquet file; remove it and run the stage that wrote it again")
    file.seek(len(MAGIC) + body)
    return Reader(file.read(length)).struct(), body


def move(group: Struct, by: int, ordinal: int) -> None:
    """Shift all offsets of a row group; 0 stands for none."""
    shift(group, GROUP_OFFSET, by)
    if GROUP_ORDINAL in group:
        group[GROUP_ORDINAL] = (I16, ordinal)
    for chunk in group[GROUP_COLUMNS][1][1]:
        shift(chunk, CHUNK_OFFSET, by)
        for field in META_OFFSETS:
            shift(chunk[CHUNK_META][1], field, by)


def shift(fields: Struct, number: int, by: int) -> None:
    if number in fields and fields[number][1]:
        kind, value = fields[number]
        fields[number] = (kind, value + by)


def copy(source: Any, out: Any, count: int) -> None:
    while count:
        block = source.read(min(count, 1 << 20))
        if not block:
            raise DaymillError("a Parquet file became shorter while it was read")
        out.write(block)
        count -= len(block)


class Reader:
    """Thrift's compact protocol to nested values."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while header := self.byte():
            number = number + (header >> 4) if header >> 4 else unzigzag(self.varint())
            fields[number] = (header & 15, self.value(header & 15))
        return fields

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind in (I16, I32, I64):
            return unzigzag(self.varint())
        if kind == DOUBLE:
            return self.take(8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (LIST, SET):
            header = self.byte()
            count, item = header >> 4, header & 15
            count = self.varint() if count == 15 else count
            return item, [self.byte() if item in (TRUE, FALSE) else self.value(item) for _ in range(count)]
        if kind == STRUCT:
            return self.struct()
        raise DaymillError(f"a Parquet footer has a value of type {kind}, which is not known here")

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = shift_by = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift_by
            if byte < 128:
                return value
            shift_by += 7


def write_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number, (kind, value) in fields.items():
        kind = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            write_varint(out, zigzag(number))
        before = number
        if kind not in (TRUE, FALSE):
            write_value(out, kind, value)
    out.append(0)


def write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (TRUE, FALSE, BYTE):
        out.append(value)
    elif kind in (I16, I32, I64):
        write_varint(out, zigzag(value))
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        write_varint(out, len(value))
        out += value
    elif kind in (LIST, SET):
        item, items = value
        out.append(min(len(items), 15) << 4 | item)
        if len(items) >= 15:
            write_varint(out, len(items))
        for one in items:
            write_value(out, item, one)
    else:
        write_struct(out, value)


def write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    return value >> 1 if value & 1 == 0 else -(value + 1 >> 1)
