"""Pruning and quantization on a model that has learned something: quality, controls, resume after a kill."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from compression.controls import at_random, drop_blocks
from compression.distill import Teacher, draw, logit_gap
from compression.prune import Chooser, by_importance, kept_share
from compression.qat import QatPlan, train_quantized
from compression.quantize import fake_quantize_weights, load_quantized, save_quantized
from compression.ranges import calibration_batches
from compression.recovery import Plan, Pruned, Recovery, load_classifier, prune_in_steps, recover
from compression.verdict import appraise
from data.errors import DaymillError
from training.checkpoint import Card, save_checkpoint
from training.classify import train_classifier
from training.config import ModelConfig
from training.knobs import ClassifyConfig
from training.model import Classifier, Transformer
from training.predict import predict_logits
from training.rows import Rows

pytestmark = pytest.mark.slow

VOCABULARY = 64
CONFIG = ModelConfig.from_depth(2, VOCABULARY, max_len=32)
CARD = Card(CONFIG, "classify", ["ham", "spam"], "spam", preprocess={"max_len": 32, "max_chars": 100})


def rows_of(count: int, seed: int) -> Rows:
    """Texts of noise; spam holds the token 7 followed, some tokens later, by the token 9."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    tokens = []
    for label in labels:
        row = rng.integers(10, VOCABULARY, size=rng.integers(10, 24)).astype(np.int32)
        first, second = sorted(rng.choice(len(row), 2, replace=False))
        row[first], row[second] = (7, 9) if label else (9, 7)
        tokens.append(row)
    names = [f"r{seed}-{i}" for i in range(count)]
    return Rows(names, tokens, labels.astype(np.int64), ["ham", "spam"], [None] * count, ["made"] * count)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads gain nothing on products this small, and wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    return {"train": rows_of(1500, 1), "valid": rows_of(300, 2), "test": rows_of(600, 3)}


@pytest.fixture(scope="module")
def start(rows: dict[str, Rows]) -> Classifier:
    torch.manual_seed(0)
    model = Classifier(Transformer(CONFIG), 2)
    config = ClassifyConfig(steps=100, rows=64, lr=2e-3, precision="fp32", attention="plain", smoothing=0.0)
    train_classifier(model, rows["train"], config)
    return model


@pytest.fixture(scope="module")
def teacher(start: Classifier, rows: dict[str, Rows]) -> Teacher:
    parts = {"train": rows["train"], "watch": draw(rows["valid"], 100, seed=0), "test": rows["test"]}
    return Teacher.ask(start, parts, precision="fp32")


STRETCH = Recovery(steps=12, lr=1e-3, rows=64)
PLAN = Plan(target_share=0.37, steps=3, between=STRETCH, final=replace(STRETCH, steps=40))


@pytest.fixture(scope="module")
def ours(
    start: Classifier, rows: dict[str, Rows], teacher: Teacher, tmp_path_factory: pytest.TempPathFactory
) -> Pruned:
    chooser = by_importance(calibration_batches(rows["train"], 128, seed=0))
    return prune_in_steps(start, CARD, chooser, PLAN, teacher, tmp_path_factory.mktemp("ours"))


def f1(model: Classifier, rows: dict[str, Rows]) -> float:
    return appraise(model, CARD, rows["valid"], rows["test"]).verdict.f1.value


def test_a_model_pruned_to_its_target_keeps_its_quality(start: Classifier, ours: Pruned, rows: dict[str, Rows]) -> None:
    assert f1(start, rows) > 0.97
    assert 0.3 < kept_share(ours.model.backbone.config, CONFIG) <= 0.37
    assert f1(ours.model, rows) > f1(start, rows) - 0.02


def test_each_step_says_what_it_cut_and_what_recovery_gave_back(ours: Pruned) -> None:
    assert [step["recovery"]["updates"] for step in ours.steps] == [12, 12, 40]
    kept = [step["kept"] for step in ours.steps]
    assert kept == sorted(kept, reverse=True) and kept[-1] <= 0.37
    last = ours.steps[-1]["recovery"]
    assert last["kept"] and last["gap_trained"]["kl"] < last["gap_before"]["kl"]
    assert [len(step["heads"]) for step in ours.steps] == [2, 2, 2]


def test_training_that_leads_away_from_the_teacher_is_taken_back(start: Classifier, teacher: Teacher) -> None:
    model = copy.deepcopy(start)  # agrees with its teacher to the bit: nothing to learn
    wild = recover(model, teacher, replace(STRETCH, steps=3, lr=0.1))
    assert wild["gap_before"]["kl"] == 0 and wild["gap_trained"]["kl"] > 0.01 and not wild["kept"]
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in start.state_dict().items())


@pytest.mark.parametrize(("name", "control"), [("random", at_random(0)), ("drop_layers", drop_blocks)])
def test_importance_loses_less_than_blind_cuts_before_any_recovery(
    name: str, control: Chooser, start: Classifier, teacher: Teacher, rows: dict[str, Rows], tmp_path: Path
) -> None:
    """F1 after recovery cannot tell on an easy task; the distance to the teacher right after the cut can."""
    bare = Plan(0.6, 1, replace(STRETCH, steps=0), replace(STRETCH, steps=0))
    chooser = by_importance(calibration_batches(rows["train"], 128, seed=0))
    gap = {
        kind: prune_in_steps(start, CARD, choose, bare, teacher, tmp_path / kind).steps[0]["recovery"]["gap_before"][
            "kl"
        ]
        for kind, choose in (("ours", chooser), (name, control))
    }
    assert gap["ours"] < gap[name]


