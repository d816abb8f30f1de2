"""Rows to model calls: every row once, no call too large, little padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.plan import plan_calls


@given(st.lists(st.integers(1, 600), max_size=80), st.integers(1, 40), st.integers(1, 4000))
def test_every_row_once_and_within_bounds(lengths: list[int], max_rows: int, max_tokens: int) -> None:
    calls = plan_calls(lengths, max_rows, max_tokens)
    assert sorted(at for call in calls for at in call) == list(range(len(lengths)))
    for call in calls:
        assert 1 <= len(call) <= max_rows
        assert len(call) == 1 or len(call) * max(lengths[at] for at in call) <= max_tokens


def test_twenty_rows_with_a_limit_of_eight() -> None:
    assert [len(call) for call in plan_calls([10] * 20, 8, 10_000)] == [8, 8, 4]


def test_similar_lengths_go_together() -> None:
    lengths = [5, 100] * 8
    padded = sum(len(call) * max(lengths[at] for at in call) for call in plan_calls(lengths, 8, 10_000))
    assert padded == sum(lengths)


def test_bounds_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="max_rows 0"):
        plan_calls([1], 0, 10)
