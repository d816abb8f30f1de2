"""Progress of a stage: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

LINE_EVERY_S = 5.0
BAR_EVERY_S = 0.2


class Progress:
    """Counts done work and shows done, total, rate and time left; knows nothing of what is counted."""

    def __init__(self, label: str, total: int | None, unit: str, stream: TextIO | None = None) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.done = 0
        self.note = ""
        self.started = self.shown = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.show(final=kind is None)

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        self.note = note or self.note
        now = time.monotonic()
        if now - self.shown >= (BAR_EVERY_S if self.terminal else LINE_EVERY_S):
            self.shown = now
            self.show()

    def show(self, final: bool = False) -> None:
        line = self.line()
        if self.terminal:
            self.stream.write(f"\r\x1b[2K{line}" + ("\n" if final else ""))
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def line(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate = self.done / seconds
        parts = [
            f"{self.done:,}" + (f"/{self.total:,}" if self.total else "") + f" {self.unit}",
            f"{rate:,.0f}/s",
        ]
        if self.total and 0 < self.done < self.total:
            parts.append(f"{(self.total - self.done) / rate:.0f} s left")
        if self.note:
            parts.append(self.note)
        return f"{self.label}: " + ", ".join(parts)