class Killed(Exception):
    pass


class KillAt:
    """Progress that ends the run in the middle of its n-th update."""

    def __init__(self, update: int) -> None:
        self.left = update

    def advance(self, n: int, note: str = "") -> None:
        self.left -= 1
        if not self.left:
            raise Killed


@pytest.mark.parametrize("update", [5, 20, 50])
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(
    update: int, start: Classifier, teacher: Teacher, ours: Pruned, rows: dict[str, Rows], tmp_path: Path
) -> None:
    chooser = by_importance(calibration_batches(rows["train"], 128, seed=0))
    with pytest.raises(Killed):
        prune_in_steps(start, CARD, chooser, PLAN, teacher, tmp_path, KillAt(update))
    again = prune_in_steps(start, CARD, chooser, PLAN, teacher, tmp_path)
    assert again.steps == ours.steps
    expected = ours.model.state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in again.model.state_dict().items())


def test_a_finished_run_is_not_run_again(
    start: Classifier, teacher: Teacher, rows: dict[str, Rows], tmp_path: Path
) -> None:
    plan = Plan(0.6, 2, replace(STRETCH, steps=2), replace(STRETCH, steps=2))
    first = prune_in_steps(start, CARD, drop_blocks, plan, teacher, tmp_path)

    def never(_model: Classifier, _parameters: float) -> list:
        raise AssertionError("chose again")

    again = prune_in_steps(start, CARD, never, plan, teacher, tmp_path)
    assert again.steps == first.steps


QAT = QatPlan(moving=replace(STRETCH, steps=15), frozen=replace(STRETCH, steps=15), percentile=99.99)


def test_quantization_aware_training_keeps_quality_and_beats_four_bits(
    start: Classifier, ours: Pruned, teacher: Teacher, rows: dict[str, Rows], tmp_path: Path
) -> None:
    calibration = calibration_batches(rows["train"], 128, seed=0)
    pruned_card = CARD.with_model(ours.model.backbone.config)
    result = train_quantized(ours.model, pruned_card, QAT, calibration, teacher, tmp_path / "w")
    assert f1(result.model, rows) > f1(start, rows) - 0.02
    pruned = predict_logits(ours.model, rows["test"].tokens)
    eight = predict_logits(result.model, rows["test"].tokens)
    assert logit_gap(eight, teacher.logits["test"])["kl"] < logit_gap(pruned, teacher.logits["test"])["kl"] + 0.02
    rounded = {bits: fake_quantize_weights(ours.model, bits) for bits in (8, 4)}
    moved = {bits: logit_gap(predict_logits(m, rows["test"].tokens), pruned) for bits, m in rounded.items()}
    assert moved[4]["mean_abs"] > 5 * moved[8]["mean_abs"]

    save_quantized(tmp_path / "q", result.model, pruned_card, "{}")
    loaded, _ = load_quantized(tmp_path / "q")
    for tokens in rows["test"].tokens[:20]:
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        assert torch.equal(loaded(ids, torch.ones_like(ids)), result.model(ids, torch.ones_like(ids)))


@pytest.mark.parametrize("update", [4, 22])
def test_killed_quantization_goes_on_and_ends_with_the_same_weights(
    update: int, start: Classifier, teacher: Teacher, rows: dict[str, Rows], tmp_path: Path
) -> None:
    calibration = calibration_batches(rows["train"], 64, seed=0)
    whole = train_quantized(start, CARD, QAT, calibration, teacher, tmp_path / "whole")
    with pytest.raises(Killed):
        train_quantized(start, CARD, QAT, calibration, teacher, tmp_path / "parts", KillAt(update))
    again = train_quantized(start, CARD, QAT, calibration, teacher, tmp_path / "parts")
    assert again.ranges == whole.ranges
    expected = whole.model.state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in again.model.state_dict().items())


def test_left_over_work_of_another_model_is_refused(
    start: Classifier, ours: Pruned, teacher: Teacher, rows: dict[str, Rows], tmp_path: Path
) -> None:
    calibration = calibration_batches(rows["train"], 32, seed=0)
    plan = QatPlan(replace(STRETCH, steps=1), replace(STRETCH, steps=1))
    train_quantized(start, CARD, plan, calibration, teacher, tmp_path)
    other = CARD.with_model(ours.model.backbone.config)
    with pytest.raises(DaymillError, match="another model"):
        train_quantized(ours.model, other, plan, calibration, teacher, tmp_path)
    shutil.rmtree(tmp_path)
    train_quantized(ours.model, other, plan, calibration, teacher, tmp_path)


def test_only_classifiers_are_compressed(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "lm", Transformer(CONFIG), Card(CONFIG, "lm"), "{}")
    with pytest.raises(DaymillError, match="finetune stage"):
        load_classifier(tmp_path / "lm")
