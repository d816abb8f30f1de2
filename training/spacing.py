"""When to save: as often as wished, as long as saving keeps to a small share of the run's time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from training.clock import CHECKPOINT, Clock


class Spacing:
    """Decides by what saves have cost so far, earlier processes of the run included.

    A save is due `every_s` seconds after the last one, unless it and the run's last save would take all of them over
    `share` of the wall time (0: no limit). The first one may: nobody knows yet what it costs.
    """

    def __init__(self, every_s: float, share: float, clock: Clock) -> None:
        self.every_s, self.share, self.clock = every_s, share, clock
        self.last = time.monotonic()
        self.cost = 0.0  # seconds of the last save

    def due(self) -> bool:
        if time.monotonic() - self.last < self.every_s:
            return False
        if not self.share:
            return True
        ahead = 2 * self.cost  # this one, and the one at the end
        return self.clock.spent.get(CHECKPOINT, 0.0) + ahead <= self.share * self.clock.tick()

    @contextmanager
    def saving(self) -> Iterator[None]:
        begun = time.monotonic()
        with self.clock.part(CHECKPOINT):
            yield
        self.last = time.monotonic()
        self.cost = self.last - begun
