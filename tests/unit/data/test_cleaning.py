"""Decisions from stored measures and verified pairs: order of levels, stars, vetoes, labels, review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from data.cleaning import CleanConfig, Decisions, Facts, decide_all, largest_clusters
from data.quality.review import ReviewDecision
from data.quality.rules import QualityConfig, rules_of
from data.scoring import identify

TEXTS = {
    "a": "the long text that says it all, and some more",
    "b": "the long text that says it all, and more",
    "c": "the long text that says it all",
    "d": "something else entirely",
    "e": "x",
}


def facts_of(texts: dict[str, str], labels: dict[str, str | None] | None = None) -> tuple[Facts, pa.Table]:
    measures = identify(list(texts), list(texts.values()))
    measures = measures.append_column("chars", measures["length"].cast(pa.int32()))
    given = labels or {}
    return Facts.of(measures, [given.get(row_id, "ham") for row_id in texts]), measures


def pairs_of(texts: dict[str, str], *pairs: tuple[str, str, float, str | None]) -> pa.Table:
    names = list(texts)
    return pa.table(
        {
            "a_row": pa.array([names.index(a) for a, *_ in pairs], pa.int64()),
            "b_row": pa.array([names.index(b) for _, b, *_ in pairs], pa.int64()),
            "similarity": pa.array([similarity for *_, similarity, _ in pairs], pa.float64()),
            "veto": pa.array([veto for *_, veto in pairs], pa.string()),
        }
    )


def decided(
    texts: dict[str, str],
    pairs: Sequence[tuple[str, str, float, str | None]] = (),
    labels: dict[str, str | None] | None = None,
    **knobs: Any,
) -> tuple[dict[str, tuple[str, str | None]], Decisions, Facts]:
    facts, measures = facts_of(texts, labels)
    config = CleanConfig(**{"rules": min_chars(3)} | knobs)
    found = decide_all(facts, measures, pairs_of(texts, *pairs), config)
    gone = {
        facts.ids[row]: (drop.rule, None if drop.partner is None else facts.ids[drop.partner])
        for row, drop in found.dropped.items()
    }
    return gone, found, facts


def min_chars(count: int) -> list[Any]:
    return [rule for rule in rules_of(QualityConfig(min_chars=count)) if rule.rule == "min_chars"]


def test_near_duplicates_go_to_the_longest_they_were_compared_with() -> None:
    gone, found, facts = decided(TEXTS, [("a", "b", 0.9, None), ("b", "c", 0.85, None)])
    assert gone == {"b": ("near_duplicate", "a"), "e": ("min_chars", None)}  # c was never compared with a: it stays
    assert found.clusters.keys() == {0, 2}  # yet it stands in the same cluster
    assert found.clusters[0] == found.clusters[2]
    assert largest_clusters(facts, found) == [
        {"survivor": "a", "size": 2, "similarity_min": 0.9, "members": ["b"], "linked": 1}
    ]


@pytest.mark.parametrize(("similarity", "dropped"), [(0.8, {"b", "e"}), (0.95, {"e"}), (0.9, {"b", "e"})])
def test_another_threshold_decides_anew_and_its_own_value_merges(similarity: float, dropped: set[str]) -> None:
    gone, found, _ = decided(TEXTS, [("a", "b", 0.9, None)], similarity=similarity)
    assert set(gone) == dropped
    assert not found.clusters  # one survivor alone, or nothing near enough


def test_a_veto_keeps_both_in_one_cluster() -> None:
    gone, found, _ = decided(TEXTS, [("a", "b", 0.99, "number")])
    assert set(gone) == {"e"}
    assert found.vetoed == {"number": 1}
    assert found.clusters[0] == found.clusters[1]


def test_near_duplicates_that_contradict_each_other_both_stay() -> None:
    gone, found, _ = decided(TEXTS, [("a", "b", 0.99, None)], {"b": "spam"})
    assert set(gone) == {"e"}
    assert found.vetoed == {"label": 1}
    gone, _, _ = decided(TEXTS, [("a", "b", 0.99, None)], {"a": None})
    assert gone["a"] == ("near_duplicate", "b")  # the record with the label is worth more than the longer one


def test_a_poor_record_is_nobodys_duplicate() -> None:
    texts = {"long": "y" * 50, "short": "y" * 10}
    gone, _, _ = decided(texts, [("long", "short", 0.9, None)], rules=[max_chars(20)])
    assert gone == {"long": ("max_chars", None)}


def max_chars(count: int) -> Any:
    return next(rule for rule in rules_of(QualityConfig(max_chars=count)) if rule.rule == "max_chars")


def test_pairs_of_a_text_hold_for_its_equals() -> None:
    texts = {"first": "Some Text", "equal": "some  text", "near": "some text, or so", "other": "no"}
    pair = ("near", "equal", 0.9, None)  # verified with one of the equal texts, not with the one that stays
    gone, _, _ = decided(texts, [pair], rules=[])
    assert gone == {"first": ("exact_duplicate", "equal"), "equal": ("near_duplicate", "near")}


def test_review_goes_first() -> None:
    review = {"a": ReviewDecision("relabel", "spam"), "d": ReviewDecision("drop"), "b": ReviewDecision("keep")}
    gone, found, _ = decided(TEXTS, [("a", "b", 0.99, None)], review=review)
    assert gone == {"d": ("reviewed", None), "e": ("min_chars", None)}
    assert found.relabelled[0].label == "spam"
    assert found.vetoed == {"label": 1}  # what the person said counts from there on


def test_order_of_the_records_changes_no_decision() -> None:
    pairs = [("a", "b", 0.9, None), ("b", "c", 0.85, None), ("c", "d", 0.8, "date")]
    forward, one, _ = decided(TEXTS, pairs)
    backward, other, _ = decided(dict(reversed(TEXTS.items())), pairs[::-1])
    assert forward == backward
    assert sorted(one.clusters.values()) == sorted(other.clusters.values())


def test_texts_of_nothing_are_not_equal() -> None:
    gone, _, _ = decided({"a": "", "b": "", "c": " "}, rules=[])
    assert gone == {}


def test_positions_put_every_record_somewhere() -> None:
    facts, _ = facts_of(TEXTS)
    assert sorted(facts.positions().tolist()) == list(range(len(TEXTS)))
    assert np.argmin(facts.positions()) == 0
