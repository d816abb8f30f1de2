"""A stream cut into chunks of whole lines, for readers that take many lines at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Chunk(NamedTuple):
    """Whole lines with their LF; or one line by itself where `size` says how long it is without its LF.

    A line stands alone where no LF ends it (`ended` is false: the end of the stream), and where it is over the limit:
    `data` is then cut to its first bytes.
    """

    offset: int
    data: bytes
    size: int = -1
    ended: bool = True


def line_chunks(
    stream: Iterator[bytes], wanted: Callable[[], int], limit: int, keep: int, start: int = 0
) -> Iterator[Chunk]:
    """Chunks of about as many bytes as are `wanted` at the time.

    `limit` bytes are the longest line that is held, longer ones are cut to `keep`; `start` is the offset of the
    stream's first byte.
    """
    offset, rest = start, b""
    parts: list[bytes] = []
    held = 0
    for block in stream:
        parts.append(block)
        held += len(block)
        if held < wanted():
            continue
        data = b"".join(parts)
        end = data.rfind(b"\n") + 1
        if end:
            yield Chunk(offset, data[:end])
            offset += end
            rest = data[end:]
        elif held > limit:
            head, cut, rest, ended = long_line(data, stream, keep)
            yield Chunk(offset, head, cut, ended)
            offset += cut + ended
        else:
            rest = data
        parts, held = [rest], len(rest)
    data = b"".join(parts)
    end = data.rfind(b"\n") + 1
    if end:
        yield Chunk(offset, data[:end])
    if len(data) > end:
        size = len(data) - end
        yield Chunk(offset + end, data[end:] if size <= limit else data[end : end + keep], size, False)


def long_line(begin: bytes, stream: Iterator[bytes], keep: int) -> tuple[bytes, int, bytes, bool]:
    """The first bytes of a line that begins with `begin`, its length, what follows it, and whether it ended."""
    head, size = begin[:keep], len(begin)
    for block in stream:
        end = block.find(b"\n")
        piece = block if end < 0 else block[:end]
        head += piece[: keep - len(head)]
        size += len(piece)
        if end >= 0:
            return head, size, block[end + 1 :], True
    return head, size, b"", False
