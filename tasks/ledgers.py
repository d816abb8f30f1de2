"""Questions about records, answered from what the stages wrote: the story of one, and the counts of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data.errors import DaymillError
from data.story import Knobs, Places, tell
from data.tally import Expected, Tally, tally
from tasks.params import PARAMS_FILE, ParamsError, nearest, plain, read

INGEST, SCORE, CLEAN, SPLIT = (Path("artifacts") / stage for stage in ("ingest", "score", "clean", "split"))
STAGES = ("ingest", "clean", "split")  # those with a ledger
METRICS = Path("artifacts/metrics")

# What would have kept a record where no measure was held against a threshold.
ADVICE = {
    "size": "a larger ingest.max_record_mb",
    "depth": "a larger ingest.max_depth",
    "duplicate-id": "an id of its own, or ingest.fields.id: null",
    "text": "a text in the field that ingest.fields.text names",
    "fields": "as many fields as its header",
    "exact_duplicate": "a text of its own: equal texts always merge",
    "label_conflict": "clean.on_label_conflict: majority, or labels that agree",
    "straddles": "the other value of split.keep, which drops the records on the other side instead",
    "undated": "split.undated: train, or a date",
    "reviewed": "another decision in its line of the review file",
}


def why(root: Path, wanted: str, with_text: bool = False) -> dict[str, Any]:
    """A record's story (`data.story.tell`). Raises DaymillError where ingest has not run or the record is unknown."""
    return tell(wanted, places(root), knobs(root), with_text)


def places(root: Path) -> Places:
    return Places(
        ingested=root / INGEST / "ledger.parquet",
        quarantine=root / INGEST / "quarantine.jsonl",
        records=root / INGEST / "records",
        measures=root / SCORE / "measures",
        pairs=root / SCORE / "pairs.parquet",
        cleaned=root / CLEAN / "ledger.parquet",
        kept=root / CLEAN / "records",
        review=root / CLEAN / "review.csv",
        divided=root / SPLIT / "ledger.parquet",
    )


def knobs(root: Path) -> Knobs:
    """The parameters as they are now. Raises ParamsError where `clean` has none or unknown ones.

    They are read without the stage's model, which brings all that cleaning needs along: a question is answered at once.
    """
    from data.quality.rules import QualityConfig, rules_of

    path = root / PARAMS_FILE
    section = plain(read(path).get("clean") or {})
    try:
        config = QualityConfig(**section["quality"])
        return Knobs(rules_of(config), similarity=float(section["similarity"]), advice=ADVICE)
    except (KeyError, TypeError, ValueError) as error:
        raise ParamsError(f"{path}: clean: {error}; `daymill plan` tells what the stage expects") from None


def counts(
    root: Path,
    stage: str | None = None,
    rule: str | None = None,
    source: str | None = None,
    samples: int = 0,
    with_text: bool = False,
) -> Tally:
    """Counts over the ledgers of the stages that have run (`data.tally.tally`), or of one stage.

    Samples get their texts with `with_text`. Raises DaymillError where no stage has run, for a rule that no stage knows
    of, and for a source that no record came from.
    """
    if stage is not None and stage not in STAGES:
        raise DaymillError(f"no ledger of a stage {stage!r}{nearest(stage, STAGES)} (stages: {', '.join(STAGES)})")
    late = stale(root)
    chosen = [name for name in STAGES if stage in (None, name) and ledger(root, name).exists() and name not in late]
    if not chosen and stage in late:
        raise DaymillError(f"{stage} is of an earlier run: `daymill run --until {stage}` brings it up to date")
    if not chosen:
        raise DaymillError(f"no ledger yet: `daymill run --until {stage or 'split'}` writes it")
    found = tally([expected(root, name) for name in chosen], rule, source, samples)
    if not found.counts and (rule is not None or source is not None):
        raise DaymillError(nothing_found(found_everywhere(root, chosen), rule, source))
    if with_text:
        add_texts(root, found)
    return found


def stale(root: Path) -> list[str]:
    """Stages whose ledger is of other records than the stage before has now: it ran again, or did not end.

    A stage counts as such only where the numbers disagree and the stage before is the newer one; where it is not,
    records are missing.
    """
    from data.shards import count_rows

    found: list[str] = []
    for before, stage in (("ingest", "clean"), ("clean", "split")):
        mine, its = ledger(root, stage), ledger(root, before)
        if not mine.exists():
            continue
        records = root / "artifacts" / before / "records"
        gone = before in found or not its.exists() or not records.exists()
        if gone or (newer(its, mine) and count_rows(records) != pq.read_metadata(mine).num_rows):
            found.append(stage)
    return found


def newer(one: Path, other: Path) -> bool:
    return one.stat().st_mtime > other.stat().st_mtime


def expected(root: Path, stage: str) -> Expected:
    """A stage's ledger beside what other outputs say of its records."""
    from data.shards import count_rows

    if stage == "ingest":
        rows_in = told_rows(root / METRICS / "ingest.json")
        stored = root / INGEST / "records"
    elif stage == "clean":
        rows_in, stored = count_rows(root / INGEST / "records"), root / CLEAN / "records"
    else:
        rows_in = count_rows(root / CLEAN / "records")
        return Expected(stage, ledger(root, stage), rows_in, sum(count_rows(root / SPLIT / part) for part in PARTS))
    return Expected(stage, ledger(root, stage), rows_in, count_rows(stored))


PARTS = ("train", "valid", "test")


def told_rows(metrics: Path) -> int | None:
    """What the stage itself said came in; None where its metrics are not there (a fresh clone with pulled data)."""
    return int(json.loads(metrics.read_text(encoding="utf-8"))["rows_in"]) if metrics.exists() else None


def ledger(root: Path, stage: str) -> Path:
    return root / "artifacts" / stage / "ledger.parquet"


def found_everywhere(root: Path, stages: list[str]) -> Tally:
    return tally([expected(root, name) for name in stages])


def nothing_found(every: Tally, rule: str | None, source: str | None) -> str:
    known_rules = sorted({count.rule for count in every.counts if count.rule})
    known_sources = sorted({count.source for count in every.counts})
    if rule is not None and rule not in known_rules:
        listed = ", ".join(known_rules) or "none"
        return f"no record was decided by rule {rule!r}{nearest(rule, known_rules)} (rules that spoke: {listed})"
    if source is not None and not any(name == source or name.endswith(f"/{source}") for name in known_sources):
        listed = ", ".join(known_sources[:5]) + (", ..." if len(known_sources) > 5 else "")
        return f"no record came from {source!r}{nearest(source, known_sources)} (sources: {listed})"
    return f"no record of source {source!r} was decided by rule {rule!r}"


def add_texts(root: Path, found: Tally) -> None:
    """Texts of the sampled records that were kept at ingest, in one pass over the records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from data.lookup import find_rows

    rows = [row for sample in found.samples.values() for row in sample if row["id"] is not None]
    wanted = pa.array(sorted({row["id"] for row in rows}), pa.string())
    kept = find_rows(
        root / INGEST / "records", ["id"], lambda keys: pc.is_in(keys["id"], value_set=wanted), ["id", "text"]
    )
    texts = {row["id"]: row["text"] for row in kept}
    for row in rows:
        if row["verdict"] != "quarantined":
            row["text"] = texts.get(row["id"])
