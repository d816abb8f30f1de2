"""Protected items: what is read, what keeps two texts apart, and what must not."""

from __future__ import annotations

import itertools
import pickle
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup import chunks as reading
from data.dedup.chunks import Chunk
from data.dedup.items import KINDS, Item, Reader
from data.dedup.lists import words
from data.dedup.pairs import decide_pair, jaccard, shingles
from data.dedup.protect import ProtectConfig, Protector, difference
from data.errors import DaymillError
from data.samples.siblings import FORMS, planted, siblings
from data.text import normalize

PROTECTOR = Protector()


def values(text: str, kind: str = "number") -> list[str]:
    return [value for own, value in PROTECTOR.items(text) if own == kind]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("take 5 mg, then 5mg or 5 Milligrams", ["5 mg", "5 mg", "5 mg"]),
        ("5 mg/kg/day and 5 mg per kg a day", ["5 mg kg day", "5 mg kg day"]),
        ("120/80 but not 80/120", ["120/80", "80/120"]),
        ("1,5 mg is 1.5 mg is 1.50 mg", ["1.5 mg"] * 3),
        ("versions 1.5 and 1.50 and list 1,5", ["1.5", "1.50", "1,5"]),
        ("1,500 mg or 1.500 mg", ["1,500 mg", "1.500 mg"]),
        ("1,234.50 euro, 1.234,50 €, €1234.5", ["1234.5 eur"] * 3),
        ("1,234,567 dollars", ["1234567 usd"]),
        ("007 is not 7", ["007", "7"]),
        (".5 mg, 0.5 mg", ["0.5 mg", "0.5 mg"]),
        ("-5 °C, 5 °C", ["-5 ° c", "5 ° c"]),
        ("<5 mg and >5 mg and ≤5 mg", ["<5 mg", ">5 mg", "≤5 mg"]),
        ("5-10 mg, 5 - 10 mg, 5–10 mg", ["5", "10 mg"] * 3),
        ("25 %, 25%, 25 percent", ["25 %"] * 3),
        ("$5 million, 5 million dollars", ["5 million usd"] * 2),
        ("five mg, twenty", ["5 mg", "20"]),
        ("one tablet for one of them", ["1 tablet"]),
        ("at 5 a.m., 5 pm", ["5 am", "5 pm"]),
        ("once daily, once upon a time, twice a week", ["1 time", "daily", "2 time"]),
        ("the first, the 1st, the second", ["1.", "1.", "2."]),
        ("hepatitis B, stage I, stage II, type 2", ["hepatitis b", "stage i", "ii", "2"]),
        ("B12 and D12, S72.001A", ["b12", "d12", "s72.001a"]),
        ("mg of it, ml of it", ["mg", "ml"]),
        ("½ tablet, 1½ tablets", ["1⁄2 tablet", "11⁄2 tablet"]),
        ("１２ ｍｇ", ["12 mg"]),
        ("每日两次，三天，百分之五，一个，十二", ["2 time", "3 day", "5 %", "十二"]),
        ("5毫克", ["5 mg"]),
    ],
)
def test_numbers(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 March 2024, March 3rd, 2024, 2024-03-03, 3. März 2024", ["2024-03-03"] * 4),
        ("3/4/2024 and 03/04/2024", ["3/4/2024", "3/4/2024"]),
        ("March 2024, 3rd of March", ["2024-03", "--03-03"]),
        ("you may march in May, in March, or April", ["--05", "--03", "--04"]),
        ("on Monday, Mondays, Mon 3 May", ["monday", "monday", "monday", "--05-03"]),
        ("the sun sat there", []),
        ("today or tomorrow", ["today", "tomorrow"]),
        ("kernel 2.4.19 of 24.12.2019", ["24.12.2019"]),
        ("2024年3月3日 星期一 明天", ["2024 year", "3 month", "3 day", "monday", "tomorrow"]),
    ],
)
def test_dates(text: str, expected: list[str]) -> None:
    assert values(text, "date") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no fever, not seen, isn't, isn’t, cannot", ["no", "not", "not", "not", "not"]),
        ("denies pain; without pain; negative for it", ["deny", "without", "negative"]),
        ("nondisplaced, nonsense", ["nondisplaced"]),
        ("unusual but abnormal", ["abnormal"]),
        ("nicht, sans, нет, 没有", ["nicht", "sans", "нет", "没"]),
        ("非常感谢，未来，无论", []),
        ("痛みはありません", ["ない"]),
        ("문제 없음", ["없음"]),
        ("please do not reply to this mail, and no liability", []),
        ("font-family: sans-serif", []),
    ],
)
def test_negation(text: str, expected: list[str]) -> None:
    assert values(text, "negation") == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("laterality", "left, right-sided, bilaterally, lower lobe", ["left", "right", "bilateral", "lower"]),
        ("laterality", "L knee, R. knee, both eyes, OD 20/40; both say R", ["left", "right", "bilateral", "right"]),
        ("laterality", "左侧，右侧，双侧，左右", ["left", "right", "bilateral"]),
        ("drug", "Bisoprolol, atorvastatin, cefuroxime, warfarin, aspirins", 5),
        ("drug", "april, magazine, capital, concept, mongrel, servir, cholesterol, artisan", []),
        ("drug", "服用比索洛尔和头孢曲松", ["比索洛尔", "头孢曲松"]),
        ("episode", "initial encounter, subsequent encounter, sequela", ["initial", "subsequent", "sequela"]),
        ("episode", "the initial idea, a delayed train, delayed healing", ["delayed"]),
    ],
)
def test_other_kinds(kind: str, text: str, expected: list[str] | int) -> None:
    found = values(text, kind)
    assert (len(found) if isinstance(expected, int) else found) == expected


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("continue 5 mg", "continue 50 mg", "number"),
        ("seen on Monday", "seen on Tuesday", "date"),
        ("there is evidence of 3 bleedings", "there is no evidence of 3 bleedings", "negation"),
        ("the left knee", "the right knee", "laterality"),
        ("5 mg of bisoprolol", "5 mg of ramipril", "drug"),
        ("initial encounter", "subsequent encounter", "episode"),
        ("left and 5 mg", "5 mg and left", "order"),
        ("a in the morning 5 mg, in the evening 10 mg", "a in the morning 10 mg, in the evening 5 mg", "number"),
        ("an unusual sign in", "an strange sign in", None),
        ("no change", "NO   change", None),
    ],
)
def test_the_veto_names_the_kind_from_both_sides(a: str, b: str, kind: str | None) -> None:
    assert PROTECTOR.veto(a, b) == PROTECTOR.veto(b, a) == kind
    assert (PROTECTOR.fingerprint(a) == PROTECTOR.fingerprint(b)) == (kind is None)


