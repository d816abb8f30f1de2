"""What shares words with a held-out text is found, however it is wrapped; what everybody writes is not."""

import pytest

from data.heldout import RUN, HeldOut

MAIL = "the quick brown fox jumps over a lazy dog while seven wizards box with gloves near old mills"
WORDS = MAIL.split()
FOOTER = "to leave this list send a message with the word stop in its body to us now"


def leaks(held_out: HeldOut, text: str) -> bool:
    return held_out.judge([text])[1][0]


def test_a_text_in_other_case_and_spacing_is_found() -> None:
    held_out = HeldOut([MAIL])
    assert leaks(held_out, MAIL.upper().replace(" ", "\n  "))
    assert leaks(held_out, f"Something else before it. {MAIL} And something after it.")


@pytest.mark.parametrize(("words", "found"), [(RUN, True), (RUN - 1, False)])
def test_thirteen_words_in_a_row_are_enough(words: int, found: bool) -> None:
    held_out = HeldOut([MAIL])
    assert leaks(held_out, f"begin {' '.join(WORDS[:words])} end") == found
    assert leaks(held_out, f"begin {' '.join(WORDS[-words:])} end") == found


def test_a_short_text_is_found_in_a_row_and_across_lines() -> None:
    held_out = HeldOut(["Cholera due to Vibrio\n\nbiovar"])
    assert leaks(held_out, "Codes: cholera due to vibrio biovar, and others")
    assert not leaks(held_out, "cholera due to something else of biovar")


def test_a_text_of_a_few_words_is_held_out_as_a_whole_only() -> None:
    held_out = HeldOut(["Thanks a lot", "!!!"])
    assert leaks(held_out, "thanks  a LOT")
    assert leaks(held_out, "!!!")
    assert not leaks(held_out, "he said thanks a lot and left")


def test_what_the_train_texts_have_too_gives_nothing_away() -> None:
    texts = [f"{MAIL}\n{FOOTER}"]
    assert leaks(HeldOut(texts), f"another letter\n{FOOTER}")
    held_out = HeldOut(texts, known=[f"a third letter\n{FOOTER}", "Thanks a lot"])
    assert not leaks(held_out, f"another letter\n{FOOTER}")
    assert leaks(held_out, f"another letter\n{MAIL}")


def test_nothing_held_out_finds_nothing() -> None:
    assert HeldOut([]).judge([MAIL, ""])[1] == [False, False]


def test_each_text_is_judged_by_itself_in_batches_too() -> None:
    held_out = HeldOut([f"{MAIL} {number}" for number in range(1500)])
    texts = [MAIL if number % 7 == 0 else f"{' '.join(WORDS[::-1])} {number}" for number in range(100)]
    assert held_out.judge(texts)[1] == [number % 7 == 0 for number in range(100)]
    keys = held_out.judge(["a b", "A  b", "a c"])[0]
    assert keys[0] == keys[1] != keys[2]
