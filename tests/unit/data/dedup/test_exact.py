"""Exact duplicates: stars around one survivor, the same for every order, and labels that disagree."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dedup.exact import Decisions, Member, OnLabelConflict, exact_duplicates, exact_key

Row = tuple[str, str, str | None]  # id, text, label


def decide(rows: list[Row], policy: OnLabelConflict = "majority") -> Decisions:
    return exact_duplicates(
        ((exact_key(text), Member.of(row, row_id, text, label)) for row, (row_id, text, label) in enumerate(rows)),
        policy,
    )


def survivors(rows: list[Row], policy: OnLabelConflict = "majority") -> list[str]:
    dropped = decide(rows, policy).dropped
    return sorted(row_id for row, (row_id, _, _) in enumerate(rows) if row not in dropped)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Dear Customer", "DEAR  customer\n"),
        ("ﬁnance １２", "finance 12"),
        ("Straße", "STRASSE"),
        ("cafe\u0301", "caf\u00e9"),
        ("a\u00a0b", "a b"),
        ("ŉ", "\u02bcN"),
    ],
)
def test_case_width_composition_and_white_space_do_not_count(one: str, other: str) -> None:
    assert exact_key(one) == exact_key(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Take 5 mg daily.", "Take 50 mg daily."),
        ("Pain in the left knee.", "Pain in the right knee."),
        ("No sign of fracture.", "Sign of fracture."),
        ("Paid 12.50 EUR on 2026-01-02", "Paid 12.50 EUR on 2026-01-03"),
        ("Paid 12.50 EUR", "Paid 12.50 USD"),
        ("十二月", "十三月"),
    ],
)
def test_a_template_with_another_value_is_another_record(one: str, other: str) -> None:
    assert exact_key(one) != exact_key(other)
    assert survivors([("a", one, None), ("b", other, None)]) == ["a", "b"]


def test_every_text_has_a_defined_key_or_none() -> None:
    texts = ["spam " * 300, "!!! ??? ...", "今天天气很好", "a", "ab"]
    keys = [exact_key(text) for text in texts]
    assert None not in keys
    assert len(set(keys)) == len(texts)
    assert exact_key("") is exact_key(" \n\t\u3000") is None


def test_empty_texts_are_not_duplicates_of_each_other() -> None:
    assert survivors([("a", "", None), ("b", " ", None), ("c", "", None)]) == ["a", "b", "c"]


def test_two_equal_short_texts_merge() -> None:
    assert survivors([("a", "ok", None), ("b", "OK", None)]) != ["a", "b"]
    assert len(survivors([("a", "ok", None), ("b", "OK", None)])) == 1


def test_two_clusters_that_interleave_leave_two_survivors() -> None:
    rows: list[Row] = [
        ("1", "one text", None),
        ("2", "other text", None),
        ("3", "ONE text", None),
        ("4", "Other text", None),
    ]
    dropped = decide(rows).dropped
    assert len(dropped) == 2
    pairs = {frozenset((rows[row][0], duplicate.partner)) for row, duplicate in dropped.items()}
    assert pairs == {frozenset("13"), frozenset("24")}


def test_every_duplicate_names_its_partner_and_similarity() -> None:
    rows: list[Row] = [("a", "same  text", None), ("b", "same text", None), ("c", "Same text", None)]
    dropped = decide(rows).dropped
    assert sorted(dropped) == [1, 2]
    for duplicate in dropped.values():
        assert (duplicate.rule, duplicate.partner, duplicate.similarity) == ("exact_duplicate", "a", 1.0)


def test_the_longest_text_survives_and_a_label_is_worth_more_than_length() -> None:
    assert survivors([("a", "same text", None), ("b", "same    text", None)]) == ["b"]
    assert survivors([("a", "same text", "ham"), ("b", "same    text", None)]) == ["a"]


TEXTS = st.sampled_from(["one text", "ONE text", "one  text", "two", "TWO ", "three", ""])
ROWS = st.lists(st.tuples(TEXTS, st.sampled_from(["ham", "spam", None])), max_size=25)


@given(ROWS, st.sampled_from(["majority", "keep_all", "drop_all"]), st.randoms(use_true_random=False))
def test_order_changes_nothing(
    found: list[tuple[str, str | None]], policy: OnLabelConflict, shuffler: random.Random
) -> None:
    rows: list[Row] = [(f"id{n}", text, label) for n, (text, label) in enumerate(found)]
    shuffled = rows.copy()
    shuffler.shuffle(shuffled)
    by_id = [
        {in_order[row][0]: duplicate for row, duplicate in decide(in_order, policy).dropped.items()}
        for in_order in (rows, shuffled)
    ]
    assert by_id[0] == by_id[1]


@given(ROWS)
def test_a_cluster_leaves_exactly_one_survivor_and_every_partner_survives(found: list[tuple[str, str | None]]) -> None:
    rows: list[Row] = [(f"id{n}", text, label) for n, (text, label) in enumerate(found)]
    dropped = decide(rows).dropped
    kept = [row for row in range(len(rows)) if row not in dropped]
    for key in {exact_key(text) for _, text, _ in rows} - {None}:
        assert sum(exact_key(rows[row][1]) == key for row in kept) == 1
    assert {duplicate.partner for duplicate in dropped.values()} <= {rows[row][0] for row in kept}


def test_the_step_remembers_nothing() -> None:
    decide([(f"old{n}", f"text {n}", None) for n in range(6)])
    assert survivors([(f"new{n}", f"text {n}", None) for n in range(3)]) == ["new0", "new1", "new2"]


CONFLICT: list[Row] = [("a", "same   text", "ham"), ("b", "same text", "spam"), ("c", "Same text", "spam")]


def test_the_majority_label_survives() -> None:
    assert survivors(CONFLICT, "majority") in (["b"], ["c"])
    assert decide(CONFLICT).conflicts == 1


def test_on_a_tie_the_survivor_loses_its_label() -> None:
    decisions = decide(CONFLICT[:2])
    assert list(decisions.dropped) == [1]
    assert decisions.unlabelled[0].rule == "label_tie"
    assert decisions.unlabelled[0].partner == "b"


def test_keep_all_keeps_one_of_each_label() -> None:
    kept = survivors([*CONFLICT, ("d", "same text", None)], "keep_all")
    assert len(kept) == 2
    assert kept[0] == "a"


def test_drop_all_keeps_nothing_contradictory_and_says_with_whom() -> None:
    rows = [*CONFLICT, ("d", "another", "ham")]
    assert survivors(rows, "drop_all") == ["d"]
    assert {duplicate.rule for duplicate in decide(rows, "drop_all").dropped.values()} == {"label_conflict"}
    assert decide(rows, "drop_all").dropped[1].partner == "a"