RENT = "The rent of the flat is 500 euro. It has a view of the park. The deposit for the keys is 900 euro."


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (RENT, "The deposit for the keys is 900 euro. The rent of the flat is 500 euro. It has a view.", None),
        (
            RENT,
            "It has a view of the park. The deposit for the keys is 900 euro; The rent of the flat is 500 euro.",
            None,
        ),
        (RENT, RENT.replace("500", "x").replace("900", "500").replace("x", "900"), "number"),
        (RENT, f"The deposit for the keys is 900 euro. {RENT}", "number"),
        (
            "Take bisoprolol. 5 mg daily. Take ramipril. 10 mg daily.",
            "Take bisoprolol. 10 mg daily. Take ramipril. 5 mg daily.",
            "number",
        ),
        (
            "这个房间每月的租金是五百元。押金一共是九百元整。",
            "押金一共是九百元整。这个房间每月的租金是五百元。",
            None,
        ),
    ],
)
def test_sentences_may_change_places_but_not_their_values(a: str, b: str, kind: str | None) -> None:
    assert PROTECTOR.veto(a, b) == PROTECTOR.veto(b, a) == kind


NOISE = "News of the day for you http://a.example/u?id={0} <b>hello</b> <img width={0}> © {0} {0}@mail.example.com"


@pytest.mark.parametrize(
    "config",
    [
        ProtectConfig(addresses="protect"),
        ProtectConfig(markup="protect"),
        ProtectConfig(footers="protect"),
    ],
)
def test_what_states_nothing_counts_only_where_asked(config: ProtectConfig) -> None:
    assert PROTECTOR.items(NOISE.format(2019)) == []
    assert Protector(config).fingerprint(NOISE.format(2019)) != Protector(config).fingerprint(NOISE.format(2020))


