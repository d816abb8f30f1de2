"""Rules: a measure, a threshold and a direction. They look at stored measures alone, so a changed threshold decides anew
without a single text.

Thresholds are compared, never tested for truth: 0 means 0, and None alone switches a rule off. A rule is named as its
knob, so the ledger says which number to change. A measure that is null breaks no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.quality.scripts import TOKEN, UNSPACED

__all__ = ["RULES", "TOKEN", "UNSPACED", "QualityConfig", "Rule", "Verdict", "decide", "judge", "judgments", "rules_of"]

KEPT = -1


@dataclass(frozen=True)
class QualityConfig:
    """Thresholds; None switches a rule off. See params.yaml for units and for when to change them."""

    min_chars: int | None = 10
    max_chars: int | None = 1_000_000
    min_words: int | None = 2
    max_symbol_ratio: float | None = 0.7
    max_broken_ratio: float | None = 0.1
    max_repeated_lines: float | None = 0.8
    max_repeated_ngrams: float | None = 0.9
    min_mean_word_length: float | None = 1.2
    max_mean_word_length: float | None = 30.0
    min_stop_words: int | None = None
    max_invisible_ratio: float | None = 0.1
    max_repeated_paragraphs: float | None = 0.8
    max_top_2gram: float | None = 0.75
    max_top_3gram: float | None = 0.75
    max_top_4gram: float | None = 0.75
    max_repeated_5grams: float | None = 0.9
    max_repeated_6grams: float | None = None
    max_repeated_7grams: float | None = None
    max_repeated_8grams: float | None = None
    max_repeated_9grams: float | None = None
    max_repeated_10grams: float | None = None
    min_alpha_words: float | None = 0.15
    max_symbol_words: float | None = 3.0
    max_bullet_lines: float | None = 0.9
    max_ellipsis_lines: float | None = 0.7
    min_terminal_lines: float | None = None
    max_short_lines: float | None = None
    max_newline_ratio: float | None = None
    max_boilerplate: float | None = 0.6
    max_lorem_ipsum: int | None = 1
    max_curly_ratio: float | None = 0.05
    max_markup_ratio: float | None = 0.97
    max_url_ratio: float | None = 0.95
    max_encoded_ratio: float | None = 0.7
    max_inner_symbols: float | None = 0.5
    max_inner_caps: float | None = 0.5
    max_char_runs: float | None = 0.6
    max_vowelless_words: float | None = 0.7
    max_home_row: float | None = 0.7
    max_mixed_script_words: float | None = 0.3
    max_rare_han: float | None = 0.5
    max_digit_ratio: float | None = None
    max_upper_ratio: float | None = None
    max_open_end: float | None = None


@dataclass(frozen=True)
class Rule:
    """Keeps a record whose measure reaches (least) or does not pass (most) the threshold."""

    rule: str
    measure: str
    bound: Literal["least", "most"]
    threshold: float

    def breaks(self, measured: np.ndarray) -> np.ndarray:
        """Which values (float32; NaN: nothing measured) break the rule. The threshold's own value never does."""
        threshold = np.float32(self.threshold)
        return measured < threshold if self.bound == "least" else measured > threshold


class Verdict(NamedTuple):
    """Whether the rules keep the text, else the first rule that does not, and the number that it compared."""

    keep: bool
    rule: str
    score: float


class Judgment(NamedTuple):
    """What one rule says of one record."""

    rule: str
    measured: float | None
    threshold: float
    bound: str
    keep: bool


