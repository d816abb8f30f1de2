"""The knobs of clean: they decide anew what was measured once. Where the rules come from: data/quality/rules.py."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from data.dedup.exact import OnLabelConflict
from tasks.params import Params


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
