"""The gate: promote what is not worse, hold what is unclear, reject what is worse or breaks a floor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving import releases
from serving.gate import Floors, gate_bundle, judge, translate
from tests.tiny_bundle import TEXTS, TRUTH, make_bundle

ROWS = 1000
TRUE = (np.arange(ROWS) % 3 == 0).astype(np.int64)


def wrong(share: float, seed: int = 0) -> np.ndarray:
    """Predictions of which `share` is wrong."""
    flipped = np.random.default_rng(seed).random(ROWS) < share
    return np.where(flipped, 1 - TRUE, TRUE)


def decide(challenger: np.ndarray, champion: np.ndarray | None, floors: Floors | None = None, **more: object):
    more = {"positive": 1, "flip_share": 0.0, **more}
    return judge(challenger, champion, TRUE, floors or Floors(), **more)  # type: ignore[arg-type]


def test_a_first_good_model_is_promoted() -> None:
    verdict = decide(wrong(0.03), None)
    assert verdict.decision == "PROMOTE" and "no champion yet" in verdict.reasons[0]
    assert verdict.figures["f1_low"] < verdict.figures["f1"] < verdict.figures["f1_high"]


def test_majority_is_no_model() -> None:
    verdict = decide(np.zeros(ROWS, dtype=np.int64), None)
    assert verdict.decision == "REJECT"
    always_yes = decide(np.ones(ROWS, dtype=np.int64), None, Floors(min_f1=0.0))
    assert always_yes.decision == "PROMOTE"  # 0.5 against the majority's 0: that is what the floor min_f1 is for
    assert decide(np.ones(ROWS, dtype=np.int64), None).decision == "REJECT"


@pytest.mark.parametrize(
    ("floors", "more", "said"),
    [
        (Floors(min_f1=0.99), {}, "below the floor 0.99"),
        (Floors(max_flips=0.001), {"flip_share": 0.002}, "0.20% of the answers differ"),
        (Floors(), {"flip_share": None}, "parity with the trained model was not measured"),
        (Floors(max_latency_ms=5), {"latency": 7.5}, "7.50 ms a text"),
        (Floors(max_latency_ms=5), {}, "latency was not measured"),
        (Floors(min_gain=1.0), {}, "above the majority"),
    ],
)
def test_each_floor_rejects_by_name(floors: Floors, more: dict, said: str) -> None:
    verdict = decide(wrong(0.03), None, floors, **more)
    assert verdict.decision == "REJECT" and len(verdict.reasons) == 1 and said in verdict.reasons[0]


def test_floors_hold_beside_a_champion_too() -> None:
    assert decide(wrong(0.3), wrong(0.4, 1), Floors(min_f1=0.9)).decision == "REJECT"


def test_equal_quality_is_promoted() -> None:
    verdict = decide(wrong(0.03), wrong(0.03))
    assert verdict.decision == "PROMOTE" and "not worse" in verdict.reasons[0]
    assert verdict.figures["difference"] == 0


def test_better_is_promoted_and_said() -> None:
    verdict = decide(wrong(0.01), wrong(0.1, 1))
    assert verdict.decision == "PROMOTE" and "better than the champion" in verdict.reasons[0]


def test_worse_is_rejected() -> None:
    verdict = decide(wrong(0.1), wrong(0.01, 1))
    assert verdict.decision == "REJECT" and "worse" in verdict.reasons[0]
    assert verdict.figures["difference_high"] < 0


def test_worse_within_the_margin_is_rejected_when_certain() -> None:
    """Otherwise a loss inside the margin every day would add up."""
    champion = TRUE.copy()
    challenger = TRUE.copy()
    challenger[np.flatnonzero(TRUE)[:6]] = 0
    assert decide(challenger, champion, Floors(margin=0.05)).decision == "REJECT"


def test_unclear_is_held() -> None:
    verdict = decide(wrong(0.05), wrong(0.05, 1))
    assert verdict.figures["difference_low"] < -0.015 and verdict.figures["difference_high"] > 0
    assert verdict.decision == "HOLD" and "inconclusive" in verdict.reasons[0]


def test_too_few_rows_and_the_same_model_are_held() -> None:
    assert decide(wrong(0.03), None, Floors(min_rows=ROWS + 1)).decision == "HOLD"
    verdict = decide(wrong(0.03), wrong(0.03), same_model=True)
    assert verdict.decision == "HOLD" and "same version" in verdict.reasons[0]


def test_a_margin_of_zero_is_zero() -> None:
    assert decide(wrong(0.03), wrong(0.03), Floors(margin=0.0)).decision == "PROMOTE"  # the interval is [0, 0]
    assert decide(wrong(0.04), wrong(0.05, 1), Floors(margin=0.0)).decision == "HOLD"


def test_macro_f1_for_many_labels() -> None:
    truth = np.arange(ROWS) % 4
    assert judge(truth, truth, truth, Floors(), None, 0.0).decision == "PROMOTE"
    assert (
        judge(np.zeros(ROWS, dtype=np.int64), truth, truth, Floors(min_f1=0, min_gain=0), None, 0.0).decision
        == "REJECT"
    )


def test_labels_are_compared_by_name() -> None:
    codes = np.array([0, 1, 2])
    assert translate(codes, ("spam", "ham", "eggs"), ("ham", "spam")).tolist() == [1, 0, 2]


def test_bundles_answer_the_same_rows(tmp_path: Path) -> None:
    root, floors = tmp_path / "releases", Floors(min_rows=50)
    good = make_bundle(tmp_path / "good")
    first = gate_bundle(good.folder, root, TEXTS, TRUTH, floors, threads=1)
    assert first.decision == "PROMOTE" and first.figures["latency_ms"] > 0 and first.figures["flip_share"] == 0
    releases.promote(root, good.folder, "first", who="test", decision=first.to_json())

    assert gate_bundle(good.folder, root, TEXTS, TRUTH, floors, threads=1).decision == "HOLD"
    other = make_bundle(tmp_path / "other", shift=0.1)
    assert gate_bundle(other.folder, root, TEXTS, TRUTH, floors, threads=1).decision == "PROMOTE"
    worse = make_bundle(tmp_path / "worse", shift=6.0)
    rejected = gate_bundle(worse.folder, root, TEXTS, TRUTH, floors, threads=1)
    assert rejected.decision == "REJECT" and rejected.figures["champion_f1"] == 1.0
    unproven = make_bundle(tmp_path / "unproven", shift=0.2, metrics={})
    assert "parity" in gate_bundle(unproven.folder, root, TEXTS, TRUTH, floors, threads=1).reasons[0]
