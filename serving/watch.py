"""The model that answers now, and its replacement: loaded beside it, checked by its goldens, swapped in at once."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data.errors import DaymillError
from serving import releases
from serving.bundle import open_bundle, verify_goldens
from serving.engine import Engine
from serving.manifest import MANIFEST

log = logging.getLogger("daymill.serving")
RETRY_S = 30.0  # a version that was refused is tried again: a missing package or file may come


@dataclass(frozen=True)
class Target:
    """What should serve: a folder and, under releases/, the pointer's entry that says so."""

    folder: Path
    key: str


class Watch:
    """Keeps `engine` the model of `target`: a bundle folder, or a releases folder whose champion is followed.

    Readers take `engine` once and use it to the end: the old one lives until its last request is done. While a
    champion is refused (damaged, wrong answers to its goldens), the one before goes on serving and `reason` says why.
    """

    def __init__(
        self,
        target: Path,
        threads: int | None,
        poll_s: float,
        on_swap: Callable[[Engine, float], None],
        on_refusal: Callable[[], None],
    ) -> None:
        self.target, self.threads, self.poll_s = target, threads, poll_s
        self.on_swap, self.on_refusal = on_swap, on_refusal
        self.engine: Engine | None = None
        self.reason = "loading"
        self.turn = threading.Lock()  # old and new engine together use the threads of one
        self.loaded_key: str | None = None
        self.refused: tuple[str, float] = ("", 0.0)

    async def follow(self) -> None:
        """Load what should serve, then look again every `poll_s` seconds, for ever."""
        while True:
            await self.step()
            await asyncio.sleep(self.poll_s)

    async def step(self) -> None:
        """Look once; swap when another model should serve."""
        try:
            wanted = await asyncio.to_thread(find, self.target)
        except (DaymillError, OSError) as error:
            self._explain(str(error))
            return
        if wanted.key == self.loaded_key:
            return
        key, since = self.refused
        if key == wanted.key and time.monotonic() - since < RETRY_S:
            return
        try:
            engine, worst = await asyncio.to_thread(self._load, wanted.folder)
        except Exception as error:  # runtimes raise types of their own; whatever it is, the watch goes on
            self.refused = (wanted.key, time.monotonic())
            self.on_refusal()
            kind = "" if isinstance(error, DaymillError) else f"{type(error).__name__}: "
            self._explain(f"refused {wanted.folder.name}: {kind}{error}")
            return
        previous, self.engine = self.engine, engine
        self.loaded_key, self.reason = wanted.key, ""
        self.on_swap(engine, time.time())
        log.info(
            "serving %s %s on %s (%s, %d threads), goldens within %.2g%s",
            engine.manifest.name,
            engine.manifest.version,
            engine.runtime,
            engine.manifest.precision,
            engine.threads,
            worst,
            f", instead of {previous.manifest.version}" if previous else "",
        )
        for note in engine.notes:
            log.warning("%s: %s", engine.manifest.version, note)

    def _load(self, folder: Path) -> tuple[Engine, float]:
        engine = Engine(open_bundle(folder), self.threads, self.turn)
        return engine, verify_goldens(engine)

    def _explain(self, reason: str) -> None:
        if reason != self.reason:
            log.error("%s%s", reason, f"; {self.engine.manifest.version} goes on serving" if self.engine else "")
        self.reason = reason


def find(target: Path) -> Target:
    """What should serve at `target`. Raises DaymillError when nothing does yet."""
    if (target / MANIFEST).is_file():
        return Target(target, "bundle")
    current = releases.champion(target)
    if current is None:
        raise DaymillError(f"no bundle and no champion in {target}: run the pipeline, or promote a bundle")
    return Target(current.folder, current.version)
