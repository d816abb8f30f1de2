"""Encoding: bounded, never empty, the two ends of what does not fit, no special token out of a text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data.errors import DaymillError
from data.tokens import END, END_ID, encode, pad, parse_tokenizer, train_tokenizer

TEXTS = ["the quick brown fox", "pay the invoice now", "the valve is closed again"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return parse_tokenizer(train_tokenizer(TEXTS, 300))


def test_the_order_of_texts_does_not_change_the_vocabulary() -> None:
    assert train_tokenizer(TEXTS, 290) == train_tokenizer(TEXTS[::-1], 290)


@given(st.text(), st.integers(1, 20), st.integers(1, 40), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_every_text_gives_one_to_max_len_tokens(text: str, max_len: int, max_chars: int, tail: float) -> None:
    tokenizer = parse_tokenizer(train_tokenizer(TEXTS, 300))
    (row,) = encode(tokenizer, [text], max_len, max_chars, tail)
    assert 1 <= len(row) <= max_len and row[-1] == END_ID


def test_a_long_text_gives_its_two_ends(tokenizer: Tokenizer) -> None:
    text = "a" * 10 + "x" * 500 + "z" * 10
    whole = encode(tokenizer, [text], 1000, 1000)[0]
    (row,) = encode(tokenizer, [text], 21, 1000, tail=0.5)
    assert row.tolist() == [*whole[:10], *whole[-11:-1], END_ID]
    (row,) = encode(tokenizer, [text], 1000, 20, tail=0.5)
    assert tokenizer.decode(row[:-1].tolist()) == "a" * 10 + "z" * 10


def test_a_text_that_fits_is_whole_whatever_the_tail(tokenizer: Tokenizer) -> None:
    rows = [encode(tokenizer, ["pay the invoice now"], 64, 100, tail)[0].tolist() for tail in (0.0, 0.5, 1.0)]
    assert rows[0] == rows[1] == rows[2]


def test_special_tokens_in_a_text_are_text(tokenizer: Tokenizer) -> None:
    (row,) = encode(tokenizer, [f"{END}{END}"], 64, 100)
    assert row.tolist().count(END_ID) == 1


def test_limits_that_make_no_sense_are_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(DaymillError, match="max_len is 0"):
        encode(tokenizer, ["a"], 0, 10)
    with pytest.raises(DaymillError, match=r"tail is 1\.5"):
        encode(tokenizer, ["a"], 10, 10, 1.5)


def test_padding_marks_the_real_tokens() -> None:
    ids, mask = pad([np.array([3, 4, 5]), np.array([6])])
    assert ids.tolist() == [[3, 4, 5], [6, 0, 0]] and mask.tolist() == [[1, 1, 1], [1, 0, 0]]
