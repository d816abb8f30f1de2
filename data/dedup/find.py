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

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.dedup.bands import Bands, choose_bands
from data.dedup.blocks import near_pairs
from data.dedup.candidates import bucket_pairs, buckets, representatives, spanning_forest
from data.dedup.meet import Signed, best_of_equals, in_order_of_content, involved
from data.dedup.minhash import SHINGLE
from data.dedup.passes import Passes
from data.dedup.sign import Protects, VetoTask, veto_pairs
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
    that share a bucket are all compared with each other, of a larger bucket that many best ones with all others.

    With `simhash` pairs of fingerprints at Hamming distance 3 or less are candidates too. That takes one more pass, for
    the frequencies of words, and adds little to what the bands find: it is for texts that share rare words and no runs.
    """

    jaccard: float = 0.8
    recall: float = 0.99
    floor: float = 0.7
    max_bucket: int = 64
    shingle: int = SHINGLE
    simhash: bool = False

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
    twice, three times with `simhash`. `meet` tells which of the given rows share one of so many bands.
    """
    engine = Local(workers) if isinstance(workers, int) else workers
    passes = Passes(shards, work, engine, config.shingle, advance)
    bands = config.bands
    signed = passes.sign(bands, config.simhash)
    lone = best_of_equals(signed)
    near = _near_fingerprints(signed, lone, config.max_bucket) if config.simhash else np.empty((0, 2), np.int64)
    rows = in_order_of_content(signed, np.union1d(meet(signed, lone, bands.count), near))
    sets = Sets.of(passes.spill(rows, protect), rows, work / "shingles.bin")
    merges, links, candidates = _verified(signed, rows, sets, near, config)
    vetoes = _vetoes(merges, links, sets, protect, passes.engine)
    pairs = joined(merges, links)
    order = np.lexsort([pairs.b, pairs.a])
    columns = [rows[pairs.a[order]], rows[pairs.b[order]], pairs.similarity[order], vetoes.take(pa.array(order))]
    report = {
        "bands": bands.count,
        "rows_of_a_band": bands.rows,
        "records": sum(passes.rows),
        "searched": len(lone),
        "involved": len(rows),
        "candidates": candidates,
        "pairs": len(order),
        "vetoed": dict(sorted(Counter(kind for kind in vetoes.to_pylist() if kind is not None).items())),
    }
    return Found(pa.table(columns, schema=PAIRS_SCHEMA), report)


def _verified(
    signed: Signed, rows: np.ndarray, sets: Sets, near: np.ndarray, config: FindConfig
) -> tuple[Verified, Verified, int]:
    """Pairs that may merge; links: pairs of different fingerprints that connect what else would be apart; and how many
    candidates were verified."""
    merges, links = Pile(sets, config.floor), Pile(sets, config.floor, forest=True)
    for band in range(config.bands.count):
        keys = signed.band(band, rows)
        together, beside = buckets(keys ^ (sets.prints * ODD)), buckets(keys)
        for a, b in bucket_pairs(together, representatives(together.sizes, config.max_bucket)):
            alike = (keys[a] == keys[b]) & (sets.prints[a] == sets.prints[b])
            merges.add(a[alike], b[alike])
        for a, b in bucket_pairs(beside, np.ones_like(beside.sizes)):
            differ = sets.prints[a] != sets.prints[b]
            links.add(a[differ], b[differ])
    ascending = np.argsort(rows)
    a, b = np.sort(ascending[np.searchsorted(rows, near, sorter=ascending)], axis=1).T
    alike = sets.prints[a] == sets.prints[b]
    merges.add(a[alike], b[alike])
    links.add(a[~alike], b[~alike])
    merging, linking = merges.verified(), links.verified()
    both = joined(merging, linking)
    # the sort is stable, so that of equally similar pairs those that may merge come first
    needed = spanning_forest(len(rows), both.a, both.b, np.argsort(-both.similarity, kind="stable"))
    return merging, linking.only(needed[len(merging.a) :]), merges.seen + links.seen


def _near_fingerprints(signed: Signed, rows: np.ndarray, limit: int) -> np.ndarray:
    """Pairs of rows whose SimHash differs in 3 bits or less."""
    ordered = in_order_of_content(signed, rows)
    return ordered[near_pairs(signed.column("simhash")[ordered], limit=limit)]


def _vetoes(merges: Verified, links: Verified, sets: Sets, protect: Protects | None, engine: Engine) -> pa.StringArray:
    """The kind of difference of each pair. Links differ; those that may merge are asked where fingerprints do not say
    everything."""
    asked = joined(merges, links) if protect is not None and protect.pairwise else links
    kinds: list[str | None] = [None] * (len(merges.a) + len(links.a) - len(asked.a))
    if protect is not None:
        spans = [
            (sets.text_spans[asked.a[at:end]], sets.text_spans[asked.b[at:end]]) for at, end in _steps(len(asked.a))
        ]
        for some in engine.map(veto_pairs, [VetoTask(sets.text_files, a, b, protect) for a, b in spans]):
            kinds += some
    return pa.array(kinds, pa.string())


def _steps(count: int) -> Iterator[tuple[int, int]]:
    for at in range(0, count, VETO_PAIRS):
        yield at, at + VETO_PAIRS
