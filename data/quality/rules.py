"""Rules: a measure, a threshold and a direction.

They look at stored measures alone, so a changed threshold decides anew without a single text.

Thresholds are compared, never tested for truth: 0 means 0, and None alone switches a rule off. A rule is named as its
knob, so the ledger says which number to change. A measure that is null breaks no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.quality.scripts import TOKEN as TOKEN
from data.quality.scripts import UNSPACED as UNSPACED

KEPT = -1
UNDETERMINED = "und"
Measures: TypeAlias = pa.Table | pa.RecordBatch


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
    min_letter_fit: float | None = -5.5
    languages: tuple[str, ...] | None = None
    min_language_p: float = 0.8
    max_stuttered: float | None = None
    min_quality: float | None = None  # learned; the measures of a text alone do not have it


@dataclass(frozen=True)
class AtLeast:
    """Keeps a record whose measure reaches the threshold."""

    rule: str
    measure: str
    threshold: float

    def look(self, measures: Measures) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Which rows break the rule, and the values that it compared (NaN: nothing was measured, nothing broken)."""
        measured = numbers(measures, self.measure)
        return measured < np.float32(self.threshold), measured


@dataclass(frozen=True)
class AtMost:
    """Keeps a record whose measure does not pass the threshold."""

    rule: str
    measure: str
    threshold: float

    def look(self, measures: Measures) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        measured = numbers(measures, self.measure)
        return measured > np.float32(self.threshold), measured


@dataclass(frozen=True)
class OneOf:
    """Keeps a record unless its language is surely another one: found with at least the probability `threshold`."""

    rule: str
    measure: str
    threshold: float
    allowed: tuple[str, ...]

    def look(self, measures: Measures) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        sure = numbers(measures, f"{self.measure}_p")
        allowed = pc.is_in(measures.column(self.measure), pa.array([*self.allowed, UNDETERMINED]))
        other = ~np.asarray(allowed.to_numpy(zero_copy_only=False), np.bool_)
        return other & (sure >= np.float32(self.threshold)), sure


Rule: TypeAlias = AtLeast | AtMost | OneOf


class Verdict(NamedTuple):
    """Whether the rules keep the text, else the first rule that does not, and the number that it compared."""

    keep: bool
    rule: str
    score: float


class Judgment(NamedTuple):
    """What one rule says of one record."""

    rule: str
    measure: str
    measured: float | None
    threshold: float
    keep: bool


