"""What is measured: every count against a plain reading of its definition, and each measure on what it is made for."""

from __future__ import annotations

import base64
import math
import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.quality.measures import MEASURES, measure, measure_batch
from data.quality.scripts import TOKEN

NOTE = "The patient was seen on Monday and feels much better than in the week before. "
CHINESE = "今天天气很好，我们一起去公园散步吧。"
PIECES = ("a", "bb", "ccc,", "dd.", "一", "二", "The", "the", "of\n", "privacy", "policy", "read", "more", "x\n\n")
WORDS = st.lists(st.sampled_from(PIECES), max_size=80)


def tokens_of(text: str) -> list[str]:
    return [token.lower() for token in TOKEN.findall(text.strip())]


def plain(text: str) -> dict[str, float]:
    """Repetition as Gopher defines it, read slowly."""
    tokens = tokens_of(text)
    chars, found = sum(map(len, tokens)), {}
    for n in range(2, 11):
        grams = [tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)]
        times = Counter(grams)
        top = max(times.values(), default=0)
        commonest = max((sum(map(len, gram)) for gram, count in times.items() if count == top), default=0)
        seen: set[tuple[str, ...]] = set()
        covered: set[int] = set()
        for at, gram in enumerate(grams):
            if gram in seen:
                covered.update(range(at, at + n))
            seen.add(gram)
        enough = len(tokens) >= 20
        if n <= 4:
            found[f"top_{n}gram"] = min(1.0, top * commonest / chars) if enough and top > 1 else 0.0
        else:
            found[f"repeated_{n}grams"] = sum(len(tokens[at]) for at in covered) / chars if enough else 0.0
        if n == 4:
            found["repeated_ngrams"] = 1 - len(times) / len(grams) if enough else 0.0
    return found


@settings(max_examples=60, deadline=None)
@given(WORDS)
def test_repetition_is_what_a_plain_count_finds(words: list[str]) -> None:
    text = " ".join(words)
    measured = measure(text)
    for name, value in plain(text).items():
        assert measured[name] == pytest.approx(value, abs=1e-6), name
    tokens = Counter(tokens_of(text))
    total = sum(tokens.values())
    assert measured["unique_words"] == (pytest.approx(len(tokens) / total) if total else None)
    entropy = -sum(count / total * math.log2(count / total) for count in tokens.values())
    assert measured["word_entropy"] == pytest.approx(entropy, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["same line", "other line.", "- point", "so...", "", "  ", "第一行。"]), max_size=30))
def test_lines_are_what_a_plain_count_finds(lines: list[str]) -> None:
    text = "\n".join(lines).strip()
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    measured = measure(text)
    assert measured["lines"] == len(kept)
    share = lambda count: pytest.approx(count / max(1, len(kept)))  # noqa: E731
    assert measured["bullet_lines"] == share(sum(line.startswith("-") for line in kept))
    assert measured["ellipsis_lines"] == share(sum(line.endswith("...") for line in kept))
    assert measured["terminal_lines"] == share(sum(line.endswith((".", "。")) for line in kept))
    repeated = sum((count - 1) * len(line) for line, count in Counter(kept).items())
    assert measured["repeated_lines"] == (pytest.approx(repeated / sum(map(len, kept))) if len(kept) >= 4 else 0)
    paragraphs = [tuple(map(str.strip, part.splitlines())) for part in re.split(r"\n(?:[ ]*\n)+", text) if part.strip()]
    again = sum(count - 1 for count in Counter(paragraphs).values())
    if len(paragraphs) >= 4:
        assert measured["repeated_paragraphs"] == pytest.approx(again / len(paragraphs))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=5))
def test_a_text_measures_the_same_alone_and_among_others(texts: list[str]) -> None:
    together = measure_batch(texts)
    assert together.schema.equals(MEASURES)
    assert together.to_pylist() == [measure(text) for text in texts]
    for name in MEASURES.names:
        if name.endswith(("_ratio", "_share", "_lines", "_words", "grams")) and "sentence" not in name:
            values = np.array([v for v in together.column(name).to_pylist() if v is not None])
            assert ((values >= 0) & ((values <= 1) | (name in {"symbol_words", "newline_ratio"}))).all(), name


@pytest.mark.parametrize("text", [None, "", " \n\t "])
def test_nothing_measures_as_nothing(text: str | None) -> None:
    measured = measure_batch([text]).to_pylist()[0]
    assert measured["chars"] == measured["words"] == measured["lines"] == 0
    assert measured["mean_word_length"] is measured["letter_fit"] is measured["rare_han"] is None
    assert measured["language"] == "und" and measured["language_p"] is None
    assert measure_batch([]).num_rows == 0


@pytest.mark.parametrize("char", ["\ud800", "\x00", "\U0010ffff", "\ufffe", "\u0378", "A" + "\u0301" * 50])
def test_every_code_point_can_be_measured(char: str) -> None:
    assert measure(f"one {char} two {char}{char}")["words"] >= 2


def spoiled(encoding: str, text: str = "Déjà vu: naïve café, señor — “où”") -> str:
    return text.encode("utf-8").decode(encoding, "replace")