def test_machine_codes_count_unless_ignored() -> None:
    a, b = "ref tx9f3a81c2d4 paid", "ref tx7c2b55d9e1 paid"
    assert PROTECTOR.veto(a, b) == "number"
    assert Protector(ProtectConfig(codes="ignore")).veto(a, b) is None


def test_kinds_can_be_left_out() -> None:
    text = "no 5 mg of bisoprolol on Monday, left, initial encounter"
    assert [kind for kind, _ in PROTECTOR.items(text)] == [
        "negation",
        "number",
        "drug",
        "date",
        "laterality",
        "episode",
    ]
    for kind in KINDS:
        assert [own for own, _ in Protector(ProtectConfig(kinds=(kind,))).items(text)] == [kind]
    assert Protector(ProtectConfig(kinds=())).items(text) == []


def test_own_words_and_patterns() -> None:
    own = Protector(ProtectConfig(kinds=(), words=("Red Flag", "5 star", "会议", "red"), patterns=(r"ward [A-D]\b",)))
    assert own.items("a RED  flag, a red hat, redder, 5 stars, a 5 star house") == [
        ("word", "red flag"),
        ("word", "red"),
        ("word", "5 star"),
    ]
    assert own.items("今天的会议 Ward C") == [("word", "会议"), ("pattern", "ward c")]
    assert own.veto("in Ward C", "in ward D") == "pattern"
    assert own.veto("the red one", "the blue one") == "word"
    both = Protector(ProtectConfig(words=("5 mg",)))
    assert both.items("take 5 mg") == [("word", "5 mg"), ("number", "5 mg")]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kinds": ("numbers",)}, r"protect\.kinds: 'numbers' is no kind; expected some of number, date"),
        ({"patterns": ("ok", "a(b")}, r"protect\.patterns\[1\]: no regular expression: .* at column 2"),
        ({"patterns": ("a*",)}, "matches the empty text"),
        ({"patterns": (r"\s",)}, "matches the empty text or white space"),
        ({"patterns": (r"(a+)+b",)}, "unbounded repeat inside an unbounded repeat"),
        ({"patterns": (r"x(\w+\s*)*y",)}, "unbounded repeat inside an unbounded repeat"),
        ({"patterns": (r"(a|ab)*c",)}, "unbounded"),
        ({"words": ("fine", " - ")}, r"protect\.words\[1\] has no letters"),
        ({"substitution": "loose"}, r"protect\.substitution is 'loose'; expected content, strict or exact"),
        ({"addresses": "drop"}, r"protect\.addresses is 'drop'; expected ignore or protect"),
    ],
)
def test_a_wrong_config_is_told_at_once(wrong: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(DaymillError, match=said):
        ProtectConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [r"\d{1,3}-[a-z]+", r"(?:ab|cd)+e", r"(a++)+b", r"((?>a+)b)+", r"[A-Z]{2}\d+\w*"])
def test_harmless_patterns_are_taken(pattern: str) -> None:
    assert Protector(ProtectConfig(patterns=(pattern,))).items("") == []


