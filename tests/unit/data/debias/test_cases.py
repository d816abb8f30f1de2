"""Which records are compared, in an order and parts that follow from their content."""

from __future__ import annotations

import numpy as np
import pytest

from data.debias.cases import NONE, Cases, cases_of
from data.debias.config import DebiasConfig
from data.debias.features import Features, digests
from data.errors import DaymillError
from tests.unit.data.debias.made_up import Corpus, corpus

CONFIG = DebiasConfig(min_group=20)


def content(cases: Cases, given: Corpus, rows: np.ndarray) -> list[tuple[str, str | None, str | None]]:
    return [tuple(column[cases.order[row]] for column in given) for row in rows]  # type: ignore[misc]


def test_parts_do_not_depend_on_the_order_of_records() -> None:
    given = corpus(300)
    mixed = given.take(np.random.default_rng(1).permutation(300).tolist())
    one, two = (cases_of(*records, CONFIG) for records in (given, mixed))
    for part in ("learn", "held"):
        assert content(one, given, getattr(one, part)) == content(two, mixed, getattr(two, part))
    assert one.fold.tolist() == two.fold.tolist() and one.check.tolist() == two.check.tolist()
    assert 0.2 < len(one.held) / 300 < 0.4 and set(one.fold.tolist()) == {0, 1}
    assert not set(one.learn.tolist()) & set(one.held.tolist())


def test_equal_texts_never_stand_on_both_sides() -> None:
    given = corpus(100)
    twice = Corpus(given.texts * 2, given.labels * 2, given.groups * 2)
    cases = cases_of(*twice, CONFIG)
    sides = [{twice.texts[cases.order[row]] for row in part} for part in (cases.learn, cases.held)]
    assert not sides[0] & sides[1]
    folds = [{twice.texts[cases.order[row]] for row in cases.learn[cases.fold == k]} for k in (0, 1)]
    assert not folds[0] & folds[1]


def test_another_seed_draws_other_parts() -> None:
    given = corpus(200)
    one, two = (cases_of(*given, DebiasConfig(min_group=20, seed=seed)) for seed in (0, 1))
    assert {given.texts[i] for i in one.order[one.held]} != {given.texts[i] for i in two.order[two.held]}


def test_small_groups_rare_labels_and_gaps_are_counted_and_left_out() -> None:
    given = corpus(200)
    labels: list[str | None] = ["rare" if i < 5 else label for i, label in enumerate(given.labels)]
    groups: list[str | None] = ["tiny" if 5 <= i < 10 else group for i, group in enumerate(given.groups)]
    labels[10], groups[11] = None, None
    cases = cases_of(given.texts, labels, groups, CONFIG)
    assert cases.label_names == ["no", "yes"] and cases.group_names == ["a", "b"]
    assert len(cases.learn) + len(cases.held) == 200 - 12
    assert cases.counts["in_rare_labels"] == 5 and cases.counts["in_small_groups"] == 5
    assert cases.counts["labelled"] == 199 and cases.counts["without_group"] == 1
    assert cases.group_report["tiny"] == {"records": 5, "compared": False, "labels": {}}
    assert cases.group_report["a"]["compared"] and sum(cases.group_report["a"]["labels"].values()) > 50
    codes = dict(zip(cases.order.tolist(), cases.labels.tolist()))
    assert codes[10] == NONE and codes[0] == NONE and codes[5] != NONE


@pytest.mark.parametrize(
    ("labels", "groups", "reason"),
    [
        ([None] * 60, ["a", "b"] * 30, "no record has both"),
        (["x", "y"] * 30, [None] * 60, "no record has both"),
        (["x", "y"] * 30, ["a"] * 60, "fewer than two groups"),
        (["x", "y"] * 30, ["a"] * 50 + ["b"] * 10, "fewer than two groups"),
        (["x"] * 60, ["a", "b"] * 30, "fewer than two labels"),
        ([], [], "no record has both"),
    ],
)
def test_why_nothing_can_be_compared(labels: list[str | None], groups: list[str | None], reason: str) -> None:
    cases = cases_of([f"text {i}" for i in range(len(labels))], labels, groups, CONFIG)
    assert reason in cases.reason


def test_parts_too_small_to_judge_by_are_not_judged() -> None:
    given = corpus(40)
    assert "too few records" in cases_of(*given, DebiasConfig(min_group=2)).reason
    assert cases_of(*corpus(400), DebiasConfig(min_group=2)).reason == ""


def test_unequal_lengths_are_an_error() -> None:
    with pytest.raises(DaymillError, match="2 texts, 1 labels and 2 groups"):
        cases_of(["a", "b"], ["x"], ["g", "h"], CONFIG)


def test_at_most_so_many_records_are_learned_from() -> None:
    cases = cases_of(*corpus(300), DebiasConfig(min_group=20, max_records=100))
    assert len(cases.learn) + len(cases.held) == 100


def test_impossible_knobs_are_named_together() -> None:
    with pytest.raises(DaymillError, match=r"max_weight is 1.*folds is 1.*strength is -1"):
        DebiasConfig(max_weight=1, folds=1, strength=-1)


def test_features_are_the_same_for_the_same_text_alone() -> None:
    texts = ["Good day, good people", "好的 一天", "", "good day 日本語テキスト", "day day people"]
    features = Features(2**10, 100)
    together = features.fit(texts).toarray()
    assert (together == features.of(texts).toarray()).all()
    assert (together[0] == features.of(texts[:1]).toarray()[0]).all()
    lengths = np.linalg.norm(together, axis=1)
    assert lengths[[0, 1, 3, 4]] == pytest.approx(1) and lengths[2] == 0, "an empty text has no features"
    assert features.of([]).shape == (0, together.shape[1])


def test_digests_are_of_content_and_seed() -> None:
    assert digests(["a", "b", "a"], 0)[[0, 1]].tolist() == digests(["a", "b"], 0).tolist()
    assert digests(["a"], 0) != digests(["a"], 1)
    assert digests(["\ud800"], 0).dtype == np.uint64, "a lone surrogate is text, too"
