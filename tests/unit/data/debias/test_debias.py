"""Debiasing from records to weights and features: what it gives, what it leaves alone, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from data.debias import nets, probe
from data.debias.config import AccuracyBudget, AdversaryCollapsed, DebiasConfig, Debiased
from data.debias.debias import debias
from tests.unit.data.debias.made_up import Corpus, corpus

SHARES = {"a": 0.6, "b": 0.4}
QUICK = DebiasConfig(rows=128, epochs=4, hidden=32, min_group=30, accuracy_budget=0.2, leak_tolerance=0.1)


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Networks of a few hundred records that are learned in a second, and probes that give up sooner."""
    patch.setattr(nets, "FEWEST_STEPS", 100)
    patch.setattr(probe, "ROUNDS", 8)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture(scope="module")
def records() -> Corpus:
    """Some without a label, some without a group, some of a group of three."""
    given = corpus(900, shares=SHARES)
    labels = [None if i % 10 == 3 else label for i, label in enumerate(given.labels)]
    groups = [None if i % 15 == 4 else "c" if i in (5, 6, 7) else group for i, group in enumerate(given.groups)]
    return Corpus(given.texts, labels, groups)


@pytest.fixture(scope="module")
def weighed(records: Corpus) -> Iterator[Debiased]:
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        yield debias(*records, QUICK)


def test_weights_are_bounded_with_mean_one_and_for_labelled_records(records: Corpus, weighed: Debiased) -> None:
    weights = weighed.weights
    labelled = np.array([label is not None for label in records.labels])
    assert weights.dtype == np.float32 and weights.shape == (900,)
    assert weights[labelled].mean() == pytest.approx(1, abs=1e-5)
    assert (weights[~labelled] == 1).all()
    assert weights.min() >= 1 / 5 - 1e-6 and weights.max() <= 5 + 1e-6
    assert weights[labelled].std() > 0.05, "they say something"
    unknown = np.array([group is None or group == "c" for group in records.groups]) & labelled
    assert (weights[unknown] != 1).mean() > 0.9, "a weight follows from text and label, whatever is known of the group"
    assert weighed.features is None


def test_the_disadvantaged_labels_gain_weight(records: Corpus, weighed: Debiased) -> None:
    def mean(group: str, label: str) -> float:
        chosen = [g == group and y == label for g, y in zip(records.groups, records.labels)]
        return float(weighed.weights[chosen].mean())

    assert mean("b", "yes") > 1.02 > 0.99 > mean("a", "yes")


def test_the_report_tells_all_of_it_and_no_text(records: Corpus, weighed: Debiased) -> None:
    report = json.loads(json.dumps(weighed.report, allow_nan=False))
    assert report["mode"] == "weights" and report["verdict"] in ("debiased", "goal not reached")
    assert report["equal_odds"]["after"] < report["equal_odds"]["before"]
    assert report["chance"]["gap"] > report["chance"]["random_groups"]
    assert report["probe"]["texts"] > 0.9 > report["probe"]["after"]
    assert report["groups"]["c"] == {"records": 3, "compared": False, "labels": {}}
    assert report["groups"]["a"]["after"]["yes"]["recall"] > 0.3
    assert report["records"]["given"] == 900
    assert report["records"]["learned_from"] + report["records"]["held_out"] < 900 * 0.9 * 14 / 15 + 1
    assert "filler" not in json.dumps(report)


@pytest.mark.slow
def test_the_order_of_records_changes_nothing(records: Corpus, weighed: Debiased) -> None:
    mixed = np.random.default_rng(3).permutation(900)
    again = debias(*records.take(mixed.tolist()), QUICK)
    assert (again.weights == weighed.weights[mixed]).all(), "bit for bit"
    assert json.dumps(again.report) == json.dumps(weighed.report)


@pytest.mark.slow
def test_features_hide_the_group_and_keep_the_label(records: Corpus) -> None:
    done = debias(*records, replace(QUICK, mode="representation", width=4))
    assert done.features is not None and done.features.shape == (900, 4) and done.features.dtype == np.float32
    assert (done.weights == 1).all()
    told = done.report["probe"]
    assert told["after"] < told["before"] - 0.05
    assert done.report["accuracy"]["after"] > 0.6
    same = {text: features.tobytes() for text, features in zip(records.texts, done.features)}
    assert len(set(same.values())) > 800


@pytest.mark.slow
def test_a_dead_adversary_is_found_out_in_both_modes(records: Corpus) -> None:
    for mode in ("weights", "representation"):
        with pytest.raises(AdversaryCollapsed) as refused:
            debias(*records, replace(QUICK, mode=mode, adversary_lr=0.0, strength=1.0))  # type: ignore[arg-type]
        assert refused.value.report["verdict"] == "refused"
        json.dumps(refused.value.report, allow_nan=False)


@pytest.mark.slow
def test_fairness_that_costs_more_than_the_budget_is_refused() -> None:
    # The group tells the label better than merit does, so that treating groups alike has to cost.
    given = corpus(900, shares={"a": 0.9, "b": 0.1})
    with pytest.raises(AccuracyBudget, match="more than the budget"):
        debias(*given, replace(QUICK, accuracy_budget=0.0))


@pytest.mark.parametrize("change", ["no leak", "no difference"])
def test_without_a_gap_every_record_weighs_one(change: str) -> None:
    shares, tells = ({"a": 0.5, "b": 0.5}, True) if change == "no difference" else ({"a": 0.52, "b": 0.48}, False)
    done = debias(*corpus(900, seed=2, shares=shares, tells=tells), QUICK)
    assert done.report["verdict"] == "no gap beyond chance" and "random groups reach" in done.report["reason"]
    assert (done.weights == 1).all()
    assert done.report["equal_odds"]["difference"] == 0


@pytest.mark.parametrize("groups", [["a"] * 60, [None] * 60, ["a"] * 40 + ["b"] * 20])
def test_nothing_to_compare_is_said_and_weighs_one(groups: list[str | None]) -> None:
    done = debias([f"text {i}" for i in range(60)], ["x", "y"] * 30, groups, replace(QUICK, mode="representation"))
    assert done.report["verdict"] == "nothing to compare" and done.report["reason"]
    assert (done.weights == 1).all() and done.features is None


@pytest.mark.slow
def test_three_groups_and_three_labels() -> None:
    given = corpus(1_200, seed=4, shares={"a": 0.7, "b": 0.5, "c": 0.3})
    labels = ["maybe" if i % 6 == 0 else label for i, label in enumerate(given.labels)]
    calls: list[tuple[int, int]] = []
    done = debias(given.texts, labels, given.groups, QUICK, lambda at, of: calls.append((at, of)))
    report = done.report
    assert report["verdict"] != "no gap beyond chance"
    assert set(report["groups"]) == {"a", "b", "c"} and set(report["equal_odds"]["by_label"]) == {"maybe", "no", "yes"}
    assert report["adversary"]["chance"] == pytest.approx(1 / 3, abs=1e-6)
    assert report["equal_odds"]["after"] < report["equal_odds"]["before"]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.slow
def test_records_beyond_the_cap_are_weighed_by_what_the_others_taught(records: Corpus) -> None:
    done = debias(*records, replace(QUICK, max_records=500))
    assert done.report["records"]["learned_from"] + done.report["records"]["held_out"] == 500
    labelled = np.array([label is not None for label in records.labels])
    if done.report["verdict"] != "no gap beyond chance":
        assert (done.weights[labelled] != 1).mean() > 0.95
