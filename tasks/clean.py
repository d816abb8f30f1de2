"""clean: records and what was measured of them -> kept records; every level decides, every decision is told."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.adapt.domain import AdaptConfig
from data.clean_figures import REDUNDANCY, figures
from data.clean_report import page as report_page
from data.cleaning import CleanConfig, Decisions, Facts, Kept, decide_all, write_kept
from data.data_docs import page as docs_page
from data.debias.config import DebiasConfig
from data.errors import DaymillError
from data.expectations import as_frame, load_suite, refuse_failures, validate
from data.judgments import examples, judgment_file
from data.ledger import Ledger, check_conservation
from data.levels import REPRESENTATION, adapt_domain, remove_bias
from data.quality.review import ReviewDecision, read_review, write_review
from data.quality.rules import QualityConfig, rules_of
from data.scoring import read_measured
from data.shards import KEPT_SCHEMA, ShardWriter, read_shards, read_table, shard_files
from tasks.clean_params import Clean
from tasks.stage import Context, Result, run

RECORDS = Path("artifacts/ingest/records")
INGEST_LEDGER = Path("artifacts/ingest/ledger.parquet")
SCORE = Path("artifacts/score")
OUT = Path("artifacts/clean")
FIELDS = ["id", "label", "group", "entity", "date", "source"]
NO_REVIEW = "judgments/labels.csv"  # as shipped: nothing is reviewed yet


def main(params: Clean, ctx: Context) -> Result:
    before, after = ([load_suite(Path(path)) for path in paths] for paths in (params.input_suites, params.suites))
    target = examples(params.domain.target, "clean.domain.target")
    records, measures, pairs = read_inputs()
    facts = Facts.of(measures, records["label"].to_pylist())
    review = reviewed(params.review, {label for label in facts.labels if label is not None})
    if unknown := sorted(review.keys() - set(facts.ids)):
        named = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        print(f"clean: {len(unknown):,} reviewed records are not among these records: {named}", flush=True)
    checks = validate(input_frame(records, measures), before)
    if any(not check.passed for check in checks):
        publish_docs(ctx, docs_page(checks, {"in": len(facts)}, {}, {}))
    refuse_failures(checks, OUT / "docs/index.html")

    rules = rules_of(QualityConfig(**params.quality.model_dump()))
    found = decide_all(facts, measures, pairs, CleanConfig(rules, params.similarity, params.on_label_conflict, review))
    refuse_nothing_left(found)
    more: dict[str, Any] = {"domain": adapt_domain(RECORDS, facts, found, target, adapt_config(params))}
    more["bias"], representation = bias_of(params, facts, records["group"].to_pylist(), found)
    told = report(facts, measures, pairs, params, found, records, review, more)

    with (
        ctx.progress(len(facts), unit="records") as bar,
        ctx.out(OUT / "records") as out,
        ctx.out(OUT / "ledger.parquet") as ledger,
    ):
        with ShardWriter(out, KEPT_SCHEMA) as writer, Ledger(ledger) as book:
            kept = write_kept(read_shards(RECORDS), facts, found, writer, book, bar.advance)
        counts = check_conservation(len(facts), ledger)
        # records that fail their expectations are never published; the page that shows why is
        checks += validate(kept_frame(kept, measures, found, params.on_label_conflict == "keep_all"), after)
        shown = {"kept": counts["kept"], "dropped": counts["dropped"]}
        publish_docs(ctx, docs_page(checks, shown, found.dropped_by_rule(), profile(kept, found), learned()))
        refuse_failures(checks, OUT / "docs/index.html")
    with ctx.out(OUT / "report.html") as path:
        path.write_text(report_page(told), encoding="utf-8")
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    write_doubts(ctx, facts, found, review)
    with ctx.out(OUT / "representation.parquet") as path:
        pq.write_table(representation, path, compression="zstd")
    by_rule = found.dropped_by_rule()
    copies = sum(by_rule.get(rule, 0) for rule in REDUNDANCY)
    metrics = {**counts, "dropped_by_rule": by_rule, "label_conflicts": found.conflicts, "vetoed": dict(found.vetoed)}
    metrics |= {"expectations": len(checks), "noise": told["noise"], "labels_in_doubt": told["labels"]["suspected"]}
    key = f"dropped {counts['dropped']:,} ({copies:,} duplicates), {len(checks)} expectations hold"
    return Result(len(facts), counts["kept"], key, metrics)


def read_inputs() -> tuple[pa.Table, pa.Table, pa.Table]:
    """The records' fields without their texts, what was measured of them, and the verified pairs."""
    records = read_table(RECORDS, FIELDS)
    measures = read_measured(shard_files(SCORE / "measures"))
    if not records["id"].equals(measures["id"]):
        raise DaymillError("clean: artifacts/score was made of other records; run `dvc repro`")
    return records, measures, pq.read_table(SCORE / "pairs.parquet")


def reviewed(path: str | None, labels: set[str]) -> dict[str, ReviewDecision]:
    """What people decided, their labels being some of the records'; none where the file that is shipped is gone."""
    if path is None or (path == NO_REVIEW and not Path(path).exists()):
        return {}
    return read_review(judgment_file(path, "clean.review"), labels)


def adapt_config(params: Clean) -> AdaptConfig:
    knobs = params.domain.model_dump(exclude={"target"})
    return AdaptConfig(**knobs, seed=params.seed)


