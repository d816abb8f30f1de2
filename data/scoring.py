"""Everything that is measured of a record, and nothing decided: one shard at a time, so that a killed run goes on.

A finished shard lies in the work folder under its name and is not measured again. The same functions run in this
process, in worker processes, or on other machines, with the same bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.dedup.exact import exact_key
from data.quality.languages import NO_LANGUAGE, UNDETERMINED
from data.quality.measures import MEASURES, measure_batch
from data.quality.model import LEAST_OF_LANGUAGE, QualityModel
from data.quality.rules import Rule
from data.shards import opened, read_shards, shard_files
from data.workers import Engine

IDENTITY = pa.schema(
    [
        ("id", pa.string()),
        ("exact_key", pa.binary(16)),  # null where a text is nothing
        ("digest", pa.binary(16)),  # of the text as it stands
        ("length", pa.int64()),  # characters
    ]
)
QUALITY = pa.field("quality", pa.float32())  # learned probability of being good text
MEASURED = pa.schema([*IDENTITY, *MEASURES])
SCORED = MEASURED.append(QUALITY)
BATCH_ROWS = 2_000
SURELY = 0.9  # probability of a language
JUDGED_ANYWAY = (
    UNDETERMINED,
    NO_LANGUAGE,
    "la",
)  # Latin: dummy text (lorem ipsum) is; passing it over left 1 % of noise more
LENGTH_RULES = frozenset(("min_chars", "max_chars", "min_words"))

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """One shard of records, and the file that its measures go to."""

    shard: Path
    out: Path


@dataclass(frozen=True)
class RateTask:
    """One shard of records, its measures, the learned model's folder if there is one, and the file for all scores."""

    shard: Path
    measured: Path
    model: Path | None
    out: Path


def identify(ids: Sequence[str], texts: Sequence[str]) -> pa.Table:
    """Who a record is by its content: columns IDENTITY."""
    digests = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
    columns = [list(ids), [exact_key(text) for text in texts], digests, [len(text) for text in texts]]
    return pa.table([pa.array(column, item.type) for column, item in zip(columns, IDENTITY)], schema=IDENTITY)


def measure_shard(task: Task) -> int:
    """Measure a shard of records into a Parquet file with the columns MEASURED; the number of its rows."""

    def tables() -> Iterator[pa.Table]:
        for ids, texts in texts_of(task.shard):
            identity, measures = identify(ids, texts), measure_batch(texts)
            yield pa.table([*identity.columns, *measures.columns], schema=MEASURED)

    return write_whole(tables(), task.out, MEASURED)


def write_whole(tables: Iterable[pa.Table], out: Path, schema: pa.Schema) -> int:
    """A Parquet file that has its name only when it is complete; the number of its rows."""
    beside, rows = out.with_name(f".{out.name}.writing"), 0
    with pq.ParquetWriter(beside, schema, compression="zstd", compression_level=1) as writer:
        for table in tables:
            writer.write_table(table)
            rows += table.num_rows
    os.replace(beside, out)
    return rows


def rate_shard(task: RateTask) -> int:
    """Add the learned quality of each text to a measured shard: the columns SCORED; null without a model,
    for a text that is too short to judge and for one in a language that the model has seen too little of."""
    table = pq.read_table(task.measured)
    if task.model is None:
        column = pa.nulls(table.num_rows, QUALITY.type)
    else:
        learned, rates, first = QualityModel.load(task.model), [np.empty(0, np.float32)], 0
        for _, texts in texts_of(task.shard):
            rates.append(learned_quality(learned, texts, table.select(MEASURES.names).slice(first, len(texts))))
            first += len(texts)
        column = pa.array(np.concatenate(rates), QUALITY.type, from_pandas=True)  # NaN: not judged
    return write_whole([table.append_column(QUALITY, column)], task.out, SCORED)


def learned_quality(model: QualityModel, texts: Sequence[str], measures: pa.Table) -> NDArray[np.float32]:
    """Probability of each text to be a good one; NaN where it is too short to tell, or surely in a language
    of which the model saw too little.

    Noise is often taken for some rare language, but seldom surely: a twentieth of it, against a quarter.
    """
    rates = model.score(texts, measures)
    known = model.validation.get("languages")
    if known is not None:
        own = np.isin(np.array(measures["language"].to_pylist(), dtype=object), [*known, *JUDGED_ANYWAY])
        sure = np.nan_to_num(measures["language_p"].to_numpy().astype(np.float64)) >= SURELY
        rates = np.where(sure & ~own, np.float32(np.nan), rates)
    return rates


def evidence(broken: NDArray[np.int32], rules: Sequence[Rule]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which texts are believed to be good, since they break no rule (`broken` of `decide`), and which to be noise.

    A short text is not wanted, which its rule says; that it is noise a model would then say of the longer ones too.
    """
    about_length = [at for at, rule in enumerate(rules) if rule.rule in LENGTH_RULES]
    return broken < 0, (broken >= 0) & ~np.isin(broken, about_length)


def known_languages(measures: pa.Table) -> list[str]:
    """Languages that enough of the good examples, whose measures these are, are in."""
    counts = Counter(measures["language"].drop_null().to_pylist())
    return sorted(name for name, count in counts.items() if count >= LEAST_OF_LANGUAGE)


def measure(records: Path, work: Path, engine: Engine, advance: Advance) -> list[tuple[Path, Path]]:
    """Measure every shard that `work` does not hold yet; (records shard, its measures) in order."""
    folder = work / "measured"
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [(shard, folder / shard.name) for shard in shard_files(records)]
    advance(sum(pq.read_metadata(out).num_rows for _, out in pairs if out.exists()))
    for rows in engine.map(measure_shard, [Task(shard, out) for shard, out in pairs if not out.exists()]):
        advance(rows)
    return pairs


def rate(pairs: Sequence[tuple[Path, Path]], model: Path | None, out: Path, engine: Engine, advance: Advance) -> None:
    """Write the measures with the learned quality, shard by shard, to the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = [RateTask(shard, measured, model, out / shard.name) for shard, measured in pairs]
    for rows in engine.map(rate_shard, tasks):
        advance(rows)


def read_measured(files: Sequence[Path]) -> pa.Table:
    """The measures of some shards as one table, in their order."""
    return pa.concat_tables([pq.read_table(path) for path in files])


def chosen_by_content(digests: NDArray[np.bytes_], eligible: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Up to `count` of the eligible rows, the same for any order of the records: those with the smallest hashes."""
    rows = np.flatnonzero(eligible)
    return rows[np.argsort(digests[rows], kind="stable")][:count]


def texts_at(records: Path, rows: NDArray[np.int64]) -> list[str]:
    """The texts of some rows, in the order asked for; only those are held."""
    wanted = {int(row): at for at, row in enumerate(rows.tolist())}
    found = [""] * len(rows)
    first = 0
    for batch in read_shards(records, ["text"]):
        for row in sorted(wanted.keys() & set(range(first, first + batch.num_rows))):
            found[wanted[row]] = batch.column("text")[row - first].as_py() or ""
        first += batch.num_rows
    return found


def texts_of(shard: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and texts of a shard in batches."""
    with opened(shard) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=["id", "text"]):
            yield batch.column("id").to_pylist(), [text or "" for text in batch.column("text").to_pylist()]
