"""Who is told how a training run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Bar(Protocol):
    def advance(self, n: int = 1, note: str = "") -> Any: ...


class Curves(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...
