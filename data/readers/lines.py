"""Lines that end at LF only, with their byte offsets, holding at most one line of the allowed size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def lines(blocks: Iterable[bytes], limit: int, keep: int, start: int = 0) -> Iterator[tuple[int, bytes, int, bool]]:
    """Yields offset, line without its LF, size in bytes, and whether a LF ended it; `start` is the first offset.

    A line over `limit` bytes is cut to its first `keep` bytes while it streams by; its size says that it was longer.
    """
    offset = start
    carry, carry_size = b"", 0
    for block in blocks:
        first, *rest = block.split(b"\n")
        carry_size += len(first)
        if carry_size <= limit:
            carry += first
        elif len(carry) > keep:
            carry = carry[:keep]
        else:
            carry += first[: keep - len(carry)]
        if not rest:
            continue
        yield offset, carry, carry_size, True
        offset += carry_size + 1
        last = rest.pop()
        for line in rest:
            size = len(line)
            yield offset, line if size <= limit else line[:keep], size, True
            offset += size + 1
        carry, carry_size = (last if len(last) <= limit else last[:keep]), len(last)
    if carry_size:
        yield offset, carry, carry_size, False
