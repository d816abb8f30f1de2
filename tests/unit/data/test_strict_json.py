"""Strict JSON: the fast path never decides otherwise than the strict one, and leniencies are closed."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data.strict_json import Refused, dump, no_key_lost, parse, parse_strictly

DEPTH = 6
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8)
keys = st.sampled_from(["a", "b", "a:", "\u00e9", ""]) | st.text(max_size=4)


def pair_lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects as pairs, so that a key may come twice."""
    return st.lists(st.tuples(keys, inner), max_size=3).map(lambda pairs: ("object", pairs))


values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | pair_lists(inner), max_leaves=8)


def encode(value: Any, ascii_only: bool) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{encode(k, ascii_only)}: {encode(v, ascii_only)}" for k, v in value[1]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(encode(item, ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def outcome(parser: Any, raw: bytes) -> Any:
    try:
        return repr(parser(raw, DEPTH))  # repr: tells 1 from 1.0 from True, and 0.0 from -0.0
    except Refused as refused:
        return refused.rule


@given(values, st.booleans())
@example([-0.0, 1e22, 2**64, -(2**63) - 1], True)
@example(("object", [("a", ":"), ("a", "")]), True)
def test_fast_and_strict_agree_on_texts(value: Any, ascii_only: bool) -> None:
    raw = encode(value, ascii_only).encode("utf-8", "surrogatepass")
    assert outcome(parse, raw) == outcome(parse_strictly, raw)


@given(values, st.data())
def test_fast_and_strict_agree_on_broken_texts(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value, True).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw)))
        piece = data.draw(
            st.sampled_from([b"", b'"', b":", b"\\", b"\\u003a", b"\\ud800", b"\xff", b"1e999", b"{", b"NaN"])
        )
        raw[place : place + data.draw(st.integers(0, 2))] = piece
    assert outcome(parse, bytes(raw)) == outcome(parse_strictly, bytes(raw))


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b'{"a": NaN}', "number"),
        (b'{"a": [-Infinity]}', "number"),
        (b'{"a": 1e999}', "number"),
        (b'{"a": ' + b"1" * 5000 + b"}", "number"),
        (b'{"a": 1, "a": 1}', "duplicate-key"),
        (b'{"a": [{"b": 1, "b": 2}]}', "duplicate-key"),
        (b'{"a": 1, "\\u0061": 2}', "duplicate-key"),
        (b'{"a": "\\u003a", "b": 1, "b": ""}', "duplicate-key"),
        (b'{"a": "\\udc00\\ud800"}', "encoding"),
        (b'{"\\ud800": 1}', "encoding"),
        (b'{"a": "\xed\xa0\x80"}', "encoding"),
        (b'{"a": "\xc0\xaf"}', "encoding"),
        (b'{"a": ' + b"[" * 6 + b"]" * 6 + b"}", "depth"),
        (b"[" * 100_000, "depth"),
        (b'{"a": 1} {"b": 2}', "syntax"),
        (b'{"a": 01}', "syntax"),
        (b'{"a": "tab\there"}', "syntax"),
        (b"{'a': 1}", "syntax"),
        (b'{"a": 1,}', "syntax"),
        (b"\xef\xbb\xbf{}", "syntax"),
        (b"", "syntax"),
    ],
)
def test_rules(raw: bytes, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(raw, DEPTH)
    assert caught.value.rule == rule


def test_brackets_inside_strings_are_no_depth() -> None:
    text = "[" * 500 + '\\"' + "{" * 500
    assert parse(json.dumps({"a": text}).encode(), DEPTH) == {"a": text}


def test_the_limit_of_depth_is_exact() -> None:
    assert parse(b"[" * 6 + b"]" * 6, 6)
    with pytest.raises(Refused, match="depth"):
        parse(b"[" * 7 + b"]" * 7, 6)


def test_big_integers_and_pairs_are_exact() -> None:
    big = 10254939386542155531111
    value = parse(f'{{"id": {big}, "face": "\\ud83d\\ude00"}}'.encode(), DEPTH)
    assert value == {"id": big, "face": "\U0001f600"} and type(value["id"]) is int
    assert dump(value) == f'{{"id":{big},"face":"\U0001f600"}}'


def test_the_proof_by_colons_has_a_negative_control() -> None:
    raw = b'{"a": "x:y", "a": 1}'
    assert not no_key_lost(raw, orjson.loads(raw))
    assert no_key_lost(b'{"a": "x:y", "b": 1}', {"a": "x:y", "b": 1})


def test_a_note_holds_nothing_of_the_text() -> None:
    with pytest.raises(Refused) as caught:
        parse(b'{"text": "canary-7781", "x": canary-7781}', DEPTH)
    assert "canary" not in caught.value.note
