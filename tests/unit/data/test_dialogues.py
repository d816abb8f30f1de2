"""Dialogues and pairs at the door: what is taken, what is refused and why, and that ordinary records notice nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import data.fast_intake as fast_intake
import data.intake as intake_module
from data.dialogues import ROLES, Message, dialogue_in, messages_of, text_of
from data.errors import DaymillError
from data.ingest import Places, ingest, read_quarantine
from data.readers.item import Limits
from data.shards import read_table
from data.strict_json import Refused
from data.validate import Mapper, content_id, field_map


def said(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


GOOD = said(("system", "Be brief."), ("user", "Who is it?"), ("assistant", "Me."), ("user", "Who?"))
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"messages": "hello"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": ["hello"]}, "messages"),
    (said(("robot", "hi"), ("assistant", "hello")), "role"),
    ({"messages": [{"content": "hi"}]}, "role"),
    ({"messages": [{"role": ["user"], "content": "hi"}]}, "role"),
    (said(("user", "hi"), ("system", "be nice"), ("assistant", "hello")), "role"),
    (said(("user", "hi"), ("assistant", " \n")), "content"),
    (said(("user", ""), ("assistant", "hello")), "content"),
    (said(("user", None), ("assistant", "hello")), "content"),
    (said(("user", "hi"), ("assistant", 5)), "content"),
    (said(("user", "hi"), ("user", "anyone?")), "answer"),
    (said(("assistant", "hello")), "answer"),
    (said(("assistant", "hello"), ("user", "hi")), "answer"),
    ({"prompt": "hi"}, "completion"),
    ({"completion": "hello"}, "prompt"),
    ({"prompt": "hi", "completion": " "}, "completion"),
    ({"prompt": ["hi"], "completion": "hello"}, "prompt"),
    ({"prompt": None, "completion": None, "other": 1}, "text"),
    ({"messages": None}, "text"),
]


def test_a_dialogue_gives_its_text_and_stays_whole() -> None:
    record = Mapper(field_map()).record(json.loads(json.dumps(GOOD | {"id": "a", "topic": "doors"})))
    assert record.text == "Be brief.\n\nWho is it?\n\nMe.\n\nWho?"
    assert json.loads(record.extra) == GOOD | {"topic": "doors"}
    assert dialogue_in(record.extra) == [Message(m["role"], m["content"]) for m in GOOD["messages"]]


def test_a_pair_is_a_dialogue_of_two() -> None:
    record = Mapper(field_map()).record({"prompt": "a long mail", "completion": "short", "label": "ham"})
    assert (record.text, record.label) == ("a long mail\n\nshort", "ham")
    assert dialogue_in(record.extra) == [Message("user", "a long mail"), Message("assistant", "short")]


@pytest.mark.parametrize(("value", "rule"), BROKEN)
def test_what_is_no_dialogue_is_refused_by_a_rule(value: dict[str, Any], rule: str) -> None:
    with pytest.raises(Refused) as caught:
        Mapper(field_map()).record(dict(value))
    assert caught.value.rule == rule
    for content in ("hello", "be nice", "anyone", "robot"):
        assert content not in caught.value.note, "nothing of a record's text"


@given(
    st.lists(
        st.tuples(st.sampled_from([*ROLES, "robot"]), st.one_of(st.text(), st.none(), st.integers())), max_size=5
    ).map(lambda pairs: said(*pairs))
)
def test_whatever_comes_is_taken_whole_or_refused(value: dict[str, Any]) -> None:
    try:
        messages = messages_of(value)
    except Refused:
        return
    assert messages is not None
    assert [(m.role, m.content) for m in messages] == [(m["role"], m["content"]) for m in value["messages"]]
    assert any(m.role == "assistant" for m in messages[1:]) and text_of(messages).strip()


def test_a_text_goes_before_a_dialogue() -> None:
    assert Mapper(field_map()).record({"text": "mine", "messages": "anything"}).text == "mine"
    assert Mapper(field_map({"text": ["a", "b"]})).record({"a": None, "b": "mine", "prompt": 1}).text == "mine"
    assert Mapper(field_map({"text": ["a", "b"]})).record(GOOD | {"a": None}).text.startswith("Be brief.")


def test_other_keys_of_messages_are_kept_and_passed_over() -> None:
    value = {"messages": [{"role": "user", "content": "hi", "name": "Ann"}, {"role": "assistant", "content": "hello"}]}
    assert messages_of(value) == [Message("user", "hi"), Message("assistant", "hello")]


def test_equal_texts_of_other_roles_have_other_ids() -> None:
    swapped = said(("user", "a"), ("assistant", "b"), ("user", "c"))
    straight = said(("user", "a"), ("user", "b"), ("assistant", "c"))
    records = [Mapper(field_map()).record(value) for value in (swapped, straight)]
    assert records[0].text == records[1].text
    assert content_id(records[0]) != content_id(records[1])


@pytest.mark.parametrize("fast_from", [0, 1 << 40])
def test_ingest_conserves_dialogues_beside_ordinary_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast_from: int
) -> None:
    """By the compiled scanner and without it: the same records, the same reasons."""
    for module in (fast_intake, intake_module):
        monkeypatch.setattr(module, "TYPED_ROWS", 0)
    source = tmp_path / "in.jsonl"
    values = [{"id": "t", "text": "an ordinary record"}, GOOD, {"prompt": "p", "completion": "c"}]
    values += [value for value, _ in BROKEN]
    source.write_text("".join(json.dumps(value) + "\n" for value in values))
    places = Places(tmp_path / "records", tmp_path / "quarantine.jsonl", tmp_path / "ledger.parquet")
    report = ingest([("in.jsonl", source)], places, field_map(), Limits(), fast_from=fast_from)
    assert (report.rows_in, report.kept, report.quarantined) == (len(values), 3, len(BROKEN))
    refused = read_quarantine(places.quarantine)
    assert [entry["rule"] for entry in refused] == [rule for _, rule in BROKEN]
    records = read_table(places.records).to_pylist()
    assert [record["text"] for record in records] == [
        "an ordinary record",
        "Be brief.\n\nWho is it?\n\nMe.\n\nWho?",
        "p\n\nc",
    ]
    assert json.loads(records[1]["extra"]) == GOOD and records[0]["extra"] == "{}"


def test_dialogues_alone_are_no_wrong_mapping(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(GOOD) + "\n")
    places = Places(tmp_path / "records", tmp_path / "quarantine.jsonl", tmp_path / "ledger.parquet")
    assert ingest([("in.jsonl", source)], places, field_map(), Limits()).kept == 1
    source.write_text(json.dumps({"words": "no text of ours"}) + "\n")
    for place in (places.quarantine, places.ledger):
        place.unlink()
    with pytest.raises(DaymillError, match="none of 1 records: `text`"):
        ingest(
            [("in.jsonl", source)], Places(tmp_path / "other", *list(vars(places).values())[1:]), field_map(), Limits()
        )
