"""The passes over the shards: tasks for an engine, except for what a killed run has finished before."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from data.dedup.bands import Bands
from data.dedup.meet import Signed
from data.dedup.minhash import SCHEME
from data.dedup.sign import (
    CountTask,
    Protects,
    SignTask,
    SpillTask,
    count_shard,
    load,
    rows_of,
    sign_shard,
    spill_shard,
    starts_of,
)
from data.dedup.simhash import rarity
from data.workers import Engine, Local

SMALL = 20_000  # records that are done before a worker process has started


class Writes(Protocol):
    @property
    def shard(self) -> Path: ...

    @property
    def out(self) -> Path: ...


Task = TypeVar("Task", bound=Writes)


@dataclass
class Passes:
    """What all passes share. `work` is the folder that they write to."""

    shards: Sequence[Path]
    work: Path
    engine: Engine
    shingle: int
    advance: Callable[[int], None]
    rows: list[int] = field(init=False)  # of each shard

    def __post_init__(self) -> None:
        self.rows = [rows_of(shard) for shard in self.shards]
        if isinstance(self.engine, Local) and sum(self.rows) < SMALL:
            self.engine = Local(1)

    def sign(self, bands: Bands, simhash: bool) -> Signed:
        """Sign every shard."""
        folder = self._folder("signed", SCHEME, bands, self.shingle, simhash)
        weights = self._weights(folder / "weights.npy") if simhash else None
        tasks = [
            SignTask(shard, folder / f"{at:05d}", self.shingle, bands.count, bands.rows, weights)
            for at, shard in enumerate(self.shards)
        ]
        self._run(sign_shard, tasks)
        return Signed(tuple(self.shards), tuple(task.out for task in tasks))

    def spill(self, rows: np.ndarray, protect: Protects | None) -> list[Path]:
        """For each shard the folder with what its involved records, `rows` over all shards, are compared by."""
        asked = hashlib.sha256(rows.tobytes()).hexdigest()
        folder = self._folder("spilled", SCHEME, self.shingle, asked, protect.config if protect else None)
        starts, ascending = starts_of(np.array(self.rows, np.int64)), np.sort(rows)
        limits = np.searchsorted(ascending, starts)
        tasks = [
            SpillTask(shard, folder / f"{at:05d}", self.shingle, ascending[low:high] - starts[at], protect)
            for at, (shard, low, high) in enumerate(zip(self.shards, limits[:-1], limits[1:], strict=True))
        ]
        self._run(spill_shard, tasks)
        return [task.out for task in tasks]

    def _weights(self, path: Path) -> Path:
        if not path.exists():
            tasks = [CountTask(shard, path.parent / f"counts-{at:05d}") for at, shard in enumerate(self.shards)]
            self._run(count_shard, tasks)
            beside = path.with_name(f".{path.name}")
            np.save(beside, rarity(np.sum([load(task.out, "counts") for task in tasks], axis=0)))
            beside.replace(path)
        else:
            self.advance(sum(self.rows))
        return path

    def _run(self, function: Callable[[Task], int], tasks: Sequence[Task]) -> None:
        self.advance(sum(rows for rows, task in zip(self.rows, tasks, strict=True) if task.out.exists()))
        for rows in self.engine.map(function, [task for task in tasks if not task.out.exists()]):
            self.advance(rows)

    def _folder(self, name: str, *kind: object) -> Path:
        """The folder for work of this kind on these shards; those of another kind are of no use any more."""
        told = repr([kind, [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self.shards]])
        folder = self.work / f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
        for other in self.work.glob(f"{name}-*"):
            if other != folder:
                shutil.rmtree(other)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
