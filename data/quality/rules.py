"""Rule-based quality: each rule looks at one text and says keep or drop, its name, and what it measured.

Thresholds are compared, never tested for truth: 0 means 0, and None alone switches a rule off. A rule is named as its
knob, so the ledger says which number to change. The measures follow Gopher (Rae et al. 2021, table A1) and hold for any
script: characters of scripts that put no spaces between words count as words of their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

# Thai to Myanmar, Khmer, kana, Han (with its extensions): one character, one token.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
SPACED_WORD = re.compile(rf"[^\W\d_{UNSPACED}]+")
SYMBOL = re.compile(r"[^\w\s]|_")
# What text looks like after a wrong decoding: replacement and control characters, UTF-8 read as a western charset.
BROKEN = re.compile(
    "\ufffd|[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]|[\u00c2\u00c3][\u0080-\u00bf\u2018-\u203a\u20ac]|\u00e2\u20ac."
)
STOP_WORDS = frozenset(
    ("the", "be", "to", "of", "and", "that", "have", "with", "a", "in", "is", "for", "on", "it", "you", "this", "are")
)
NGRAM = 4
# Repetition is only judged where there is enough of a text to repeat itself.
MIN_LINES = 4
MIN_TOKENS = 20


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


class Verdict(NamedTuple):
    """Whether a rule keeps the text, the rule, and the number that it compared."""

    keep: bool
    rule: str
    score: float


class Rule(Protocol):
    def judge(self, text: Profile) -> Verdict: ...


class Profile:
    """One text and its measures, each computed when first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()

    @cached_property
    def chars(self) -> int:
        return len(self.text)

    @cached_property
    def tokens(self) -> list[str]:
        return TOKEN.findall(self.text)

    @cached_property
    def words(self) -> float:
        """Words; two characters of a script without spaces make one."""
        single = sum(1 for token in self.tokens if len(token) == 1 and token >= "\u0e00" and is_unspaced(token))
        return len(self.tokens) - single + single / 2

    @cached_property
    def symbol_ratio(self) -> float:
        """Share of the visible characters that are no letters, marks or digits."""
        visible = len(self.text) - sum(map(len, re.findall(r"\s+", self.text)))
        symbols = SYMBOL.findall(self.text)
        if not self.text.isascii():
            # vowel signs of Indic scripts are marks: parts of letters, not symbols
            symbols = [symbol for symbol in symbols if not unicodedata.category(symbol).startswith("M")]
        return len(symbols) / visible if visible else 0.0

    @cached_property
    def broken_ratio(self) -> float:
        """Share of the characters that a wrong decoding left."""
        return sum(map(len, BROKEN.findall(self.text))) / max(1, self.chars)

    @cached_property
    def repeated_lines(self) -> float:
        """Share of the characters that stand in lines which were there before."""
        lines = [line for line in map(str.strip, self.text.splitlines()) if line]
        if len(lines) < MIN_LINES:
            return 0.0
        repeated = sum((count - 1) * len(line) for line, count in Counter(lines).items())
        return repeated / sum(map(len, lines))

    @cached_property
    def repeated_ngrams(self) -> float:
        """Share of the runs of four tokens that were there before."""
        tokens = self.tokens
        if len(tokens) < MIN_TOKENS:
            return 0.0
        total = len(tokens) - NGRAM + 1
        return 1.0 - len(set(zip(*(tokens[shift:] for shift in range(NGRAM)), strict=False))) / total

    @cached_property
    def mean_word_length(self) -> float | None:
        """Letters a word in scripts with spaces; None where a text has no such words."""
        words = SPACED_WORD.findall(self.text)
        return sum(map(len, words)) / len(words) if words else None

    @cached_property
    def stop_words(self) -> int:
        return len(STOP_WORDS.intersection(token.lower() for token in self.tokens))


@dataclass(frozen=True)
class AtLeast:
    """Keeps a text whose measure reaches the threshold."""

    rule: str
    measure: str
    threshold: float

    def judge(self, text: Profile) -> Verdict:
        score = getattr(text, self.measure)
        return Verdict(score is None or score >= self.threshold, self.rule, float(score or 0))


@dataclass(frozen=True)
class AtMost:
    """Keeps a text whose measure does not pass the threshold."""

    rule: str
    measure: str
    threshold: float

    def judge(self, text: Profile) -> Verdict:
        score = getattr(text, self.measure)
        return Verdict(score is None or score <= self.threshold, self.rule, float(score or 0))


def rules_of(config: QualityConfig) -> list[Rule]:
    """The rules that the config switches on, cheapest first; the first that drops a text is its reason."""
    every: list[tuple[type[AtLeast] | type[AtMost], str, str, float | None]] = [
        (AtLeast, "min_chars", "chars", config.min_chars),
        (AtMost, "max_chars", "chars", config.max_chars),
        (AtMost, "max_broken_ratio", "broken_ratio", config.max_broken_ratio),
        (AtMost, "max_symbol_ratio", "symbol_ratio", config.max_symbol_ratio),
        (AtLeast, "min_words", "words", config.min_words),
        (AtMost, "max_repeated_lines", "repeated_lines", config.max_repeated_lines),
        (AtMost, "max_repeated_ngrams", "repeated_ngrams", config.max_repeated_ngrams),
        (AtLeast, "min_mean_word_length", "mean_word_length", config.min_mean_word_length),
        (AtMost, "max_mean_word_length", "mean_word_length", config.max_mean_word_length),
        (AtLeast, "min_stop_words", "stop_words", config.min_stop_words),
    ]
    return [kind(rule, measure, threshold) for kind, rule, measure, threshold in every if threshold is not None]


def judge(text: str, rules: Sequence[Rule]) -> Verdict:
    """The verdict of the first rule that drops the text, or one that keeps it."""
    profile = Profile(text)
    for rule in rules:
        verdict = rule.judge(profile)
        if not verdict.keep:
            return verdict
    return Verdict(True, "", 0.0)


def is_unspaced(char: str) -> bool:
    """Whether a character belongs to a script without spaces between its words."""
    return re.fullmatch(f"[{UNSPACED}]", char) is not None
