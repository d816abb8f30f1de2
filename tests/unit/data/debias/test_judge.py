"""What is refused, and what passes: each refusal beside the case where it must not come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data.debias.cases import cases_of
from data.debias.config import AccuracyBudget, AdversaryCollapsed, BiasRemains, DebiasConfig, DebiasRefused
from data.debias.fairness import Change
from data.debias.judge import Judge, Judged, Seen
from data.debias.probe import Leak
from data.errors import DaymillError
from tests.unit.data.debias.made_up import corpus

CONFIG = DebiasConfig(min_group=20)
CASES = cases_of(*corpus(1_200), CONFIG)


def judge() -> Judge:
    return Judge(CASES, CONFIG, {"groups": {name: {} for name in CASES.group_names}})


def judged(gap: tuple[float, float], accuracy: tuple[float, float], low: float = -0.2) -> Judged:
    return Judged(Change(*gap, gap[1] - gap[0], low, 0.1), Change(*accuracy, accuracy[1] - accuracy[0], -0.1, 0.1))


@pytest.mark.parametrize(
    ("gap", "accuracy", "verdict"),
    [
        ((0.2, 0.09), (0.80, 0.79), "debiased"),
        ((0.2, 0.1), (0.80, 0.785), "debiased"),
        ((0.2, 0.15), (0.80, 0.81), "goal not reached"),
        ((0.2, 0.2), (0.80, 0.80), "no gain"),
        ((0.2, 0.21), (0.80, 0.80), "no gain"),
    ],
)
def test_what_passes_has_a_verdict(gap: tuple[float, float], accuracy: tuple[float, float], verdict: str) -> None:
    one = judge()
    one.verdict(judged(gap, accuracy))
    assert one.report["verdict"] == verdict and f"{gap[0]:.3f} to {gap[1]:.3f}" in one.report["reason"]


def test_accuracy_beyond_the_budget_is_refused() -> None:
    one = judge()
    with pytest.raises(AccuracyBudget, match=r"80\.0% to 78\.4%: more than the budget of 1\.5%") as refused:
        one.verdict(judged((0.2, 0.0), (0.80, 0.784)))
    assert refused.value.report is one.report and one.report["verdict"] == "refused"
    assert isinstance(refused.value, DebiasRefused) and isinstance(refused.value, DaymillError)


def test_a_gap_that_grows_beyond_doubt_is_refused() -> None:
    with pytest.raises(BiasRemains, match="it grows"):
        judge().verdict(judged((0.2, 0.3), (0.8, 0.8), low=0.01))


def test_a_collapsed_adversary_is_refused_and_one_that_is_fooled_is_not() -> None:
    with pytest.raises(AdversaryCollapsed, match=r"finds 50\.0%.*fresh one finds 75\.0%") as refused:
        judge().adversary(10.0, [Seen(0.5, 0.7, 1e-4), Seen(0.5, 0.8, 1e-4)])
    assert refused.value.report["adversary"]["fresh_recall"] == pytest.approx(0.75)
    judge().adversary(10.0, [Seen(0.52, 0.54, 1e-4)])  # nothing is left to see
    judge().adversary(10.0, [Seen(0.70, 0.75, 1e-4)])  # it sees what there is
    judge().adversary(10.0, [Seen(0.50, 0.62, 1e-3)])  # with so few records that may be luck


def test_a_representation_that_tells_the_group_is_refused() -> None:
    def found(accuracy: float, label: float = 0.6) -> Leak:
        return Leak(accuracy, 0.5, 0.6, label, 0.5)

    with pytest.raises(BiasRemains, match=r"group of 64\.0%.*60\.0% are told without it"):
        judge().refuse_leak(found(0.64))
    judge().refuse_leak(found(0.63))
    judge().refuse_leak(found(0.74, label=0.72))


def test_a_gap_within_chance_is_none() -> None:
    one = judge()
    groups, truth = CASES.groups[CASES.learn], CASES.labels[CASES.learn]
    rng = np.random.default_rng(0)
    assert not one.gap_beyond_chance(np.where(rng.random(len(truth)) < 0.2, 1 - truth, truth))
    assert one.gap_beyond_chance(np.where((rng.random(len(truth)) < 0.2) & (groups == 0), 1 - truth, truth))
    assert one.report["chance"]["gap"] > one.report["chance"]["random_groups"]


def test_rates_by_group_are_told() -> None:
    one = judge()
    truth, groups = one.truth, one.groups
    one.compare(np.where(groups == 0, 0, truth), truth)
    told: dict[str, Any] = one.report["groups"]["a"]
    assert told["before"]["yes"] == {"recall": 0.0, "predicted": 0.0}
    assert told["after"]["yes"]["recall"] == 1.0
    assert one.report["equal_odds"]["before"] == 1.0 and one.report["equal_odds"]["after"] == 0.0
    assert one.report["equal_odds"]["by_label"]["no"] == {"before": 0.0, "after": 0.0}
    assert one.report["accuracy"]["difference"] > 0