# Cheapest to understand first: the first rule that a record breaks is the reason that the ledger gives.
RULES: tuple[tuple[type[AtLeast] | type[AtMost], str, str], ...] = (
    (AtLeast, "min_chars", "chars"),
    (AtMost, "max_chars", "chars"),
    (AtMost, "max_broken_ratio", "broken_ratio"),
    (AtMost, "max_symbol_ratio", "symbol_ratio"),
    (AtLeast, "min_words", "words"),
    (AtMost, "max_repeated_lines", "repeated_lines"),
    (AtMost, "max_repeated_ngrams", "repeated_ngrams"),
    (AtLeast, "min_mean_word_length", "mean_word_length"),
    (AtMost, "max_mean_word_length", "mean_word_length"),
    (AtLeast, "min_stop_words", "stop_words"),
    (AtMost, "max_invisible_ratio", "invisible_ratio"),
    (AtMost, "max_repeated_paragraphs", "repeated_paragraphs"),
    (AtMost, "max_top_2gram", "top_2gram"),
    (AtMost, "max_top_3gram", "top_3gram"),
    (AtMost, "max_top_4gram", "top_4gram"),
    (AtMost, "max_repeated_5grams", "repeated_5grams"),
    (AtMost, "max_repeated_6grams", "repeated_6grams"),
    (AtMost, "max_repeated_7grams", "repeated_7grams"),
    (AtMost, "max_repeated_8grams", "repeated_8grams"),
    (AtMost, "max_repeated_9grams", "repeated_9grams"),
    (AtMost, "max_repeated_10grams", "repeated_10grams"),
    (AtLeast, "min_alpha_words", "alpha_words"),
    (AtMost, "max_symbol_words", "symbol_words"),
    (AtMost, "max_bullet_lines", "bullet_lines"),
    (AtMost, "max_ellipsis_lines", "ellipsis_lines"),
    (AtLeast, "min_terminal_lines", "terminal_lines"),
    (AtMost, "max_short_lines", "short_lines"),
    (AtMost, "max_newline_ratio", "newline_ratio"),
    (AtMost, "max_boilerplate", "boilerplate"),
    (AtMost, "max_lorem_ipsum", "lorem_ipsum"),
    (AtMost, "max_curly_ratio", "curly_ratio"),
    (AtMost, "max_markup_ratio", "markup_ratio"),
    (AtMost, "max_url_ratio", "url_ratio"),
    (AtMost, "max_encoded_ratio", "encoded_ratio"),
    (AtMost, "max_inner_symbols", "inner_symbols"),
    (AtMost, "max_inner_caps", "inner_caps"),
    (AtMost, "max_char_runs", "char_runs"),
    (AtLeast, "min_letter_fit", "letter_fit"),
    (AtMost, "max_vowelless_words", "vowelless_words"),
    (AtMost, "max_home_row", "home_row"),
    (AtMost, "max_mixed_script_words", "mixed_script_words"),
    (AtMost, "max_rare_han", "rare_han"),
    (AtMost, "max_digit_ratio", "digit_ratio"),
    (AtMost, "max_upper_ratio", "upper_ratio"),
    (AtMost, "max_open_end", "open_end"),
    (AtMost, "max_stuttered", "stuttered"),
    (AtLeast, "min_quality", "quality"),
)


def rules_of(config: QualityConfig) -> list[Rule]:
    """The rules that the config switches on, in the order in which they are asked."""
    rules: list[Rule] = []
    for kind, name, measure in RULES:
        threshold = getattr(config, name)
        if threshold is not None:
            rules.append(kind(name, measure, threshold))
    if config.languages is not None:
        rules.append(OneOf("languages", "language", config.min_language_p, tuple(config.languages)))
    return rules


def decide(measures: Measures, rules: Sequence[Rule]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """For each row the index of the first rule that it breaks (int32, -1: kept) and what that rule compared (float64,
    rounded to six places; NaN where kept)."""
    first = np.full(measures.num_rows, KEPT, np.int32)
    scores = np.full(measures.num_rows, np.nan)
    for index, rule in enumerate(rules):
        broken, measured = rule.look(measures)
        broken &= first == KEPT
        first[broken] = index
        scores[broken] = np.round(measured[broken].astype(np.float64), 6)
    return first, scores


def judgments(measures: Measures, row: int, rules: Sequence[Rule]) -> Iterator[Judgment]:
    """What every rule says of one row: its whole story, and what would have kept it."""
    for rule in rules:
        broken, measured = rule.look(measures.slice(row, 1))
        value = None if np.isnan(measured[0]) else round(float(measured[0]), 6)
        yield Judgment(rule.rule, rule.measure, value, rule.threshold, not bool(broken[0]))


def judge(text: str, rules: Sequence[Rule]) -> Verdict:
    """The verdict on one text. For many, measure_batch and decide are hundreds of times faster a text."""
    from data.quality.measures import measure_batch  # compiled code, which deciding on stored measures does without

    first, scores = decide(measure_batch([text]), rules)
    return Verdict(True, "", 0.0) if first[0] == KEPT else Verdict(False, rules[first[0]].rule, float(scores[0]))


def numbers(measures: Measures, name: str) -> NDArray[np.float32]:
    """A column as float32, null as NaN."""
    column = measures.column(name)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(pc.cast(array, pa.float32(), safe=False).to_numpy(zero_copy_only=False), np.float32)
