"""clean: records and what was measured of them -> kept records; every level decides, every decision is told."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from data.adapt.domain import AdaptConfig
from data.clean_figures import REDUNDANCY, figures
from data.clean_report import page as report_page
from data.cleaning import CleanConfig, Decisions, Facts, Kept, decide_all, write_kept
from data.data_docs import page as docs_page
from data.debias.config import DebiasConfig
from data.dedup.exact import OnLabelConflict
from data.errors import DaymillError
from data.expectations import as_frame, load_suite, refuse_failures, validate
from data.judgments import examples, judgment_file
from data.ledger import Ledger, check_conservation
from data.levels import REPRESENTATION, adapt_domain, remove_bias
from data.quality.review import ReviewDecision, read_review, write_review
from data.quality.rules import QualityConfig, rules_of
from data.scoring import read_measured
from data.shards import KEPT_SCHEMA, ShardWriter, read_shards, read_table, shard_files
from tasks.params import Params
from tasks.stage import Context, Result, run

RECORDS = Path("artifacts/ingest/records")
INGEST_LEDGER = Path("artifacts/ingest/ledger.parquet")
SCORE = Path("artifacts/score")
OUT = Path("artifacts/clean")
FIELDS = ["id", "label", "group", "entity", "date", "source"]
NO_REVIEW = "judgments/labels.csv"  # as shipped: nothing is reviewed yet


class Quality(Params):
    """Thresholds of the rules; null switches one off."""

    min_chars: int | None = Field(ge=0, description="characters of the text, white space at its ends left out")
    max_chars: int | None = Field(ge=1, description="characters of the text")
    min_words: int | None = Field(ge=0, description="words; two characters of an unspaced script make one")
    max_symbol_ratio: float | None = Field(ge=0, le=1, description="symbols among the visible characters")
    max_broken_ratio: float | None = Field(ge=0, le=1, description="characters that a wrong decoding left")
    max_repeated_lines: float | None = Field(ge=0, le=1, description="characters in lines that were there before")
    max_repeated_ngrams: float | None = Field(ge=0, le=1, description="runs of four words that were there before")
    min_mean_word_length: float | None = Field(ge=0, description="letters a word")
    max_mean_word_length: float | None = Field(ge=0, description="letters a word")
    min_stop_words: int | None = Field(ge=0, description="distinct common English words")
    max_invisible_ratio: float | None = Field(ge=0, le=1, description="zero-width and other formatting characters")
    max_repeated_paragraphs: float | None = Field(ge=0, le=1, description="paragraphs that were there before")
    max_top_2gram: float | None = Field(ge=0, le=1, description="characters of the commonest run of two words")
    max_top_3gram: float | None = Field(ge=0, le=1, description="characters of the commonest run of three words")
    max_top_4gram: float | None = Field(ge=0, le=1, description="characters of the commonest run of four words")
    max_repeated_5grams: float | None = Field(
        ge=0, le=1, description="characters in five-word runs that were there before"
    )
    max_repeated_6grams: float | None = Field(ge=0, le=1, description="the same for six words")
    max_repeated_7grams: float | None = Field(ge=0, le=1, description="the same for seven words")
    max_repeated_8grams: float | None = Field(ge=0, le=1, description="the same for eight words")
    max_repeated_9grams: float | None = Field(ge=0, le=1, description="the same for nine words")
    max_repeated_10grams: float | None = Field(ge=0, le=1, description="the same for ten words")
    min_alpha_words: float | None = Field(ge=0, le=1, description="chunks between spaces that hold a letter")
    max_symbol_words: float | None = Field(ge=0, description="# and ellipses a word")
    max_bullet_lines: float | None = Field(ge=0, le=1, description="lines that begin with a bullet")
    max_ellipsis_lines: float | None = Field(ge=0, le=1, description="lines that end with an ellipsis")
    min_terminal_lines: float | None = Field(ge=0, le=1, description="lines that end as sentences do")
    max_short_lines: float | None = Field(ge=0, le=1, description="lines of under 30 characters")
    max_newline_ratio: float | None = Field(ge=0, description="line ends a word")
    max_boilerplate: float | None = Field(ge=0, le=1, description="words beside phrases of every page's footer")
    max_lorem_ipsum: int | None = Field(ge=0, description="phrases of dummy text")
    max_curly_ratio: float | None = Field(ge=0, le=1, description="curly braces among the visible characters")
    max_markup_ratio: float | None = Field(ge=0, le=1, description="characters in tags and entities")
    max_url_ratio: float | None = Field(ge=0, le=1, description="characters of web and mail addresses")
    max_encoded_ratio: float | None = Field(ge=0, le=1, description="characters of base64, hexadecimal and escapes")
    max_inner_symbols: float | None = Field(ge=0, le=1, description="words with other signs inside")
    max_inner_caps: float | None = Field(ge=0, le=1, description="words with capitals after small letters")
    max_char_runs: float | None = Field(
        ge=0, le=1, description="visible characters in runs of five and more of the same"
    )
    min_letter_fit: float | None = Field(le=0, description="mean log2 chance of a letter after the one before")
    max_vowelless_words: float | None = Field(ge=0, le=1, description="words without a vowel (Latin script)")
    max_home_row: float | None = Field(ge=0, le=1, description="letters of a keyboard's middle row")
    max_mixed_script_words: float | None = Field(ge=0, le=1, description="words with letters of two alphabets")
    max_rare_han: float | None = Field(ge=0, le=1, description="Han characters outside the everyday levels")
    max_digit_ratio: float | None = Field(ge=0, le=1, description="digits among the visible characters")
    max_upper_ratio: float | None = Field(ge=0, le=1, description="capitals among the letters with a case")
    max_open_end: float | None = Field(ge=0, le=1, description="1 where a text does not end as a sentence does")
    max_stuttered: float | None = Field(ge=0, le=1, description="words that stand twice in a row")
    languages: tuple[str, ...] | None = Field(description="ISO 639 codes that are kept")
    min_language_p: float = Field(ge=0, le=1, description="probability from which another language is believed")
    min_quality: float | None = Field(ge=0, le=1, description="learned probability of being good text")


class Bias(Params):
    """Debiasing where records have a `group`."""

    mode: Literal["off", "weights", "representation"] = Field(description="weights for training, or features")
    goal: float = Field(ge=0, le=1, description="share of the equal-odds gap that may remain for `debiased`")
    strength: float = Field(gt=0, description="of the adversary: times the reversed gradient")
    accuracy_budget: float = Field(ge=0, le=1, description="held-out accuracy that may be lost")
    leak_tolerance: float = Field(ge=0, le=1, description="by which a probe may beat the majority's share")
    max_weight: float = Field(gt=1, description="times the mean")
    min_group: int = Field(ge=2, description="labelled records; smaller groups are not judged")
    on_collapse: Literal["refuse", "skip"] = Field(description="what to do where the level would do harm")


class Domain(Params):
    """Adaptation to a target domain."""

    target: str | None = Field(description="a file of 20 to 200 records of the domain, in judgments/; null: off")
    method: Literal["discriminator", "ngram"] = Field(description="how a text's nearness to the domain is measured")
    mode: Literal["weights", "select"] = Field(description="weigh all records, or keep the nearest share")
    metric: Literal["auto", "accuracy", "perplexity"] = Field(description="what the gain on the target is told by")
    max_weight: float = Field(gt=1, description="times the mean, mode weights")
    keep_share: float = Field(gt=0, le=1, description="of the records, mode select")
    gumbel: bool = Field(description="mode select: draw in proportion to nearness instead of taking the nearest")
    sample: int = Field(ge=50, description="texts that the level learns from")


class Clean(Params):
    """What is kept, and what the records must look like before and after."""

    quality: Quality
    similarity: float = Field(gt=0, le=1, description="of word 5-grams, from which two records are near duplicates")
    on_label_conflict: OnLabelConflict = Field(description="equal texts with different labels")
    review: str | None = Field(description="reviewed labels, a file in judgments/")
    bias: Bias
    domain: Domain
    input_suites: tuple[str, ...] = Field(description="expectation suites of what comes in, JSON files")
    suites: tuple[str, ...] = Field(description="expectation suites of what is kept, JSON files")
    seed: int = Field(ge=0)


def main(params: Clean, ctx: Context) -> Result:
    before, after = ([load_suite(Path(path)) for path in paths] for paths in (params.input_suites, params.suites))
    target = examples(params.domain.target, "clean.domain.target")
    records, measures, pairs = read_inputs()
    facts = Facts.of(measures, records["label"].to_pylist())
    review = reviewed(params.review, {label for label in facts.labels if label is not None})
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
        checks += validate(kept_frame(kept, measures, found), after)
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


def kept_frame(kept: Kept, measures: pa.Table, found: Decisions) -> Any:
    stays = measures.filter(pa.array(found.keeps()))
    columns = {name: kept.columns[name] for name in (*FIELDS, "chars")}
    return as_frame(columns | {"content": contents(stays), "language": stays["language"].to_pylist()})


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
