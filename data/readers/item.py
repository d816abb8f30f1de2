"""What every reader yields, and what it is told: found and refused records, limits, and notes on a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Bounds on one record. `max_depth` counts containers inside each other, the record itself being the first."""

    max_record_bytes: int = 10 * MB
    max_depth: int = 64
    raw_bytes: int = 65_536  # of a refused record's own bytes, how many are kept for the quarantine

    def too_large(self, size: int) -> str:
        return f"{size:,} bytes, more than {self.max_record_bytes:,}"


class Found(NamedTuple):
    """A record that was read; `line` is 1-based and counts LF only, `offset` is a byte of the decompressed file."""

    line: int | None
    offset: int | None
    raw: bytes
    value: Any


class Bad(NamedTuple):
    """A record, or what is left of a file, that was refused. `size` is its full length, `raw` its first bytes."""

    line: int | None
    offset: int | None
    raw: bytes
    size: int
    rule: str
    note: str


Item = Found | Bad


@dataclass(frozen=True)
class Damage:
    """Why a compressed stream ended before its end."""

    rule: str  # "truncated" or "corrupt"
    note: str


@dataclass
class FileNotes:
    """What a reader noticed about a file besides its records."""

    bom: bool = False
    blank_lines: int = 0
    damage: Damage | None = None
    format: str = ""
    remarks: list[str] = field(default_factory=list)
