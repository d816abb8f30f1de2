"""Near-duplicate pairs of all records, verified, in bounded memory: the whole of level 3 but the decision.

    sign     each shard: exact key, order of content, band keys                                    (workers)
    meet     exact copies stand aside; who shares a band with another is involved                  (sort, band by band)
    spill    each shard again, involved records only: shingles, protected fingerprint, text        (workers)
    verify   exact Jaccard of candidates; those with the same fingerprint may merge, others are linked
    veto     which protected difference keeps linked ones apart                                    (workers)

Everything from `meet` on names records by their place in the order of content, so that shards, workers and the order of
records change nothing but row numbers.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.dedup.bands import Bands, choose_bands
from data.dedup.candidates import bucket_pairs, buckets, representatives, spanning_forest
from data.dedup.meet import Signed, best_of_equals, in_order_of_content, involved
from data.dedup.minhash import SCHEME, SHINGLE
from data.dedup.sign import (
    Protects,
    SignTask,
    SpillTask,
    VetoTask,
    load,
    sign_shard,
    spill_shard,
    starts_of,
    veto_pairs,
)
from data.dedup.verify import Pile, Sets, Verified, joined
from data.workers import Engine, Local

PAIRS_SCHEMA = pa.schema(
    [
        ("a_row", pa.int64()),  # the one that comes first by content
        ("b_row", pa.int64()),
        ("similarity", pa.float64()),
        ("veto", pa.string()),  # the kind of protected difference that forbids a merge
    ]
)
VETO_PAIRS = 2_000  # of one task
ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class FindConfig:
    """`recall` of the pairs at `jaccard` is promised; verified pairs below `floor` are not stored; `max_bucket` records
    that share a bucket are all compared with each other, of a larger bucket that many best ones with all others."""

    jaccard: float = 0.8
    recall: float = 0.99
    floor: float = 0.7
    max_bucket: int = 64
    shingle: int = SHINGLE

    @property
    def bands(self) -> Bands:
        return choose_bands(self.jaccard, self.recall)


@dataclass(frozen=True)
class Found:
    """The pairs (PAIRS_SCHEMA, in order of content) and what the search went through."""

    table: pa.Table
    report: dict[str, object]


Meet = Callable[[Signed, np.ndarray, int], np.ndarray]


def find_pairs(
    shards: Sequence[Path],
    config: FindConfig,
    workers: int | Engine,
    work: Path,
    protect: Protects | None = None,
    advance: Callable[[int], None] = lambda _rows: None,
) -> pa.Table:
    """Verified pairs of the records in `shards`; see `find`."""
    return find(shards, config, workers, work, protect, advance).table


def find(
    shards: Sequence[Path],
    config: FindConfig,
    workers: int | Engine,
    work: Path,
    protect: Protects | None = None,
    advance: Callable[[int], None] = lambda _rows: None,
    meet: Meet = involved,
) -> Found:
    """Verified pairs of the records in `shards` (Parquet with `id` and `text`).

    `workers` is a number of processes or an engine. `work` is a folder for what lies between: called again with the
    same arguments it goes on where it was killed; the caller removes it in the end. `advance` counts every record
    twice. `meet` tells which of the given rows share a band.
    """
    engine = Local(workers) if isinstance(workers, int) else workers
    bands = config.bands
    signed = _sign(shards, config, engine, work, advance)
    lone = best_of_equals(signed)
    rows = in_order_of_content(signed, meet(signed, lone, bands.count))
    spilled = _spill(signed, rows, config, protect, engine, work, advance)
    sets = Sets.of(spilled, rows, work / "shingles.bin")
    prints = sets.prints
    merges, links = Pile(sets, config.floor), Pile(sets, config.floor, forest=True)
    for band in range(bands.count):
        keys = signed.band(band, rows)
        together = buckets(keys ^ (prints * ODD))
        for a, b in bucket_pairs(together, representatives(together.sizes, config.max_bucket)):
            merges.add(*_where((keys[a] == keys[b]) & (prints[a] == prints[b]), a, b))
        beside = buckets(keys)
        for a, b in bucket_pairs(beside, np.ones_like(beside.sizes)):
            links.add(*_where(prints[a] != prints[b], a, b))
    pairs, linked = merges.verified(), links.verified()
    linked = linked.only(_needed(len(rows), pairs, linked))
    vetoes = _vetoes(pairs, linked, sets, protect, engine)
    pairs = joined(pairs, linked)
    order = np.lexsort([pairs.b, pairs.a])
    columns = [rows[pairs.a[order]], rows[pairs.b[order]], pairs.similarity[order], vetoes.take(pa.array(order))]
    report = {
        "bands": bands.count,
        "rows_of_a_band": bands.rows,
        "records": len(signed.column("signed")),
        "searched": len(lone),
        "involved": len(rows),
        "candidates": merges.seen + links.seen,
        "pairs": len(order),
        "vetoed": dict(sorted(Counter(kind for kind in vetoes.to_pylist() if kind is not None).items())),
    }
    return Found(pa.table(columns, schema=PAIRS_SCHEMA), report)


def _sign(
    shards: Sequence[Path], config: FindConfig, engine: Engine, work: Path, advance: Callable[[int], None]
) -> Signed:
    kind = [SCHEME, asdict(config.bands), config.shingle]
    folder = _fresh(work, "signed", [*kind, *((path.name, *_stat(path)) for path in shards)])
    bands = config.bands
    tasks = [
        SignTask(shard, folder / f"{at:05d}", config.shingle, bands.count, bands.rows)
        for at, shard in enumerate(shards)
    ]
    signed = Signed(tuple(shards), tuple(task.out for task in tasks))
    advance(sum(len(load(task.out, "signed")) for task in tasks if task.out.exists()))
    for rows in engine.map(sign_shard, [task for task in tasks if not task.out.exists()]):
        advance(rows)
    return signed


def _spill(
    signed: Signed,
    rows: np.ndarray,
    config: FindConfig,
    protect: Protects | None,
    engine: Engine,
    work: Path,
    advance: Callable[[int], None],
) -> list[Path]:
    """For each shard the folder with what its involved records are compared by."""
    kind = [signed.folders[0].parent.name if signed.folders else "", repr(getattr(protect, "config", protect))]
    folder = _fresh(work, "spilled", [*kind, hashlib.sha256(rows.tobytes()).hexdigest()])
    sizes = np.array([len(load(of, "signed")) for of in signed.folders], np.int64)
    starts, ascending = starts_of(sizes), np.sort(rows)
    parts = np.split(ascending, np.searchsorted(ascending, starts[1:-1])) if len(sizes) else []
    tasks = [
        SpillTask(shard, folder / f"{at:05d}", config.shingle, part - starts[at], protect)
        for at, (shard, part) in enumerate(zip(signed.shards, parts, strict=True))
    ]
    advance(sum(int(size) for size, task in zip(sizes, tasks, strict=True) if task.out.exists()))
    for count in engine.map(spill_shard, [task for task in tasks if not task.out.exists()]):
        advance(count)
    return [task.out for task in tasks]


def _where(which: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a[which], b[which]


def _needed(nodes: int, merges: Verified, links: Verified) -> np.ndarray:
    """[links] bool: links that connect at their similarity what merges and stronger links leave apart."""
    both = joined(merges, links)
    is_link = np.arange(len(both.a)) >= len(merges.a)
    order = np.lexsort([both.b, both.a, is_link, -both.similarity])
    return spanning_forest(nodes, both.a, both.b, order)[len(merges.a) :]


def _vetoes(merges: Verified, links: Verified, sets: Sets, protect: Protects | None, engine: Engine) -> pa.StringArray:
    """The kind of difference of each pair: links differ; pairs that would merge are asked where fingerprints say too
    little."""
    asked = joined(merges, links) if protect is not None and protect.pairwise else links
    kinds: list[str | None] = [None] * (len(merges.a) + len(links.a) - len(asked.a))
    if protect is not None:
        tasks = [
            VetoTask(
                sets.text_files,
                sets.text_spans[asked.a[at : at + VETO_PAIRS]],
                sets.text_spans[asked.b[at : at + VETO_PAIRS]],
                protect,
            )
            for at in range(0, len(asked.a), VETO_PAIRS)
        ]
        for some in engine.map(veto_pairs, tasks):
            kinds += some
    return pa.array(kinds, pa.string())


def _fresh(work: Path, name: str, kind: Sequence[object]) -> Path:
    """The folder of this name for work of this kind; those of another kind are of no use any more."""
    folder = work / f"{name}-{hashlib.sha256(repr(kind).encode()).hexdigest()[:16]}"
    for other in work.glob(f"{name}-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stat(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
