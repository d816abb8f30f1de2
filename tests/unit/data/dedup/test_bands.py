"""Bands keep the promise of recall at the least cost, and a plan says what a run takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dedup.bands import Bands, Plan, choose_bands
from data.errors import DaymillError


@given(st.floats(0.3, 1.0), st.floats(0.01, 0.999))
def test_a_promise_is_kept_or_refused(jaccard: float, recall: float) -> None:
    try:
        bands = choose_bands(jaccard, recall)
    except DaymillError:
        assert Bands(128, 1).recall(jaccard) < recall  # the most that any bands find
        return
    assert bands.count * bands.rows <= 128
    assert bands.recall(jaccard) >= recall
    assert bands.count == 1 or Bands(bands.count - 1, bands.rows).recall(jaccard) < recall  # none to spare


def test_the_default_promise() -> None:
    bands = choose_bands(0.8, 0.99)
    assert bands == Bands(16, 6)
    assert bands.recall(0.9) >= 0.999
    assert Bands(9, 13).recall(0.8) == pytest.approx(0.40, abs=0.01)  # datasketch's default


@pytest.mark.parametrize(("jaccard", "recall"), [(0.0, 0.9), (1.1, 0.9), (0.8, 1.0), (0.8, 0.0)])
def test_nonsense_is_refused(jaccard: float, recall: float) -> None:
    with pytest.raises(DaymillError, match="0 < jaccard <= 1"):
        choose_bands(jaccard, recall)


def test_an_impossible_promise_says_what_is_possible() -> None:
    with pytest.raises(DaymillError, match=r"8 permutations cannot find 99.00% .* \(at most 5"):
        choose_bands(0.1, 0.99, permutations=8)


def test_a_plan_says_recall_candidates_and_memory() -> None:
    plan = Plan(Bands(16, 6), 0.8, 1_000_000, words=200, share=0.1, workers=2)
    text = "\n".join(plan.lines())
    assert "16 bands x 6 rows" in text and "99.23% at 0.8" in text and "1,000,000 records" in text
    assert "100,000 candidates if 10%" in text and 0 < plan.unlike < 1_000_000
    assert 2**29 < plan.memory_bytes < 1.5 * 2**30
    more = Plan(Bands(16, 6), 0.8, 2_000_000, words=200, share=0.1, workers=2)
    assert more.memory_bytes > plan.memory_bytes and more.disk_bytes == pytest.approx(2 * plan.disk_bytes, rel=1e-6)
