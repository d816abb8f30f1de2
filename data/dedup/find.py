"""Near-duplicate pairs of all records, verified, in bounded memory: the whole of level 3 but the decision.

    sign     each shard: exact key, order of content, band keys                                    (workers)
    meet     exact copies stand aside; who shares a band with another is involved                  (sort, band by band)
    spill    each shard again, involved records only: shingles, protected fingerprint, text        (workers)
    verify   exact Jaccard of candidates: those with the same fingerprint may merge, others are linked
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

from data.dedup.blocks import near_pairs
from data.dedup.config import FindConfig
from data.dedup.linking import linking
from data.dedup.meet import Signed, best_of_equals, in_order_of_content, involved
from data.dedup.merging import merging
from data.dedup.passes import Passes
from data.dedup.sign import Protects, VetoTask, veto_pairs
from data.dedup.verify import Sets, Verified, joined
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
    near = np.sort(places_of(rows, near), axis=1)
    merges, tried = merging(signed, rows, sets, near, config)
    links, tried_links = linking(signed, rows, sets, near, merges, config)
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
        "candidates": tried + tried_links,
        "pairs": len(order),
        "vetoed": dict(sorted(Counter(kind for kind in vetoes.to_pylist() if kind is not None).items())),
    }
    return Found(pa.table(columns, schema=PAIRS_SCHEMA), report)


def places_of(rows: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Where in `rows` each of the asked rows stands."""
    order = np.argsort(rows)
    return order[np.searchsorted(rows, asked, sorter=order)]


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
