"""Probes find what is there, linear or not, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from data.debias import probe
from data.debias.probe import fresh_adversary, leak, recall, recall_variance


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ROUNDS", 10)


RNG = np.random.default_rng(0)
GROUPS = (RNG.random(700) < 0.6).astype(np.int64)
LABELS = RNG.integers(0, 2, 700)
NOISE = RNG.normal(size=(700, 4)).astype(np.float32)


def with_column(column: np.ndarray) -> np.ndarray:
    return np.column_stack([NOISE, column]).astype(np.float32)


def test_a_group_that_is_not_there_is_not_told() -> None:
    found = leak(NOISE, GROUPS, LABELS)
    assert found.beyond < 0.03 and 0.45 < found.auc < 0.57
    assert found.majority == pytest.approx(np.bincount(GROUPS).max() / 700)


def test_a_group_that_is_there_is_told() -> None:
    found = leak(with_column(GROUPS), GROUPS, LABELS)
    assert found.linear > 0.99 and found.auc > 0.99 and found.beyond > 0.35


def test_only_the_network_sees_what_is_not_linear() -> None:
    sign = np.where(RNG.random(700) < 0.5, 1.0, -1.0)
    hidden = np.column_stack([sign, sign * np.where(GROUPS == 1, 1, -1)]) + RNG.normal(scale=0.2, size=(700, 2))
    found = leak(hidden.astype(np.float32), GROUPS, LABELS)
    assert found.network > 0.95 and found.linear < 0.7
    assert found.accuracy == found.network


def test_small_differences_are_seen_as_well_as_large_ones() -> None:
    assert leak(with_column(1e-4 * GROUPS), GROUPS, LABELS).accuracy > 0.99


def test_what_the_label_itself_tells_is_no_leak() -> None:
    groups = np.where(RNG.random(700) < 0.8, LABELS, 1 - LABELS)
    found = leak(with_column(LABELS), groups, LABELS)
    assert found.accuracy > found.majority + 0.2
    assert found.without == found.label > 0.75
    assert found.beyond < 0.02


def test_sparse_features_are_asked_of_the_linear_probe() -> None:
    found = leak(csr_matrix(with_column(GROUPS)), GROUPS, LABELS)
    assert found.linear == found.network > 0.95


def test_recall_counts_groups_and_labels_alike() -> None:
    groups, labels = np.array([0, 0, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1])
    assert recall(np.zeros(6, dtype=np.int64), groups, labels) == 0.5, "always the largest group is a blind guess"
    assert recall(groups, groups, labels) == 1
    assert np.isnan(recall(groups[:3], groups[:3], labels[:3]))


def test_the_variance_of_recall_is_that_of_blind_guesses() -> None:
    rng = np.random.default_rng(5)
    groups, labels = np.array([0] * 60 + [1] * 20 + [0] * 10 + [1] * 30), np.array([0] * 80 + [1] * 40)
    found = [recall(rng.integers(0, 2, 120), groups, labels) for _ in range(1_500)]
    assert recall_variance(groups, labels) == pytest.approx(np.var(found), rel=0.15)


def test_a_fresh_adversary_finds_what_is_left_beyond_the_label() -> None:
    groups = np.where(RNG.random(700) < 0.8, LABELS, 1 - LABELS)
    assert fresh_adversary(with_column(LABELS), LABELS, groups, (2, 2), 0) < 0.56
    assert fresh_adversary(with_column(groups), LABELS, groups, (2, 2), 0) > 0.95