def test_strict_substitution_asks_for_each_pair() -> None:
    strict = Protector(ProtectConfig(substitution="strict"))
    assert strict.pairwise and not PROTECTOR.pairwise
    text = "Dear customer, we noticed an unusual sign in to your account from a new device on Monday evening."
    assert strict.veto(text, text.replace("unusual", "strange")) == "substitution"
    assert strict.veto(text, text.replace("noticed an", "have noticed an")) is None
    assert strict.veto(text, text.replace(" new", "")) is None
    assert strict.veto(text, f"{text} This message was sent automatically.") is None
    assert strict.veto(text, text.replace(" an ", " the ")) is None, "a word of form for a word of form"
    assert strict.veto(text, text.replace("Monday", "Friday")) == "date"
    assert strict.veto("系统将于今晚进行维护升级", "系统将于今晚进行维修升级") == "substitution"
    assert strict.veto("系统将于今晚进行维护升级", "系统将于今晚再进行维护升级") is None


def test_exact_substitution_protects_every_content_word() -> None:
    exact = Protector(ProtectConfig(substitution="exact"))
    text = "Migraine without aura, not intractable, with status migrainosus"
    assert exact.pairwise
    assert exact.veto(text, f"Chronic {text}") == "substitution"
    assert exact.veto(text, text.replace(" status", "")) == "substitution"
    assert exact.veto(text, text.replace("status migrainosus", "migrainosus status")) == "substitution"
    assert exact.veto(text, f"The {text.upper()}.") is None, "case, signs and words of form say nothing"


def test_strict_substitution_takes_bounded_time_on_long_texts() -> None:
    rng = random.Random(0)
    text = [f"w{rng.randrange(300)}" for _ in range(60_000)]
    other = [word for word in text if rng.random() > 0.02]
    strict = Protector(ProtectConfig(kinds=(), substitution="strict"))
    strict.veto(" ".join(text), " ".join(other))
    unequal = ["a b c d e f g"] * 3000
    assert strict.veto(" ".join([*unequal, "x"]), " ".join([*unequal, "x", "y"])) is None


def test_it_travels_to_other_processes_by_its_config() -> None:
    own = Protector(ProtectConfig(words=("red flag",), kinds=("number",)))
    own.items("warm up the memo with 5 mg")
    sent = pickle.dumps(own)
    assert len(sent) < 1000
    assert pickle.loads(sent).items("a red flag 5 mg") == own.items("a red flag 5 mg")


def test_fingerprints_are_the_same_in_every_process() -> None:
    texts = ["5 mg bisoprolol, no pain left", "", "没有 5毫克"]
    code = f"from data.dedup.protect import Protector as P; print([P().fingerprint(t) for t in {texts!r}])"
    for seed in ("0", "1"):
        told = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        assert told.stdout.strip() == str([PROTECTOR.fingerprint(text) for text in texts])
    assert all(0 <= PROTECTOR.fingerprint(text) < 2**64 for text in texts)


PIECES = sorted(
    words("""
        no not the a of and pain left right both L R knee 5 12 120/80 1,5 .5 -5 <5 > < mg mg/kg tablets a.m. p per day
        March May may in 3rd 2024 2024-03-03 1/2 $ €5 % 5% copyright © c reply to this type b ii one once daily second
        initial encounter delayed healing hundred million b12 - . OD eye Mon sat sans serif don't bisoprolol ° 5mg
        今天 三天 5毫克 没有 一个 你好 ( 5) mg, (right mg/5ml 10 € 天 服用洛尔 百分之 五
        (5 1.500 1,500.50, 3.4.2024 10. 12345; of:
    """)
)


class Close(Reader):
    """Looks closely at every chunk, as if no memo knew an answer."""

    def _chunk(self, text: str) -> Chunk:
        return self._chunk_of_any(text)._replace(says=None, amount=None)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join))
@settings(max_examples=200, deadline=None)
def test_the_memo_answers_as_a_close_look_does(text: str) -> None:
    assert Reader(frozenset(KINDS)).read(text) == CLOSE.read(text)


