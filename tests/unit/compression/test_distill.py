"""The teacher's answers belong to their rows, and the distance to them is one that F1 hides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from compression.distill import Teacher, draw, logit_gap
from compression.verdict import judge, loss_of, recalibrate
from data.errors import DaymillError
from training.checkpoint import Card
from training.config import ModelConfig
from training.model import Classifier, Transformer
from training.rows import Rows

CONFIG = ModelConfig.from_depth(1, 40)
CARD = Card(CONFIG, "classify", ["ham", "spam"], "spam", threshold=0.5)


def some_rows(count: int = 6, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(1, 40, size=rng.integers(1, 9)).astype(np.int32) for _ in range(count)]
    labels = np.arange(count) % 2
    return Rows([f"r{i}" for i in range(count)], tokens, labels, ["ham", "spam"], [None] * count, ["s"] * count)


def test_answers_survive_the_disk_and_keep_their_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pools = {"train": some_rows(20), "test": some_rows(4, seed=1)}
    parts = {"train": draw(pools["train"], 6, seed=3), "test": pools["test"]}
    teacher = Teacher.ask(Classifier(Transformer(CONFIG), 2), parts, precision="fp32")
    teacher.save(tmp_path / "t.safetensors")
    again = Teacher.load(tmp_path / "t.safetensors", pools)
    for name, rows in parts.items():
        assert np.array_equal(again.logits[name], teacher.logits[name])
        assert again.logits[name].shape == (len(rows), 2)
        assert again.rows[name].ids == rows.ids


def test_answers_to_other_rows_are_refused(tmp_path: Path) -> None:
    rows = some_rows()
    Teacher({"train": rows}, {"train": np.zeros((6, 2), np.float32)}).save(tmp_path / "t")
    with pytest.raises(DaymillError, match="have changed"):
        Teacher.load(tmp_path / "t", {"train": some_rows(seed=2)})
    for pools in ({"train": rows.take([0, 1])}, {"valid": rows}):
        with pytest.raises(DaymillError, match="other rows"):
            Teacher.load(tmp_path / "t", pools)


def test_rows_are_drawn_by_a_lot_that_a_seed_repeats() -> None:
    rows = some_rows(30)
    assert draw(rows, 30, 0) is rows and draw(rows, 99, 0) is rows
    first, again, other = (draw(rows, 10, seed).ids for seed in (1, 1, 2))
    assert first == again != other and len(set(first)) == 10


def test_a_file_that_is_no_teacher_is_refused(tmp_path: Path) -> None:
    save_file({"train": np.zeros((6, 2), np.float32)}, tmp_path / "bare")
    (tmp_path / "noise").write_bytes(b"noise")
    for name in ("bare", "noise", "missing"):
        with pytest.raises(DaymillError, match="prune stage"):
            Teacher.load(tmp_path / name, {"train": some_rows()})


def test_the_gap_shows_what_decisions_hide() -> None:
    teacher = np.array([[4.0, -4.0], [-4.0, 4.0]], np.float32)
    weaker = teacher / 8
    assert (weaker.argmax(-1) == teacher.argmax(-1)).all()
    gap = logit_gap(weaker, teacher)
    assert gap["mean_abs"] == pytest.approx(3.5) and gap["kl"] > 0.3
    assert logit_gap(teacher, teacher) == {"mean_abs": 0.0, "kl": 0.0}


def test_kl_is_that_of_the_definition_and_stays_finite() -> None:
    p, q = np.array([[0.8, 0.2]]), np.array([[0.5, 0.5]])
    expected = (p * np.log(p / q)).sum()
    assert logit_gap(np.log(q), np.log(p))["kl"] == pytest.approx(expected)
    assert np.isfinite(logit_gap(np.array([[-2000.0, 2000.0]]), np.array([[2000.0, -2000.0]]))["kl"])
    with pytest.raises(ValueError, match="logits"):
        logit_gap(np.zeros((2, 2)), np.zeros((3, 2)))


def test_the_threshold_follows_scores_that_compression_shifted() -> None:
    rows = some_rows(40)
    margin = np.where(rows.labels == 1, 1.0, -1.0) + 3.0  # all scores above 0.5
    logits = np.stack([-margin / 2, margin / 2], 1).astype(np.float32)
    before = judge(CARD, rows, logits)
    card = recalibrate(CARD, rows, logits)
    after = judge(card, rows, logits)
    assert before.f1.value < 0.7 and after.f1.value == 1.0 and card.threshold > 0.5
    difference = loss_of(card, rows, before, after)
    assert difference.low <= difference.value < 0
    assert difference.value == pytest.approx(before.f1.value - after.f1.value)


def test_more_labels_have_no_threshold_and_macro_f1() -> None:
    rows = some_rows(9)
    rows = Rows(rows.ids, rows.tokens, np.arange(9) % 3, ["a", "b", "c"], rows.groups, rows.sources)
    card = Card(CONFIG, "classify", ["a", "b", "c"])
    logits = np.eye(3, dtype=np.float32)[rows.labels]
    assert recalibrate(card, rows, logits) == card
    assert judge(card, rows, logits).f1.value == 1.0
