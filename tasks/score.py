"""score: records -> all that cleaning decides by: measures, learned quality, near-duplicate pairs, doubtful labels.

Nothing is decided here, so a changed threshold of `clean` decides anew without measuring anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from data.cleaning import Facts
from data.dedup.bands import Plan
from data.dedup.config import FindConfig
from data.dedup.find import Found, find
from data.dedup.items import KINDS
from data.dedup.protect import Protector, protect_config
from data.engine import meet_of
from data.judgments import EXAMPLES, examples
from data.quality.label_errors import SCHEMA as DOUBTS
from data.quality.label_errors import find_label_errors
from data.quality.model import LEAST_BELIEVED, LEAST_EXAMPLES, QualityModel, train_quality
from data.quality.rules import QualityConfig, decide, rules_of
from data.quality.weak import weak_examples
from data.scoring import chosen_by_content, evidence, known_languages, measure, rate, read_measured, texts_at
from data.shards import count_rows, read_shards, shard_files
from data.workers import Engine
from tasks.machines import engine
from tasks.params import Params
from tasks.stage import Context, Result, run

RECORDS = Path("artifacts/ingest/records")
OUT = Path("artifacts/score")
CHARS_A_WORD = 6  # the space behind it counted
EXPECTED_SHARE = 0.1  # of the records have a near duplicate: what the plan of the search assumes


class NearDuplicates(Params):
    """Which pairs are found and verified."""

    jaccard: float = Field(gt=0, le=1, description="similarity at which the recall is promised")
    recall: float = Field(gt=0, lt=1, description="share of the pairs at that similarity that are found")
    floor: float = Field(gt=0, le=1, description="verified pairs below it are not stored")
    max_bucket: int = Field(ge=2, description="records of a bucket that are all compared; of a larger one, leaders")
    simhash: bool = Field(description="pairs of near SimHash fingerprints are candidates too")
    protect: tuple[str, ...] = Field(description=f"differences that forbid a merge, of {', '.join(KINDS)}")
    protect_words: tuple[str, ...] = Field(description="your own words")
    protect_patterns: tuple[str, ...] = Field(description="your own regular expressions")
    substitution: Literal["content", "strict", "exact"] = Field(description="which changed words forbid a merge")
    markup: Literal["ignore", "protect"] = Field(description="numbers inside tags: sizes, colors")
    addresses: Literal["ignore", "protect"] = Field(description="numbers inside web and mail addresses")
    codes: Literal["ignore", "protect"] = Field(description="mixed letters and digits: order and payment ids")
    footers: Literal["ignore", "protect"] = Field(description="negations and years of mail footers")


class Learned(Params):
    """The learned quality model."""

    good: str | None = Field(description="a file of records worth learning from, in judgments/examples/")
    bad: str | None = Field(description="a file of noise, in judgments/examples/")
    rows: int = Field(ge=0, description="records that it learns from at most; 0: off")


class Doubts(Params):
    """Labels that look wrong, by confident learning."""

    folds: int = Field(ge=0, description="of the cross-validation; 0: off")
    rows: int = Field(ge=100, description="labelled records that are looked at, at most")

    @field_validator("folds")
    @classmethod
    def not_one(cls, folds: int) -> int:
        if folds == 1:
            raise ValueError("one fold leaves nothing to learn from; expected 0 (off) or at least 2")
        return folds


class Score(Params):
    """What is measured."""

    near_duplicates: NearDuplicates
    learned: Learned
    labels: Doubts
    seed: int = Field(ge=0)


def main(params: Score, ctx: Context) -> Result:
    rows = count_rows(RECORDS)
    passes = 5 if params.near_duplicates.simhash else 4
    judged = min(rows, params.labels.rows) if params.labels.folds else 0
    with ctx.progress(passes * rows + judged, unit="records") as bar, engine() as machines:
        shards = measure(RECORDS, ctx.work, machines, bar.advance)
        measured = read_measured([out for _, out in shards])
        facts = Facts.of(measured, labels_of(RECORDS))
        with ctx.out(OUT / "model") as folder, ctx.out(OUT / "measures") as measures:
            model, learned = learn(params, facts, measured)
            folder.mkdir()
            if model:
                model.save(folder)
            rate(shards, folder if model else None, measures, machines, bar.advance)
        found = near_pairs(params.near_duplicates, facts, machines, ctx.work / "near", bar.advance)
        with ctx.out(OUT / "pairs.parquet") as path:
            pq.write_table(found.table, path, compression="zstd")
        doubts = doubtful_labels(params, facts, bar.advance)
        with ctx.out(OUT / "labels.parquet") as path:
            pq.write_table(doubts, path, compression="zstd")
    report = {"learned": learned, "near_duplicates": found.report, "doubtful_labels": doubts.num_rows}
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    key = f"{found.table.num_rows:,} near pairs, {doubts.num_rows:,} labels in doubt"
    return Result(rows, rows, key, report)


def learn(params: Score, facts: Facts, measured: pa.Table) -> tuple[QualityModel | None, dict[str, Any]]:
    """The learned quality model and its validation figures, or none and the reason."""
    if params.learned.rows == 0:
        return None, {"off": "score.learned.rows is 0"}
    told_good = examples(params.learned.good, "score.learned.good", EXAMPLES)
    told_bad = examples(params.learned.bad, "score.learned.bad", EXAMPLES)
    if told_good and told_bad:  # then every example is believed
        model = train_quality(told_good.texts, told_bad.texts, params.seed)
        return model, {"good": len(told_good.texts), "bad": len(told_bad.texts), **model.validation}
    rules = rules_of(QualityConfig())
    broken, _ = decide(measured, rules)
    something = facts.keys != b""
    believed, noise = (
        chosen_by_content(facts.digests, something & asked, params.learned.rows) for asked in evidence(broken, rules)
    )
    good, refused = texts_at(RECORDS, believed), texts_at(RECORDS, noise)
    known = weak_examples(told_good.texts if told_good else good, told_bad.texts if told_bad else refused, params.seed)
    least = LEAST_EXAMPLES if told_good else LEAST_BELIEVED
    if len(known.good) < least or len(known.bad) < LEAST_EXAMPLES:
        reason = f"{len(known.good):,} good and {len(known.bad):,} bad texts; {least} and {LEAST_EXAMPLES} are needed"
        return None, {"off": reason}
    model = train_quality(known.good, known.bad, params.seed, known.parents)
    if not told_good:
        model.validation["languages"] = known_languages(measured.take(pa.array(believed)))
    return model, {"good": len(known.good), "bad": len(known.bad), **model.validation}


def labels_of(records: Path) -> list[str | None]:
    return [label for batch in read_shards(records, ["label"]) for label in batch.column("label").to_pylist()]


def near_pairs(params: NearDuplicates, facts: Facts, machines: Engine, work: Path, advance: Any) -> Found:
    """The verified pairs, after a word on what the search will do and take."""
    protect = Protector(protect_config(params.model_dump()))
    config = FindConfig(params.jaccard, params.recall, params.floor, params.max_bucket, simhash=params.simhash)
    words = float(facts.lengths.mean()) / CHARS_A_WORD if len(facts) else 0.0
    workers = getattr(machines, "workers", 1)
    for line in Plan(config.bands, params.jaccard, len(facts), words, EXPECTED_SHARE, workers).lines():
        print(f"score: near duplicates: {line}", flush=True)
    return find(shard_files(RECORDS), config, machines, work, protect, advance, meet_of(machines))


def doubtful_labels(params: Score, facts: Facts, advance: Any) -> pa.Table:
    """Labels that look wrong; which records are looked at follows from content."""
    if params.labels.folds == 0:
        return DOUBTS.empty_table()
    labelled = np.array([label is not None for label in facts.labels], dtype=np.bool_)
    rows = chosen_by_content(facts.digests, labelled, params.labels.rows)
    labels, ids = ([of[row] for row in rows.tolist()] for of in (facts.labels, facts.ids))
    return find_label_errors(texts_at(RECORDS, rows), labels, ids, params.seed, params.labels.folds, advance)


if __name__ == "__main__":
    run("score", Score, main)