@pytest.mark.parametrize(
    ("name", "clean", "noisy", "least"),
    [
        ("broken_ratio", "Déjà vu: naïve café, señor — “où”", spoiled("latin-1"), 0.3),
        ("broken_ratio", "Déjà vu: naïve café, señor — “où”", spoiled("cp1252"), 0.3),
        ("broken_ratio", "今天天气很好", "今天天气很好".encode().decode("latin-1"), 0.99),
        ("broken_ratio", "Привет, как дела сегодня?", "Привет, как дела сегодня?".encode().decode("latin-1"), 0.8),
        ("broken_ratio", "Hindi आज मौसम", "".join(c + "\u0316\u0317\u0318\u0319\u031c" for c in "zalgo text"), 0.3),
        ("invisible_ratio", "a family 👨‍👩‍👧 of three people", "\u200b".join("zero width"), 0.4),
        ("encoded_ratio", NOTE * 2, base64.b64encode(random.Random(1).randbytes(150)).decode(), 1.0),
        ("encoded_ratio", NOTE * 2, random.Random(2).randbytes(40).hex(), 1.0),
        ("encoded_ratio", "https://example.org/a/B4c/Zz9?q=1 is the page", "caf=C3=A9 =E2=82=AC d=C3=A9j=C3=A0", 0.5),
        ("markup_ratio", "if a < b and c > d & e; R&D <3", '<td class="x">1&nbsp;</td><br/>', 0.9),
        ("url_ratio", "see section 3.2 of the text", "http://a.example/b mail@c.example www.d.example", 1.0),
        ("letter_fit", NOTE * 2, None, 0),
        ("vowelless_words", NOTE, "thr ptnt ws sn mndy fls mch bttr wk bfr", 0.8),
        ("home_row", NOTE, "asdf jkl sdfg hjkl asdfkj ghaldk", 0.9),
        ("mixed_script_words", "наша api сегодня", "pаyment оf аmount is lаtе", 0.7),
        ("rare_han", CHINESE, "今天天气很好".encode().decode("gbk", "replace") + "龘靐齉", 0.5),
        ("inner_caps", "Dr McDonald uses iPhone and NATO terms", "tHe pAtIeNt wAs sEeN mOnDaY", 0.99),
        ("inner_symbols", "don't e-mail and/or call me @home", "th#e pa%tient w!as se*en o^n", 0.99),
        ("char_runs", "well... so it goes", "aaaaaaa bbbbbbbb ======", 0.99),
        (
            "boilerplate",
            NOTE * 3,
            "Please do not reply to this. All rights reserved. Click here to go.",
            0.8,
        ),
        ("lorem_ipsum", NOTE, "Lorem ipsum dolor sit amet, consectetur adipiscing elit", 3),
        ("stuttered", NOTE * 2, "the the patient was was seen on Monday on Monday", 0.4),
        ("open_end", 'He said "yes."', "The amount in ques", 1),
        ("symbol_words", "a #tag here", "# # # # ...", 4),
        ("alpha_words", "1 2 3 4", NOTE, 1),
        ("digit_ratio", NOTE, "12 34 56", 1),
        ("newline_ratio", NOTE, "a\nb\nc\nd", 0.7),
        ("short_lines", NOTE, "a\nb\nc\nd", 1),
        ("curly_ratio", NOTE, "{{a}}{}", 0.5),
    ],
)
def test_each_measure_sees_what_it_is_made_for(name: str, clean: str, noisy: str | None, least: float) -> None:
    low = measure(clean)[name]
    if noisy is None:
        high, least = -measure("xqzj wvkpt bgfhd zzqk pvwxj kqjh ffgd wrtzp bvnmc " * 2)[name], 6
        low = -low
        assert low < 3.5
    else:
        high = measure(noisy)[name]
        assert low <= 0.35
    assert high >= least


@pytest.mark.parametrize(
    "text",
    [
        "Der Patient wurde am Montag gesehen und fühlt sich viel besser als in der Woche davor.",
        "Toplantı yarın saat onda başlayacak, lütfen belgeleri hazırlayın ve bana gönderin.",
        "Thời tiết hôm nay rất đẹp chúng tôi đi dạo trong công viên với các bạn của mình.",
        "Vrijeme je danas lijepo i idemo u park prošetati s prijateljima iz susjedstva.",
    ],
)
def test_letters_of_any_latin_language_fit(text: str) -> None:
    assert measure(text)["letter_fit"] > -3.6
    assert measure(text[::-1])["letter_fit"] < measure(text)["letter_fit"] - 0.8


def test_boilerplate_speaks_for_its_sentence_only() -> None:
    few = measure(NOTE * 5 + "All rights reserved.")["boilerplate"]
    assert few == pytest.approx(3 / (15 * 5 + 3))
    assert measure("Our terms and rights. Reserved all.")["boilerplate"] == 0
    assert measure("ALL\nRights, reserved")["boilerplate"] == 1


def test_scripts_without_spaces_have_words_and_sentences() -> None:
    measured = measure(CHINESE * 3)
    assert (measured["words"], measured["sentences"]) == (24, 3)
    assert measured["terminal_lines"] == measured["alpha_words"] == 1
    assert measure("हम बाज़ार जाएंगे")["words"] == 3


def test_the_same_numbers_for_any_batch_order() -> None:
    texts = [NOTE * n + CHINESE * (n % 3) for n in range(1, 30)]
    assert measure_batch(texts[::-1]).to_pylist() == measure_batch(texts).to_pylist()[::-1]