# Cheapest to understand first: the first rule that a record breaks is the reason that the ledger gives.
RULES: tuple[tuple[str, str, Literal["least", "most"]], ...] = (
    ("min_chars", "chars", "least"),
    ("max_chars", "chars", "most"),
    ("max_broken_ratio", "broken_ratio", "most"),
    ("max_symbol_ratio", "symbol_ratio", "most"),
    ("min_words", "words", "least"),
    ("max_repeated_lines", "repeated_lines", "most"),
    ("max_repeated_ngrams", "repeated_ngrams", "most"),
    ("min_mean_word_length", "mean_word_length", "least"),
    ("max_mean_word_length", "mean_word_length", "most"),
    ("min_stop_words", "stop_words", "least"),
    ("max_invisible_ratio", "invisible_ratio", "most"),
    ("max_repeated_paragraphs", "repeated_paragraphs", "most"),
    ("max_top_2gram", "top_2gram", "most"),
    ("max_top_3gram", "top_3gram", "most"),
    ("max_top_4gram", "top_4gram", "most"),
    ("max_repeated_5grams", "repeated_5grams", "most"),
    ("max_repeated_6grams", "repeated_6grams", "most"),
    ("max_repeated_7grams", "repeated_7grams", "most"),
    ("max_repeated_8grams", "repeated_8grams", "most"),
    ("max_repeated_9grams", "repeated_9grams", "most"),
    ("max_repeated_10grams", "repeated_10grams", "most"),
    ("min_alpha_words", "alpha_words", "least"),
    ("max_symbol_words", "symbol_words", "most"),
    ("max_bullet_lines", "bullet_lines", "most"),
    ("max_ellipsis_lines", "ellipsis_lines", "most"),
    ("min_terminal_lines", "terminal_lines", "least"),
    ("max_short_lines", "short_lines", "most"),
    ("max_newline_ratio", "newline_ratio", "most"),
    ("max_boilerplate", "boilerplate", "most"),
    ("max_lorem_ipsum", "lorem_ipsum", "most"),
    ("max_curly_ratio", "curly_ratio", "most"),
    ("max_markup_ratio", "markup_ratio", "most"),
    ("max_url_ratio", "url_ratio", "most"),
    ("max_encoded_ratio", "encoded_ratio", "most"),
    ("max_inner_symbols", "inner_symbols", "most"),
    ("max_inner_caps", "inner_caps", "most"),
    ("max_char_runs", "char_runs", "most"),
    ("max_vowelless_words", "vowelless_words", "most"),
    ("max_home_row", "home_row", "most"),
    ("max_mixed_script_words", "mixed_script_words", "most"),
    ("max_rare_han", "rare_han", "most"),
    ("max_digit_ratio", "digit_ratio", "most"),
    ("max_upper_ratio", "upper_ratio", "most"),
    ("max_open_end", "open_end", "most"),
)


def rules_of(config: QualityConfig) -> list[Rule]:
    """The rules that the config switches on, in the order in which they are asked."""
    return [
        Rule(name, measure, bound, getattr(config, name))
        for name, measure, bound in RULES
        if getattr(config, name) is not None
    ]


def decide(measures: pa.Table | pa.RecordBatch, rules: Sequence[Rule]) -> tuple[np.ndarray, np.ndarray]:
    """For each row the index of the first rule that it breaks (int32, -1: kept) and what that rule compared (float64,
    rounded to six places; NaN where kept)."""
    first = np.full(measures.num_rows, KEPT, np.int32)
    scores = np.full(measures.num_rows, np.nan)
    for index, rule in enumerate(rules):
        measured = numbers(measures.column(rule.measure))
        broken = rule.breaks(measured) & (first == KEPT)
        first[broken] = index
        scores[broken] = np.round(measured[broken].astype(np.float64), 6)
    return first, scores


def judgments(measures: pa.Table | pa.RecordBatch, row: int, rules: Sequence[Rule]) -> Iterator[Judgment]:
    """What every rule says of one row: its whole story, and what would have kept it."""
    for rule in rules:
        measured = numbers(measures.column(rule.measure).slice(row, 1))
        value = None if np.isnan(measured[0]) else round(float(measured[0]), 6)
        yield Judgment(rule.rule, value, rule.threshold, rule.bound, not bool(rule.breaks(measured)[0]))


def judge(text: str, rules: Sequence[Rule]) -> Verdict:
    """The verdict on one text. For many, measure_batch and decide are hundreds of times faster a text."""
    from data.quality.measures import measure_batch  # compiled code, which deciding on stored measures does without

    first, scores = decide(measure_batch([text]), rules)
    return Verdict(True, "", 0.0) if first[0] == KEPT else Verdict(False, rules[first[0]].rule, float(scores[0]))


def numbers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A column as float32, null as NaN."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(pc.cast(array, pa.float32(), safe=False).to_numpy(zero_copy_only=False), np.float32)
