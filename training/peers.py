"""The ranks that fine-tune one classifier together, as its training sees them; one process has no peers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.layers import OneRank, View
from training.precision import Choice
from training.world import Alone, World


class Peers(Protocol):
    """The ranks that share the rows of a run, seen from one of them; each calls the same methods in the same order."""

    world: World
    view: View  # the ranks as telemetry sees them
    rank: int
    ranks: int

    def choice(self, mine: Choice) -> Choice:
        """What the first rank chose."""
        ...

    def together(self, mine: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of the ranks' arrays."""
        ...


class NoPeers:
    """A run of one process."""

    rank, ranks = 0, 1

    def __init__(self) -> None:
        self.world: World = Alone()
        self.view: View = OneRank()

    def choice(self, mine: Choice) -> Choice:
        return mine

    def together(self, mine: NDArray[np.float32]) -> NDArray[np.float32]:
        return mine
