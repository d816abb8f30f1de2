"""What levels 4 and 5 do to decisions, where judgments may lie, how noise is estimated, how fresh records must be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import data.debias.debias as debias_room
from data import levels
from data.clean_figures import prevalence
from data.cleaning import Decisions, Dropped, Facts
from data.debias.config import AccuracyBudget, DebiasConfig
from data.errors import DaymillError
from data.expectations import _moments
from data.judgments import judgment_file
from data.scoring import identify


def facts() -> Facts:
    texts = {f"r{n}": f"text number {n}" for n in range(4)}
    return Facts.of(identify(list(texts), list(texts.values())), ["a", "b", "a", "b"])


def test_weights_multiply_and_the_kept_ones_have_mean_one() -> None:
    found = Decisions(4, dropped={1: Dropped("min_chars")})
    rows = np.array([0, 2, 3])
    levels.weigh(found, rows, np.array([1, 2, 3], np.float32))
    levels.weigh(found, rows, np.array([2, 2, 4], np.float32))
    assert found.weights is not None
    np.testing.assert_allclose(found.weights[rows] / found.weights[0], [1, 2, 6], rtol=1e-6)
    assert found.weights[rows].mean() == pytest.approx(1)


def test_far_records_go_by_the_rule_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(
        keep=np.array([True, False, True]),
        log_ratios=np.array([1.0, -2.5, 0.5], np.float32),
        weights=np.ones(3, np.float32),
        report={"on": True},
    )
    monkeypatch.setattr(levels, "adapt", lambda *_args, **_knobs: done)
    monkeypatch.setattr(levels, "texts_at", lambda _records, rows: ["t"] * len(rows))
    found = Decisions(4, dropped={1: Dropped("min_chars")})
    target: Any = SimpleNamespace(texts=["t"], labels=[None])
    assert levels.adapt_domain(Path(), facts(), found, target, None) == {"on": True}  # type: ignore[arg-type]
    assert found.dropped[2] == Dropped("domain", -2.5)  # the second of the kept ones
    assert set(found.dropped) == {1, 2}


def test_a_refusal_ends_the_level_or_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any) -> None:
        raise AccuracyBudget("accuracy fell", {"mode": "weights"})

    monkeypatch.setattr(debias_room, "debias", refuse)
    monkeypatch.setattr(levels, "texts_at", lambda _records, rows: ["t"] * len(rows))
    run: Callable[[Any], Any] = lambda policy: levels.remove_bias(  # noqa: E731
        Path(), facts(), ["x", "y", "x", "y"], Decisions(4), DebiasConfig(), policy
    )
    with pytest.raises(AccuracyBudget):
        run("refuse")
    report, features = run("skip")
    assert report["verdict"] == "skipped" and "accuracy fell" in report["reason"]
    assert isinstance(features, pa.Table) and features.num_rows == 0


def test_judgments_lie_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judgments").mkdir()
    (tmp_path / "judgments/good.jsonl").write_text("{}")
    assert judgment_file("judgments/good.jsonl", "k").name == "good.jsonl"
    for outside in ("other.jsonl", "judgments/../other.jsonl"):
        with pytest.raises(DaymillError, match="expected a file in judgments/"):
            judgment_file(outside, "k")
    with pytest.raises(DaymillError, match="is not there"):
        judgment_file("judgments/none.jsonl", "k")


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_share_of_noise_is_found_from_probabilities_of_another_mix(share: float) -> None:
    rng = np.random.default_rng(0)
    bad = rng.random(20_000) < share
    seen = rng.normal(np.where(bad, 1.0, -1.0))  # log odds are 2x where half are bad
    assert prevalence(1 / (1 + np.exp(-2 * seen)), 0.5) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("bound", "hours"), [("now-2d", 48), ("now - 36h", 36), ("now", 0)])
def test_fresh_is_told_from_now(bound: str, hours: int) -> None:
    found = _moments({"kwargs": {"column": "date", "min_value": bound}})["min_value"]
    age = pd.Timestamp.now("UTC").tz_localize(None) - found
    assert abs(age - pd.Timedelta(hours=hours)) < pd.Timedelta(minutes=5)
