"""Quality rules: what each drops, what it measured, and that a threshold is a number and no switch."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.quality.measures import measure, measure_batch
from data.quality.rules import QualityConfig, decide, judge, judgments, rules_of

NONE = {field.name: None for field in fields(QualityConfig) if field.name != "min_language_p"}
OFF = QualityConfig(**NONE)  # type: ignore[arg-type]
NOTE = "The patient was seen on Monday and feels much better than in the week before."
CHINESE = "今天天气很好，我们一起去公园散步吧。"
THAI = "วันนี้อากาศดีมาก"
HINDI = "आज मौसम बहुत अच्छा है और हम बाज़ार जाएंगे"


def rule_of(text: str, config: QualityConfig | None = None) -> str:
    return judge(text, rules_of(config or QualityConfig())).rule


def only(**knobs: float) -> QualityConfig:
    return QualityConfig(**NONE | knobs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", [NOTE, CHINESE, THAI, HINDI, "Привет, как дела сегодня?", "مرحبا كيف حالك اليوم", "Yes, thanks a lot"]
)
def test_real_text_of_any_script_is_kept(text: str) -> None:
    assert rule_of(text) == ""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "min_chars"),
        (" \n\t ", "min_chars"),
        ("short", "min_chars"),
        ("x" * 1_000_001, "max_chars"),
        ("?!? *** $$$ ### !!! ///", "max_symbol_ratio"),
        ("😀😀😀😀😀😀😀😀😀😀", "max_symbol_ratio"),
        ("supercalifragilistic", "min_words"),
        ("cafÃ© dÃ©jÃ  vu naÃ¯ve Ã©tÃ© Ã  la", "max_broken_ratio"),
        ("a\ufffd\ufffd b\ufffd c\ufffd\ufffd d\ufffd", "max_broken_ratio"),
        ("\n".join(["buy it now and here"] * 40), "max_repeated_lines"),
        ("spam " * 300, "max_repeated_ngrams"),
        ("a b c d e f g h i j k l m n", "min_mean_word_length"),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz xx", ""),
        ("QWERTYUIOPASDFGHJKLZXCVBNMqwertyuiopasdfghjklzxcvbnm " * 2, "max_mean_word_length"),
    ],
)
def test_noise_is_dropped_and_the_rule_is_named(text: str, rule: str) -> None:
    assert rule_of(text) == rule


def test_the_score_is_what_was_measured() -> None:
    verdict = judge("?!?!x", rules_of(only(max_symbol_ratio=0.5)))
    assert verdict == (False, "max_symbol_ratio", 0.8)
    assert judge("four", rules_of(only(min_chars=5))) == (False, "min_chars", 4.0)


def test_a_threshold_is_reached_by_its_own_value() -> None:
    assert rule_of("12345", only(min_chars=5)) == ""
    assert rule_of("12345", only(max_chars=5)) == ""
    assert rule_of("123456", only(max_chars=5)) == "max_chars"


@pytest.mark.parametrize("rule", ["max_symbol_ratio", "max_broken_ratio", "max_repeated_lines", "max_repeated_ngrams"])
def test_zero_means_zero_and_none_means_off(rule: str) -> None:
    text = "one two! \ufffd\n" * 30
    assert rule_of(text, only(**{rule: 0})) == rule
    assert rule_of(text, OFF) == ""
    assert rule_of(NOTE.rstrip("."), only(**{rule: 0})) == ""


def test_zero_as_a_lower_bound_keeps_everything() -> None:
    assert rule_of("", only(min_chars=0, min_words=0, min_mean_word_length=0, min_stop_words=0)) == ""


def test_chinese_is_not_too_few_words() -> None:
    assert len(CHINESE.split()) == 1
    assert measure(CHINESE)["words"] == 8
    assert measure("two words")["words"] == 2
    assert rule_of(CHINESE, only(min_words=5)) == ""


def test_vowel_signs_are_no_symbols() -> None:
    assert measure(HINDI)["symbol_ratio"] == 0
    assert measure("cafe\u0301")["symbol_ratio"] == 0


def test_stop_words_are_counted_once_each() -> None:
    assert rule_of("the the the the", only(min_stop_words=2)) == "min_stop_words"
    assert rule_of("The price is right", only(min_stop_words=2)) == ""


def test_a_short_text_cannot_repeat_itself_by_rule() -> None:
    assert rule_of("no\nno\nno", only(max_repeated_lines=0)) == ""
    assert rule_of("no " * 19, only(max_repeated_ngrams=0)) == ""


def test_every_knob_is_a_rule_of_its_name() -> None:
    knobs = {field.name for field in fields(QualityConfig)} - {"languages", "min_language_p"}
    every = QualityConfig(**dict.fromkeys(knobs, 1), languages=("en",))  # type: ignore[arg-type]
    assert {rule.rule for rule in rules_of(every)} == knobs | {"languages"}


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_every_text_has_measures_within_their_range(text: str) -> None:
    measured = measure(text)
    for name in ("symbol_ratio", "broken_ratio", "repeated_lines", "repeated_ngrams"):
        assert 0 <= measured[name] <= 1
    assert 0 <= measured["words"] <= max(1, len(text))


def test_a_changed_threshold_decides_anew_without_texts() -> None:
    texts = [NOTE, "short", "spam " * 300, CHINESE, "?!? *** $$$ ### !!! ///"]
    measures = measure_batch(texts)
    rules = rules_of(QualityConfig())
    first, scores = decide(measures, rules)
    assert [rules[at].rule if at >= 0 else "" for at in first] == [rule_of(text) for text in texts]
    assert [math.isnan(score) for score in scores] == [True, False, False, True, False]
    for batch in measures.to_batches():
        assert decide(batch, rules)[0].tolist() == first.tolist()
    strict = rules_of(QualityConfig(min_chars=1000))
    named = [strict[at].rule for at in decide(measures, strict)[0]]
    assert named == ["min_chars", "min_chars", "max_repeated_ngrams", "min_chars", "min_chars"]


def test_the_whole_story_of_a_record_is_told() -> None:
    measures = measure_batch([NOTE, "spam " * 300])
    told = {judgment.rule: judgment for judgment in judgments(measures, 1, rules_of(QualityConfig()))}
    assert len(told) == len(rules_of(QualityConfig()))
    assert not told["max_repeated_ngrams"].keep and told["max_repeated_ngrams"].measured > 0.99
    assert told["max_repeated_ngrams"].threshold == 0.9 and told["min_chars"].keep
    assert told["max_rare_han"].measured is None and told["max_rare_han"].keep
    assert all(judgment.keep for judgment in judgments(measures, 0, rules_of(QualityConfig())))
