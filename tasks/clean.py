"""clean: records -> kept records; quality by rules, exact duplicates, expectations with data docs."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from pydantic import Field

from data.cleaning import COLUMNS, Kept, Survey, survey, write_kept
from data.data_docs import page
from data.dedup.exact import OnLabelConflict
from data.errors import DaymillError
from data.expectations import Check, as_frame, load_suite, refuse_failures, validate
from data.ledger import Ledger, check_conservation
from data.quality.rules import QualityConfig, rules_of
from data.shards import ShardWriter, count_rows, read_shards
from tasks.params import Params
from tasks.stage import Context, Result, run

RECORDS = Path("artifacts/ingest/records")
OUT = Path("artifacts/clean")


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


class Clean(Params):
    """What is kept, and what the kept records must look like."""

    quality: Quality
    on_label_conflict: OnLabelConflict = Field(description="equal texts with different labels")
    suites: tuple[str, ...] = Field(description="expectation suites, JSON files")


def main(params: Clean, ctx: Context) -> Result:
    suites = [load_suite(Path(path)) for path in params.suites]
    rules = rules_of(QualityConfig(**params.quality.model_dump()))
    with ctx.progress(2 * count_rows(RECORDS), unit="records") as bar:
        found = survey(read_shards(RECORDS, COLUMNS), rules, params.on_label_conflict, bar.advance)
        refuse_nothing_left(found)
        with ctx.out(OUT / "records") as records, ctx.out(OUT / "ledger.parquet") as ledger:
            with ShardWriter(records) as writer, Ledger(ledger) as book:
                kept = write_kept(read_shards(RECORDS), found, writer, book, bar.advance)
            counts = check_conservation(found.rows, ledger)
            # records that fail their expectations are never published; the page that shows why is
            checks = validate(as_frame(kept.columns), suites)
            with ctx.out(OUT / "docs") as docs:
                docs.mkdir()
                (docs / "index.html").write_text(docs_page(checks, found, counts, kept), encoding="utf-8")
            refuse_failures(checks, OUT / "docs/index.html")
    report = {
        "rows_in": found.rows,
        **counts,
        "dropped_by_rule": found.dropped_by_rule(),
        "label_conflicts": found.conflicts,
        "expectations": len(checks),
    }
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    key = f"dropped {counts['dropped']:,} ({len(found.duplicates):,} duplicates), {len(checks)} expectations hold"
    return Result(found.rows, counts["kept"], key, report)


def refuse_nothing_left(found: Survey) -> None:
    if found.kept == 0:
        by_rule = ", ".join(f"{rule} {count:,}" for rule, count in found.dropped_by_rule().items()) or "none came in"
        raise DaymillError(
            f"clean: none of {found.rows:,} records is left ({by_rule}); loosen clean.quality in params.yaml"
        )


def docs_page(checks: list[Check], found: Survey, counts: dict[str, int], kept: Kept) -> str:
    chars = [int(str(value)) for value in kept.columns["chars"]]
    dates = sorted(str(date) for date in kept.columns["date"] if date is not None)
    labelled = sum(label is not None for label in kept.columns["label"])
    profile = {
        "labelled": f"{labelled:,} of {len(chars):,}",
        "labels": f"{len({label for label in kept.columns['label'] if label is not None}):,}",
        "characters": f"median {statistics.median(chars):,.0f}, shortest {min(chars):,}, longest {max(chars):,}",
        "dates": f"{dates[0][:10]} to {dates[-1][:10]} ({len(dates):,} records)" if dates else "none",
        "sources": f"{len(set(kept.columns['source'])):,} files",
        "label conflicts": f"{found.conflicts:,} clusters of equal texts",
    }
    return page(checks, {"kept": counts["kept"], "dropped": counts["dropped"]}, found.dropped_by_rule(), profile)


if __name__ == "__main__":
    run("clean", Clean, main)