def bias_of(
    params: Clean, facts: Facts, groups: Sequence[str | None], found: Decisions
) -> tuple[dict[str, Any] | None, pa.Table]:
    """Level 4: its report (None where it is off), and the features that it made (empty but in mode representation)."""
    mode = params.bias.mode
    if mode == "off":
        return None, REPRESENTATION.empty_table()
    knobs = params.bias.model_dump(exclude={"mode", "on_collapse"})
    config = DebiasConfig(mode=mode, **knobs, seed=params.seed)
    return remove_bias(RECORDS, facts, groups, found, config, params.bias.on_collapse)


def input_frame(records: pa.Table, measures: pa.Table) -> Any:
    columns: dict[str, Sequence[Any]] = {name: records[name].to_pylist() for name in FIELDS}
    columns |= {"chars": measures["length"].to_pylist(), "content": contents(measures)}
    return as_frame(columns | {"language": measures["language"].to_pylist()})


def kept_frame(kept: Kept, measures: pa.Table, found: Decisions, one_a_label: bool) -> Any:
    """What the suites look at; `one_a_label`: equal texts may stand once for each label, so `content` has it too."""
    stays = measures.filter(pa.array(found.keeps()))
    columns = {name: kept.columns[name] for name in (*FIELDS, "chars")}
    content = contents(stays)
    if one_a_label:
        content = [f"{key} {label}" if key else "" for key, label in zip(content, kept.columns["label"], strict=True)]
    return as_frame(columns | {"content": content, "language": stays["language"].to_pylist()})


def contents(measures: pa.Table) -> list[str]:
    return [key.hex() if key else "" for key in measures["exact_key"].to_pylist()]


def refuse_nothing_left(found: Decisions) -> None:
    if found.kept == 0:
        by_rule = ", ".join(f"{rule} {count:,}" for rule, count in found.dropped_by_rule().items()) or "none came in"
        raise DaymillError(
            f"clean: none of {found.rows:,} records is left ({by_rule}); loosen clean.quality in params.yaml"
        )


def report(
    facts: Facts,
    measures: pa.Table,
    pairs: pa.Table,
    params: Clean,
    found: Decisions,
    records: pa.Table,
    review: Mapping[str, ReviewDecision],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    known = what_was_learned()
    doubted = pq.read_metadata(SCORE / "labels.parquet").num_rows
    told = figures(
        facts,
        measures,
        pairs,
        rules_of(QualityConfig(**params.quality.model_dump())),
        found,
        INGEST_LEDGER,
        records["source"].to_pylist(),
        records["group"].to_pylist(),
        None if "off" in known else known["bad"] / (known["good"] + known["bad"]),
        more,
    )
    noise = told["noise"]
    seen = f"{noise['before']:.1%} -> {noise['after']:.1%} as the learned model sees it" if noise else None
    return told | {
        "labels": {"suspected": doubted, "reviewed": sum(row_id in review for row_id in facts.ids)},
        "claims": [
            {
                "what": "noise, five levels",
                "claim": "23 % -> 4 % (medical text)",
                "measured": seen,
            },
            {"what": "F1 of the model", "claim": "+11 points", "measured": "`make bench-clean` (five seeds)"},
        ],
    }


def learned() -> dict[str, dict[str, str]]:
    """How far the learned quality model may be believed, in words; nothing where there is none."""
    told = what_was_learned()
    if "off" in told:
        return {"Learned quality model": {"off": told["off"]}}
    rows = {
        "examples": f"{told['good']:,} good, {told['bad']:,} bad",
        "told apart, held out": f"AUC {told['auc']:.3f}, average precision of the bad {told['average_precision']:.3f}",
        "calibration": f"Brier score {told['brier']:.3f}, expected calibration error {told['ece']:.3f}",
    }
    for entry in told["thresholds"]:
        name = f"clean.quality.min_quality {entry['threshold']:g}"
        rows[name] = f"loses {entry['good_lost']:.1%} of the good, catches {entry['bad_caught']:.1%} of the bad"
    return {"Learned quality model": rows}


def what_was_learned() -> dict[str, Any]:
    return dict(json.loads((SCORE / "report.json").read_text(encoding="utf-8"))["learned"])


def publish_docs(ctx: Context, html: str) -> None:
    with ctx.out(OUT / "docs") as docs:
        docs.mkdir()
        (docs / "index.html").write_text(html, encoding="utf-8")


def profile(kept: Kept, found: Decisions) -> dict[str, str]:
    """A few measures of what is kept, in words."""
    chars = [int(str(value)) for value in kept.columns["chars"]]
    dates = sorted(str(date) for date in kept.columns["date"] if date is not None)
    labels = [label for label in kept.columns["label"] if label is not None]
    return {
        "labelled": f"{len(labels):,} of {len(chars):,}",
        "labels": f"{len(set(labels)):,}",
        "characters": f"median {statistics.median(chars):,.0f}, shortest {min(chars):,}, longest {max(chars):,}",
        "dates": f"{dates[0][:10]} to {dates[-1][:10]} ({len(dates):,} records)" if dates else "none",
        "sources": f"{len(set(kept.columns['source'])):,} files",
        "label conflicts": f"{found.conflicts:,} sets of equal texts, {found.vetoed.get('label', 0):,} similar pairs",
    }


def write_doubts(ctx: Context, facts: Facts, found: Decisions, review: Mapping[str, ReviewDecision]) -> None:
    """review.csv: labels in doubt of records that are kept, with what people said so far."""
    doubts = pq.read_table(SCORE / "labels.parquet")
    stays = {facts.ids[row] for row in range(len(facts)) if row not in found.dropped}
    with ctx.out(OUT / "review.csv") as path:
        kept = pa.array([row_id in stays for row_id in doubts["id"].to_pylist()], pa.bool_())
        write_review(path, doubts.filter(kept), review)


if __name__ == "__main__":
    run("clean", Clean, main)