CLOSE = Close(frozenset(KINDS))


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.sampled_from(["  ", "\n", "\t "]))
@settings(max_examples=100, deadline=None)
def test_case_width_and_white_space_change_nothing(pieces: list[str], space: str) -> None:
    plain = PROTECTOR.items(" ".join(pieces))
    assert PROTECTOR.items(space.join(pieces)) == plain
    assert PROTECTOR.items(normalize(" ".join(pieces))) == plain
    assert PROTECTOR.items(" ".join(pieces).upper().replace("µ", "µ")) == plain


@pytest.mark.parametrize(
    "text", ["@" + "a" * 200_000, "a" * 200_000 + "@", "1" * 200_000, "<a " * 50_000, "<!--" * 20_000]
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    assert len(PROTECTOR.items(text)) <= 1


@given(st.text(max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_text_has_items(text: str) -> None:
    found = PROTECTOR.items(text)
    assert found == PROTECTOR.items(normalize(text))
    assert all(kind in KINDS and value for kind, value in found)
    assert not PROTECTOR.items(normalize(text).translate({ord(c): " " for c in normalize(text) if c.isalnum()}))


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("ab")), max_size=6), st.data())
def test_a_difference_is_told_for_unequal_sequences_only(items: list[Item], data: st.DataObject) -> None:
    other = data.draw(st.permutations(items))
    kind = difference(items, other)
    assert (kind is None) == (items == list(other))
    assert kind is None or kind == difference(other, items)
    assert difference(items, [*items, ("drug", "x")]) == "drug"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REMEMBERED", "REMEMBERED_IN_FULL"):
        monkeypatch.setattr(reading, name, 2000)
    reader = Reader(frozenset(KINDS))
    texts = [f"take {number} mg of x{number} (not y{number}) on word{number}" for number in range(300)]
    assert [reader.read(text) for text in texts] == [PROTECTOR.items(text) for text in texts]
    assert max(len(memo) for memo in (reader._matters, reader._chunks, reader._classes)) < 150


SIBLINGS = siblings(10_000, seed=3)


def test_no_two_of_ten_thousand_siblings_share_a_fingerprint() -> None:
    assert len({PROTECTOR.fingerprint(text) for text in SIBLINGS}) == len(SIBLINGS) == 10_000
    bare = Protector(ProtectConfig(kinds=()))
    assert len({bare.fingerprint(text) for text in SIBLINGS[:100]}) == 1, "without protection they are all one"


def test_alike_siblings_are_decided_different() -> None:
    rng = random.Random(0)
    bare = Protector(ProtectConfig(kinds=()))
    unprotected = 0
    for form in range(len(FORMS)):
        texts = rng.sample(SIBLINGS[form :: len(FORMS)], 120)
        for a, b in itertools.islice(itertools.combinations(texts, 2), 300):
            assert decide_pair(a, b, PROTECTOR, threshold=0.3).verdict == "different"
            unprotected += decide_pair(a, b, bare, threshold=0.3).verdict == "same"
    assert unprotected > 600, "alike enough to merge if nothing protected them"


def test_planted_copies_are_not_kept_apart() -> None:
    texts = SIBLINGS[:300]
    copies = list(planted(texts, seed=1, similarity=0.8))
    assert len(copies) == len(texts)
    assert {copy.edit for copy in copies} == {"replace", "delete", "insert", "mixed", "footer", "form"}
    for copy in copies:
        original = texts[copy.place]
        assert copy.text != original
        reached = jaccard(shingles(normalize(original)), shingles(normalize(copy.text)))
        assert reached == copy.similarity >= 0.8
        assert PROTECTOR.veto(original, copy.text) is None
    assert min(copy.similarity for copy in copies) < 0.85
    assert copies == list(planted(texts, seed=1, similarity=0.8))


def test_siblings_follow_from_the_seed_and_end_where_a_form_has_no_more() -> None:
    assert siblings(50, seed=1) == siblings(50, seed=1) != siblings(50, seed=2)
    with pytest.raises(DaymillError, match="fewer than 9 siblings"):
        siblings(9, forms=("only {side}",))
