"""A file's bytes, decompressed in bounded steps; of a damaged stream, everything up to the damage."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from data.readers.item import Damage, FileNotes

BLOCK = 1 << 18
# A zstd block may be 4 bytes that stand for 128 KiB, and its decompressor has no output limit: feed it little.
ZSTD_FEED = 1 << 10
ZSTD_MAX_WINDOW = 1 << 27  # what `zstd --long` needs; larger windows are asked for only to exhaust memory
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"


def blocks(path: Path, notes: FileNotes, start: int = 0) -> Iterator[bytes]:
    """Non-empty blocks of the decompressed file. gzip and zstd are told by their first bytes, not by the name.

    A stream that is cut or corrupt ends early without an exception; `notes.damage` then says why. `start` bytes of the
    decompressed file are left out, without being read where the file is plain. Raises OSError.
    """
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic[:2] == GZIP_MAGIC:
            yield from behind(gzip_blocks(file, notes), start)
        elif magic == ZSTD_MAGIC:
            yield from behind(zstd_blocks(file, notes), start)
        elif path.suffix in (".gz", ".zst"):
            kind = "gzip" if path.suffix == ".gz" else "zstd"
            if magic:
                notes.damage = Damage("corrupt", f"named {path.suffix}, but not a {kind} stream")
            else:
                notes.damage = Damage("truncated", f"an empty file is not a {kind} stream")
        else:
            file.seek(start)
            while block := file.read(BLOCK):
                yield block


def behind(stream: Iterator[bytes], start: int) -> Iterator[bytes]:
    """A stream without its first `start` bytes."""
    for block in stream:
        if start < len(block):
            yield block[start:] if start else block
        start = max(start - len(block), 0)


def gzip_blocks(file: BinaryIO, notes: FileNotes) -> Iterator[bytes]:
    """Members one after another; zero padding behind them is no damage."""
    data = file.read(BLOCK)
    while data:
        if not data.startswith(GZIP_MAGIC[: len(data)]):
            notes.damage = Damage("corrupt", "bytes that are not gzip follow the compressed data")
            return
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            data = data or file.read(BLOCK)
            before = member.copy()
            try:
                out = member.decompress(data, BLOCK)
            except zlib.error:
                yield from salvage(before, data)
                notes.damage = Damage(
                    "corrupt", "the gzip data or its checksum is wrong; records before it may be damaged"
                )
                return
            if not data and not out and not member.eof:
                notes.damage = Damage("truncated", "the gzip stream ends before its end mark")
                return
            data = member.unconsumed_tail
            if out:
                yield out
        data = member.unused_data.lstrip(b"\0")
        while not data and (more := file.read(BLOCK)):
            data = more.lstrip(b"\0")


def salvage(member: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """What a corrupt piece gives before its error. Byte by byte: zlib drops the output of the call that fails."""
    for i in range(len(data)):
        try:
            out = member.decompress(data[i : i + 1])
        except zlib.error:
            return
        if out:
            yield out


def zstd_blocks(file: BinaryIO, notes: FileNotes) -> Iterator[bytes]:
    """Frames one after another. The library's stream reader takes a cut frame for a whole one, hence frame by frame."""
    import zstandard

    engine = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW)
    data = file.read(ZSTD_FEED)
    while data:
        frame = engine.decompressobj()
        while not frame.eof:
            if not data and not (data := file.read(ZSTD_FEED)):
                notes.damage = Damage("truncated", "the zstd stream ends before its end mark")
                return
            try:
                out = frame.decompress(data)
            except zstandard.ZstdError as error:
                notes.damage = Damage("corrupt", f"the zstd data is wrong ({error})")
                return
            data = b""
            for start in range(0, len(out), BLOCK):
                yield out[start : start + BLOCK]
        data = frame.unused_data or file.read(ZSTD_FEED)


def without_bom(stream: Iterator[bytes], notes: FileNotes) -> tuple[int, Iterator[bytes]]:
    """Bytes to skip (0, or 3 for a UTF-8 byte order mark) and the stream behind them."""
    head = b""
    for block in stream:
        head += block
        if len(head) >= len(BOM):
            break
    if head.startswith(BOM):
        notes.bom = True
        head = head[len(BOM) :]
    return (len(BOM) if notes.bom else 0), itertools.chain([head] if head else [], stream)
