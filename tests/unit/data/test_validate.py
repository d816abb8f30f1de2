"""Their fields to ours: mapping, types, dates, ids made from content, and errors that name what is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import data.ids as ids_module
from data.errors import DaymillError
from data.ids import SeenIds
from data.strict_json import Refused
from data.validate import Mapper, content_id, field_map, iso_date, unmatched_error


def record(value: Any, **mapping: Any) -> Any:
    return Mapper(field_map(mapping)).record(value)


def rule_of(value: Any, **mapping: Any) -> str:
    with pytest.raises(Refused) as caught:
        record(value, **mapping)
    return caught.value.rule


def test_everything_unmapped_goes_to_extra() -> None:
    value = {"id": "r", "text": "t", "label": "spam", "url": None, "meta": {"k": [1, 2.5]}}
    found = record(value)
    assert (found.id, found.text, found.label) == ("r", "t", "spam")
    assert json.loads(found.extra) == {"url": None, "meta": {"k": [1, 2.5]}}


def test_names_are_mapped_with_dots_and_joined_texts() -> None:
    value = {"subject": "Hello", "mail": {"body": "World", "size": 3}, "meta": {"is_fraud": True}, "text": "theirs"}
    found = record(value, text=["subject", "mail.body"], label="meta.is_fraud")
    assert (found.text, found.label) == ("Hello\n\nWorld", "true")
    assert json.loads(found.extra) == {"mail": {"size": 3}, "text": "theirs"}


def test_a_literal_key_with_a_dot_goes_first() -> None:
    assert record({"a.b": "x", "a": {"b": "y"}}, text="a.b").text == "x"


def test_a_missing_part_of_the_text_is_left_out() -> None:
    assert record({"subject": None, "body": "b"}, text=["subject", "body"]).text == "b"
    assert rule_of({"subject": None, "body": ""}, text=["subject", "body"]) == "text"
    assert rule_of({"subject": 5, "body": "b"}, text=["subject", "body"]) == "text"


@pytest.mark.parametrize(
    ("label", "expected"),
    [("spam", "spam"), (True, "true"), (False, "false"), (1, "1"), (0, "0"), (1.0, "1"), (None, None), ("", None)],
)
def test_labels_are_strings(label: Any, expected: str | None) -> None:
    assert record({"text": "t", "label": label}).label == expected


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ([1], "not-an-object"),
        (None, "not-an-object"),
        ({}, "text"),
        ({"text": None}, "text"),
        ({"text": 5}, "text"),
        ({"text": " \n\t"}, "text"),
        ({"text": "t", "id": True}, "id"),
        ({"text": "t", "id": 1.5}, "id"),
        ({"text": "t", "id": ["a"]}, "id"),
        ({"text": "t", "label": {"a": 1}}, "label"),
        ({"text": "t", "label": 0.73}, "label"),
        ({"text": "t", "group": []}, "group"),
        ({"text": "t", "entity": {}}, "entity"),
    ],
)
def test_rules(value: Any, rule: str) -> None:
    assert rule_of(value) == rule


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2024-05-01", "2024-05-01"),
        ("20240501", "2024-05-01"),
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00+00:00"),
        ("yesterday", None),
        ("01/05/2024", None),
        ("0001-01-01T00:00:00+05:00", None),
        (1714557600, None),
    ],
)
def test_dates(date: Any, expected: str | None) -> None:
    assert iso_date(date) == expected
    found = record({"text": "t", "date": date})
    assert found.date == expected
    assert bool(found.repair) == (expected is None)
    assert json.loads(found.extra) == ({"date": date} if expected is None else {})


def test_ids_made_from_content() -> None:
    base = content_id(record({"text": "t", "a": 1, "b": 2}))
    assert base == content_id(record({"b": 2, "text": "t", "a": 1}))
    assert base != content_id(record({"text": "t", "a": 1, "b": 3}))
    assert base != content_id(record({"text": "t", "label": "1", "b": 2}))
    assert content_id(record({"text": "t", "n": 10**30})) != content_id(record({"text": "t", "n": 10**30 + 1}))


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"txet": "body"}, "did you mean `text`"),
        ({"text": None}, "list of names"),
        ({"text": []}, "list of names"),
        ({"text": 5}, "list of names"),
        ({"label": ["a"]}, "name of a field"),
        ({"label": ""}, "name of a field"),
        ({"text": ["a", "b"], "label": "a"}, "two of our fields"),
    ],
)
def test_a_wrong_mapping_is_a_clear_error(mapping: dict[str, Any], words: str) -> None:
    with pytest.raises(DaymillError, match=words):
        field_map(mapping)


def test_a_mapping_that_fits_nothing_names_what_is_there() -> None:
    mapper = Mapper(field_map({"text": "boddy", "label": "is_frod"}))
    with pytest.raises(Refused):
        mapper.record({"body": "t", "is_fraud": 1})
    message = str(unmatched_error(mapper, ["body", "is_fraud"]))
    assert "`boddy`, did you mean `body`?" in message and "`is_frod`, did you mean `is_fraud`?" in message
    assert "fields seen: body, is_fraud" in message


def test_our_own_optional_names_need_not_be_there() -> None:
    mapper = Mapper(field_map())
    mapper.record({"text": "t"})
    assert unmatched_error(mapper, ["text"]) is None
    swapped = Mapper(field_map({"label": "group", "group": None}))
    swapped.record({"text": "t"})
    assert "`group`" in str(unmatched_error(swapped, ["text"]))


@settings(deadline=None)  # the table is compiled once a machine
@given(st.lists(st.lists(st.integers(0, 40).map(str), max_size=12), max_size=12))
def test_seen_ids_are_a_set_however_they_are_packed(batches: list[list[str]]) -> None:
    seen, model = SeenIds(), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_module, "YOUNG", 4)
        for batch in batches:
            expected = []
            for id_ in batch:
                expected.append(id_ not in model)
                model.add(id_)
            assert seen.admit(batch) == expected
    assert len(seen) == len(model)


def test_a_name_given_to_another_field_is_no_default_any_more() -> None:
    found = record({"text": "t", "id": "p1", "label": "x"}, entity="id", group="label")
    assert (found.id, found.entity, found.label, found.group) == ("", "p1", None, "x")
