"""The same functions a shard on many machines: a Dask cluster maps them, and its P2P shuffle joins the bands.

The workers run this checkout and see the same folders; what they write is what this machine's cores would write, byte
for byte. Dask is imported where an engine of its kind is made.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from data.dedup.find import Meet
from data.dedup.meet import Signed, involved
from data.dedup.sign import load
from data.errors import DaymillError
from data.workers import Engine

if TYPE_CHECKING:
    import pandas as pd

Item = TypeVar("Item")
Answer = TypeVar("Answer")

CONNECT_S = 20.0
KEYS = 4_000_000  # band keys of one partition behind the shuffle: about 100 MB with the sort
PARTITIONS = 10_000
EXAMPLES = 3


def meet_of(engine: Engine) -> Meet:
    """How the records that share a band are found: by shuffling band keys over a cluster, or by sorting them here."""
    return engine.meet if isinstance(engine, Dask) else involved


class Dask:
    """A cluster that is there already: `dask scheduler` somewhere, `dask worker` on each machine.

    Every worker has to run the same code, and to see the folders that it is given under the same names.
    """

    def __init__(self, scheduler: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise DaymillError("data.engine: dask needs the extra `dask`: pip install -e .[dask]") from None
        try:
            self.client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DaymillError(
                f"no Dask scheduler answers at {scheduler} ({error}); start one (dask scheduler) or set data.scheduler"
            ) from None
        self._check(scheduler)

    def close(self) -> None:
        """Leave the cluster as it was."""
        self.client.close()

    def map(self, function: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
        """As `data.workers.Engine`: answers in the order of the items. Paths are made absolute for the workers.

        A worker that dies loses nothing, its items are done by others. Raises DaymillError where workers die of an item
        again and again, and what the function raises otherwise.
        """
        futures = self.client.map(Again(function), [absolute(item) for item in items], pure=False)
        try:
            for future in futures:
                with cluster_errors(function.__name__):
                    answer = future.result()
                yield answer
        finally:
            if self.client.status == "running":
                self.client.cancel(futures)

    def meet(self, signed: Signed, rows: np.ndarray, bands: int) -> np.ndarray:
        """Those of `rows` (ascending) that share a bucket with another one, in any band: `data.dedup.meet.involved`.

        One partition a shard and band goes into a P2P shuffle by key; behind it a key's records are in one place.
        """
        if not len(rows):
            return rows
        behind = min(PARTITIONS, len(rows) * bands // KEYS + 1)
        with cluster_errors("the join of the bands"):
            met = self.client.compute(met_rows(keyed_parts(signed, rows, bands), behind)).result()
        return np.unique(met["row"].to_numpy())

    def _check(self, scheduler: str) -> None:
        """Refuse a cluster without workers, and workers of another code: their bytes would differ."""
        from distributed import TimeoutError as NoWorkers

        try:
            self.client.wait_for_workers(1, timeout=CONNECT_S)
        except NoWorkers:
            raise DaymillError(
                f"the Dask scheduler at {scheduler} has no workers; start some: dask worker {scheduler}"
            ) from None
        ours = code_hash()
        try:
            theirs = self.client.run(code_hash)
        except ModuleNotFoundError as error:
            raise DaymillError(
                f"a worker of {scheduler} cannot import {error.name}: start the workers in an environment where this "
                "checkout is installed (pip install -e .[dask])"
            ) from None
        other = sorted(address for address, found in theirs.items() if found != ours)
        if other:
            raise DaymillError(
                f"{len(other)} of {len(theirs)} workers run other code or another Python than this process (such as "
                f"{', '.join(other[:EXAMPLES])}); update their checkout and restart them"
            )


@contextmanager
def cluster_errors(work: str) -> Iterator[None]:
    """What becomes of a cluster while it works, in words."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise DaymillError(
            f"{work}: workers died of the same piece again and again ({error}); their logs say why, most often it is "
            "memory (dask worker --memory-limit)"
        ) from None
    except CancelledError:
        raise DaymillError(
            f"{work}: the Dask scheduler is gone; start it and its workers again, the next run goes on behind the last "
            "finished shard"
        ) from None


@dataclasses.dataclass(frozen=True)
class KeyedPart:
    """One band of one shard."""

    folder: Path  # what was signed of the shard
    first: int  # the number of its first record
    rows: Path  # an .npy file: which of its rows are looked at
    band: int


def keyed_parts(signed: Signed, rows: np.ndarray, bands: int) -> list[KeyedPart]:
    """Work of the shuffle, the rows of each shard written beside what was signed of it."""
    parts, first = [], 0
    for folder in signed.folders:
        count = len(load(folder, "signed"))
        low, high = np.searchsorted(rows, [first, first + count])
        chosen = folder.absolute() / "met.npy"
        np.save(chosen, rows[low:high] - first, allow_pickle=False)
        parts += [KeyedPart(folder.absolute(), first, chosen, band) for band in range(bands)]
        first += count
    return parts


def met_rows(parts: Sequence[KeyedPart], behind: int) -> Any:
    """The rows that meet as a Dask frame: `parts` go into the shuffle, `behind` partitions come out of it."""
    import dask.dataframe as frames

    keyed = frames.from_map(keys_of_part, parts, meta=keys_of_part(None))
    shuffled = keyed.shuffle("key", npartitions=behind, shuffle_method="p2p")
    return shuffled.map_partitions(meeting, meta=meeting(keys_of_part(None)))


def keys_of_part(part: KeyedPart | None) -> pd.DataFrame:
    """Columns key uint64, band int16, row int64; without rows for None."""
    import pandas as pd

    if part is None:
        key, row, band = np.empty(0, np.uint64), np.empty(0, np.int64), 0
    else:
        local = np.load(part.rows, allow_pickle=False)
        key, row, band = load(part.folder, "bands")[part.band][local], local + part.first, part.band
    return pd.DataFrame({"key": key, "band": np.full(len(key), band, np.int16), "row": row})


def meeting(keyed: pd.DataFrame) -> pd.DataFrame:
    """The rows whose key another row of the same band has, each once."""
    key, band = keyed["key"].to_numpy(), keyed["band"].to_numpy()
    order = np.lexsort((band, key))
    key, band = key[order], band[order]
    equal = (key[1:] == key[:-1]) & (band[1:] == band[:-1])
    meets = np.zeros(len(key), bool)
    meets[1:] |= equal
    meets[:-1] |= equal
    import pandas as pd

    return pd.DataFrame({"row": np.unique(keyed["row"].to_numpy()[order[meets]])})


@dataclasses.dataclass(frozen=True)
class Again(Generic[Item, Answer]):
    """A function that can be done once more. What it wrote into the folder `out` before its worker was lost is written
    anew: a folder that is there already cannot be put in place.
    """

    function: Callable[[Item], Answer]

    def __call__(self, item: Item) -> Answer:
        out = getattr(item, "out", None)
        if isinstance(out, Path) and out.is_dir():
            shutil.rmtree(out)
        return self.function(item)


def absolute(item: Any) -> Any:
    """A task with its paths made absolute: a worker has a folder of its own."""
    if isinstance(item, Path):
        return item.absolute()
    if isinstance(item, tuple) and not hasattr(item, "_fields"):
        return tuple(map(absolute, item))
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        changed = {field.name: absolute(getattr(item, field.name)) for field in dataclasses.fields(item) if field.init}
        return dataclasses.replace(item, **changed)
    return item


def code_hash() -> str:
    """Of the Python and of every module of this package."""
    digest = hashlib.blake2b(platform.python_version().encode(), digest_size=16)
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        digest.update(f"\0{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()
