"""What a billion documents take: each step's rate on one core, and the arithmetic that follows from it.

Documents are those of `dedup_speed.py`: 200 words, one in ten an edit of the one before. Rates are seconds of CPU time
of this process, so other work on the machine disturbs them little. Run as `python benchmarks/scale.py`; docs/scale.md
says what the lines mean.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.dedup_speed import write_shards
from data.dedup.config import FindConfig
from data.dedup.find import find
from data.dedup.index import Index
from data.dedup.jaccard import jaccard
from data.dedup.meet import Signed, best_of_equals, in_order_of_content, involved
from data.dedup.protect import Protector
from data.dedup.sign import SignTask, SpillTask, load, sign_shard, spill_shard
from data.engine import Dask, keyed_parts, keys_of_part, meeting
from data.shards import read_shards, shard_files
from data.workers import Local

OUT = Path("artifacts/bench/scale.json")
DAY = 5_000  # documents of one addition to the index
KEY_BYTES = 18  # of a shuffled band key: key, band, row
NIC_BYTES_S = 1.25e9  # 10 Gbit/s
DISK_BYTES_S = 1e9  # sequential, a fast disk of one machine


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=50_000, help="that are measured on")
    parser.add_argument("--target", type=float, default=1e9, help="documents that are reckoned for")
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--cores", type=int, default=64, help="that work: no more than there are shards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        rates = measure(Path(folder), arguments.documents) | remember(Path(folder), arguments.documents)
    print("\n".join(reckon(rates, arguments.target, arguments.machines, arguments.cores)))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")


def measure(folder: Path, documents: int) -> dict[str, float]:
    """Rates a second of one core, and bytes a document."""
    config, protector = FindConfig(), Protector()
    bands = config.bands
    planted = write_shards(folder / "records", documents)
    shards = shard_files(folder / "records")
    find(shards[:1], config, Local(1), folder / "warm", protector)  # kernels compile, memos fill

    signs = [
        SignTask(shard, folder / f"signed-{at}", config.shingle, bands.count, bands.rows)
        for at, shard in enumerate(shards)
    ]
    signing = seconds(lambda: [sign_shard(task) for task in signs])
    signed = Signed(tuple(shards), tuple(task.out for task in signs))
    lone: np.ndarray = best_of_equals(signed)
    parts = keyed_parts(signed, lone, bands.count)
    sorting = seconds(lambda: [meeting(keys_of_part(part)) for part in parts])
    alone_rows = seconds(lambda: in_order_of_content(signed, best_of_equals(signed)))
    held = peak(lambda: in_order_of_content(signed, best_of_equals(signed)))
    shuffling, met = shuffle(signed, lone, bands.count)
    assert np.array_equal(met, involved(signed, lone, bands.count))

    rows = in_order_of_content(signed, met)
    starts = np.cumsum([0] + [len(load(task.out, "signed")) for task in signs])
    ascending = np.sort(rows)
    limits = np.searchsorted(ascending, starts)
    spills = [
        SpillTask(
            shard,
            folder / f"spilled-{at}",
            config.shingle,
            ascending[limits[at] : limits[at + 1]] - starts[at],
            protector,
        )
        for at, shard in enumerate(shards)
    ]
    spilling = seconds(lambda: [spill_shard(task) for task in spills])
    values = np.fromfile(spills[0].out / "shingles.bin", np.uint64)
    begins = load(spills[0].out, "starts")
    pairs = np.arange(len(begins) - 2)
    comparing = seconds(lambda: jaccard(values, begins[:-1], begins[1:], pairs, pairs + 1))
    candidates = counted(lambda: find(shards, config, Local(1), folder / "whole", protector))
    texts = [text for task in spills for text in texts_in(task.out)][:2_000]
    vetoing = seconds(lambda: [protector.veto(a, b) for a, b in pairwise(texts)])
    return {
        "documents": documents,
        "planted": planted,
        "bands": bands.count,
        "rows of a band": bands.rows,
        "signed/s": documents / signing,
        "ordered/s": documents / alone_rows,
        "keys sorted/s": len(lone) * bands.count / sorting,
        "keys shuffled/s": len(lone) * bands.count / shuffling,
        "spilled/s": len(rows) / spilling,
        "compared/s": len(pairs) / comparing,
        "vetoes/s": (len(texts) - 1) / vetoing,
        "involved share": len(rows) / documents,
        "candidates a document": candidates / documents,
        "held bytes": held / documents,
        "signature bytes": sum(map(size, (task.out for task in signs))) / documents,
        "spilled bytes": sum(map(size, (task.out for task in spills))) / len(rows),
    }


def remember(folder: Path, documents: int) -> dict[str, float]:
    """The index on disk: documents added and asked about a second of one core, and bytes of each."""
    texts, ids = [], []
    for batch in read_shards(folder / "records", ["id", "text"]):
        texts += batch["text"].to_pylist()
        ids += batch["id"].to_pylist()
    index = Index.create(folder / "index")
    half = documents // 2
    adding = 0.0
    for at in range(0, half, DAY):
        part = slice(at, min(at + DAY, half))
        adding += seconds(lambda part=part: index.add(texts[part], ids[part]))  # type: ignore[misc]
    asking = seconds(lambda: index.query(texts[half:], ids[half:]))
    total = sum(path.stat().st_size for path in (folder / "index").rglob("*.npy"))
    return {"index added/s": half / adding, "index asked/s": (documents - half) / asking, "index bytes": total / half}


def counted(work: Callable[[], Any]) -> int:
    """How many pairs the search verifies."""
    from data.dedup import verify

    pairs, real = [0], verify.jaccard

    def counting(*arguments: Any) -> np.ndarray:
        pairs[0] += len(arguments[3])
        return real(*arguments)

    verify.jaccard = counting
    try:
        work()
    finally:
        verify.jaccard = real
    return pairs[0]


def shuffle(signed: Signed, rows: np.ndarray, bands: int) -> tuple[float, np.ndarray]:
    """CPU seconds of the P2P join with scheduler, worker and client in this process, and the rows that meet."""
    warnings.filterwarnings("ignore", "The pynvml package is deprecated", FutureWarning)
    from distributed import LocalCluster

    import data.engine

    data.engine.KEYS = 100_000  # several partitions behind the shuffle, as at scale
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, host="127.0.0.1", protocol="tcp"
    ) as cluster:
        engine = Dask(cluster.scheduler_address)
        result: list[np.ndarray] = []
        engine.meet(signed, rows, 2)  # warm-up
        took = seconds(lambda: result.append(engine.meet(signed, rows, bands)))
        engine.close()
    return took, result[0]


def reckon(rates: dict[str, float], target: float, machines: int, cores: int) -> list[str]:
    keys = target * rates["bands"]
    involved_documents = target * rates["involved share"]
    candidates = target * rates["candidates a document"]
    shuffled = keys * KEY_BYTES
    wire = shuffled * (machines - 1) / machines / machines / NIC_BYTES_S
    disk = 2 * shuffled / machines / DISK_BYTES_S
    rows = [
        ("step", "a core", "core hours", f"hours, {cores} cores", "data"),
        step("sign", rates["signed/s"], "documents", target, cores, target * rates["signature bytes"]),
        step("shuffle and join bands", rates["keys shuffled/s"], "keys", keys, cores, shuffled),
        step(
            "spill the involved",
            rates["spilled/s"],
            "documents",
            involved_documents,
            cores,
            involved_documents * rates["spilled bytes"],
        ),
        step("order by content", rates["ordered/s"], "documents", target, 1, target * 42),
        step("verify candidates", rates["compared/s"], "pairs", candidates, 1, candidates * 24),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    table = [
        "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    ]
    return [
        f"{target:,.0f} documents of 200 words, {rates['bands']:.0f} bands of {rates['rows of a band']:.0f} rows, "
        f"{rates['involved share']:.1%} of them involved",
        *table,
        f"held by the process that orders: {rates['held bytes'] * target / 1e9:,.0f} GB "
        f"({rates['held bytes']:,.0f} bytes a document)",
        f"shuffle on {machines} machines: {wire / 60:,.1f} minutes on wires of 10 Gbit/s, {disk / 60:,.1f} minutes of "
        "writing and reading a disk of 1 GB/s",
        f"index on disk: {rates['index bytes']:,.0f} bytes a document; a core adds {rates['index added/s']:,.0f} "
        f"documents/s in days of {DAY:,} and asks about {rates['index asked/s']:,.0f} documents/s",
    ]


def step(name: str, rate: float, unit: str, count: float, cores: int, size_: float) -> tuple[str, ...]:
    hours = count / rate / 3600
    return name, f"{rate:,.0f} {unit}/s", f"{hours:,.1f}", f"{hours / cores:,.2f}", f"{size_ / 1e12:,.2f} TB"


def seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this process, all threads."""
    start = time.process_time()
    work()
    return max(time.process_time() - start, 1e-9)


def peak(work: Callable[[], Any]) -> int:
    """Bytes that are held at most, those of numpy's arrays included."""
    tracemalloc.start()
    work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.name != "met.npy")


def texts_in(folder: Path) -> list[str]:
    data, starts = (folder / "texts.bin").read_bytes(), load(folder, "text_starts").tolist()
    return [data[start:end].decode() for start, end in pairwise(starts)]


if __name__ == "__main__":
    main()
