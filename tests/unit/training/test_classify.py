"""Training a classifier: learns, follows a teacher, averages, stops early, resumes bit-equal."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.batching import IGNORE
from data.errors import DaymillError
from training.classify import Job, Swapped, train_classifier
from training.clock import breakdown
from training.config import ModelConfig
from training.knobs import ClassifyConfig, Distill
from training.model import Classifier, Transformer
from training.peak import SIZES
from training.predict import predict_logits
from training.rows import Rows
from training.state import load_state, save_state

CONFIG = ClassifyConfig(
    epochs=4,
    rows=8,
    max_tokens=64,
    lr=5e-3,
    precision="fp32",
    attention="plain",
    positive=1,
    patience=0,
    save_share=0,
)


def rows(count: int, seed: int = 0) -> Rows:
    """Label 1 where token 7 occurs; lengths vary."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    tokens = []
    for label in labels:
        row = rng.integers(8, 30, rng.integers(3, 20)).astype(np.int32)
        if label:
            row[rng.integers(0, len(row))] = 7
        tokens.append(row)
    names = [str(i) for i in range(count)]
    return Rows(names, tokens, labels.astype(np.int64), ["ham", "spam"], [None] * count, ["a"] * count)


def fresh(dropout: float = 0.1, classes: int = 2) -> Classifier:
    torch.manual_seed(0)
    return Classifier(Transformer(ModelConfig.from_depth(1, 30, max_len=32, causal=False, dropout=dropout)), classes)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_it_learns_and_ends_with_the_best_weights() -> None:
    model, valid = fresh(), rows(40, 1)
    history = train_classifier(model, rows(160), CONFIG, valid=valid)
    assert not model.training
    losses = [entry["valid_loss"] for entry in history.evaluations]
    assert len(losses) == 4 and losses[-1] < losses[0]
    logits = torch.from_numpy(predict_logits(model, valid.tokens))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(valid.labels)).item()
    assert loss == pytest.approx(min(losses), rel=1e-4)
    assert (logits.argmax(-1).numpy() == valid.labels).mean() > 0.9


def test_three_classes_report_macro_f1() -> None:
    data = rows(60)
    three = replace(data, labels=np.arange(60) % 3, names=["a", "b", "c"])
    history = train_classifier(fresh(classes=3), three, replace(CONFIG, epochs=1, positive=None), valid=three)
    assert 0 < history.evaluations[-1]["valid_f1"] <= 1


def test_steps_go_before_epochs_and_every_row_comes_once_an_epoch() -> None:
    job = Job(fresh(), rows(30), replace(CONFIG, steps=8), None, None)
    assert (job.per_epoch, job.steps) == (4, 8)
    for epoch in (0, 1):
        seen = [label for step in range(4) for batch in job.micro_batches(4 * epoch + step) for label in batch.labels]
        assert len(seen) == 30
    assert job.history.tokens == 2 * sum(len(row) for row in job.train.tokens)


@pytest.mark.parametrize("batches", ["buckets", "padded"])
def test_a_step_has_the_same_micro_batches_wherever_a_run_begins(batches: str) -> None:
    config = replace(CONFIG, steps=9, batches=batches)
    whole = Job(fresh(), rows(30), config, None, None)
    from_start = [whole.micro_batches(step) for step in range(9)]
    assert any(len(step) > 1 for step in from_start)
    for step in (8, 3, 5):
        again = Job(fresh(), rows(30), config, None, None).micro_batches(step)
        assert [b.ids.tolist() for b in again] == [b.ids.tolist() for b in from_start[step]]
    assert from_start[0][0].ids.tolist() != from_start[4][0].ids.tolist(), "epochs have orders of their own"


def test_places_are_counted_beside_tokens() -> None:
    history = train_classifier(fresh(), rows(30), replace(CONFIG, steps=4))
    padded = train_classifier(fresh(), rows(30), replace(CONFIG, steps=4, batches="padded"))
    assert history.tokens == padded.tokens == sum(len(row) for row in rows(30).tokens)
    assert history.tokens <= history.padded < padded.padded


def test_micro_batches_give_the_gradient_of_the_whole_step() -> None:
    gradients = []
    for budget in (32, 10_000):
        model = fresh(dropout=0.0)
        job = Job(model, rows(30), replace(CONFIG, max_tokens=budget, balance=True), None, None)
        job.trainer.step(job.micro_batches(0), job.loss_sum, job.weight, rate=0.0)
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients):
        assert a is not None and b is not None
        assert (a - b).abs().max() <= 2e-5 * b.abs().max()


def weighted(data: Rows, seed: int = 4) -> Rows:
    weights = np.random.default_rng(seed).uniform(0, 3, len(data)).astype(np.float32)
    weights[::7] = 0
    return replace(data, weights=weights)


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("budget", [20, 32, 64])
def test_weighted_micro_batches_give_the_gradient_of_the_whole_step(budget: int, balance: bool) -> None:
    def gradients(budget: int, per_micro_batch: bool = False) -> list[torch.Tensor]:
        model = fresh(dropout=0.0).double()
        batches = "padded" if budget > 1000 else "buckets"
        config = replace(CONFIG, rows=24, max_tokens=budget, batches=batches, balance=balance)
        job = Job(model, weighted(rows(30)), config, None, None)
        micro_batches = job.micro_batches(0)
        assert (len(micro_batches) == 1) == (budget > 1000)
        if per_micro_batch:  # the mean of means that many trainers ship
            for batch in micro_batches:
                (job.loss_sum(batch) / (job.weight(batch) or 1.0) / len(micro_batches)).backward()
        else:
            # Clipping would hide a wrong denominator.
            job.trainer.clip = float("inf")
            job.trainer.step(micro_batches, job.loss_sum, job.weight, rate=0.0)
        return [p.grad for p in model.parameters() if p.grad is not None]

    def off(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
        return max(float((x - y).abs().max() / y.abs().max()) for x, y in zip(a, b, strict=True))

    whole = gradients(10_000)
    assert off(gradients(budget), whole) < 1e-5  # the loss itself is in fp32
    assert off(gradients(budget, per_micro_batch=True), whole) > 1e-3


def test_a_weight_of_two_is_the_row_twice_and_a_weight_of_zero_is_no_row() -> None:
    data = rows(12)
    twice = replace(data, weights=np.array([2, 0, 1] * 4, dtype=np.float32))
    copies = data.take([i for i in range(12) for _ in range((2, 0, 1)[i % 3])])
    found = []
    for given in (twice, copies, data):
        model = fresh(dropout=0.0)
        job = Job(model, given, replace(CONFIG, rows=12, max_tokens=10_000, balance=True), None, None)
        job.trainer.clip = float("inf")
        report = job.trainer.step(job.micro_batches(0), job.loss_sum, job.weight, rate=0.0)
        found.append((report.loss, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    (loss, gradient), (expected_loss, expected), (other_loss, other) = found
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert (gradient - expected).abs().max() < 1e-5 * expected.abs().max()
    assert loss != pytest.approx(other_loss, rel=1e-3), "rows that all count alike give another loss"
    assert (gradient - other).abs().max() > 1e-2 * other.abs().max()


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_a_row_without_weight_pulls_neither_at_labels_nor_at_the_teacher(hidden: float) -> None:
    data = replace(rows(16), weights=np.array([1.0] * 8 + [0.0] * 8, dtype=np.float32))
    torch.manual_seed(3)
    teacher = Classifier(Transformer(ModelConfig.from_depth(1, 30, max_len=32, causal=False)), 2).eval()
    gradients = []
    for given in (data, data.take(range(8))):
        model = fresh(dropout=0.0)
        job = Job(model, given, replace(CONFIG, rows=16, max_tokens=10_000), teacher, Distill(hidden=hidden))
        job.prepare_teacher()
        job.trainer.clip = float("inf")
        job.trainer.step(job.micro_batches(0), job.loss_sum, job.weight, rate=0.0)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-5 * gradients[1].abs().max()


def test_weights_of_one_train_bit_equal_to_none() -> None:
    ends = []
    for weights_ in (None, np.ones(60, dtype=np.float32), np.full(60, 0.5, dtype=np.float32)):
        model = fresh(dropout=0.3)
        config = replace(CONFIG, epochs=2, average=0.9)
        train_classifier(model, replace(rows(60), weights=weights_), config, valid=rows(20, 1))
        ends.append(weights(model))
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2]), "only the proportions of weights count, and halves are exact"


def test_weights_decide_between_labels_that_disagree() -> None:
    data = rows(160)
    lied = replace(data, labels=np.where(np.arange(160) % 2 == 0, data.labels, 1 - data.labels))
    trusted = replace(lied, weights=np.where(np.arange(160) % 2 == 0, 1.9, 0.1).astype(np.float32))
    right = {}
    for name, given in (("alike", lied), ("weighted", trusted)):
        model = fresh()
        train_classifier(model, given, replace(CONFIG, epochs=6))
        right[name] = (predict_logits(model, data.tokens).argmax(-1) == data.labels).mean()
    assert right["weighted"] > 0.9 > right["alike"]


def test_rows_that_weigh_nothing_are_an_error() -> None:
    with pytest.raises(DaymillError, match="weight 0"):
        train_classifier(fresh(), replace(rows(8), weights=np.zeros(8, dtype=np.float32)), CONFIG)


def test_balance_counts_what_rows_weigh() -> None:
    data = weighted(rows(100))
    job = Job(fresh(), data, replace(CONFIG, balance=True), None, None)
    assert job.class_weights is not None and data.weights is not None
    mass = np.bincount(data.labels, weights=data.weights)
    totals = job.class_weights.numpy() * mass
    assert totals[0] == pytest.approx(totals[1])
    assert totals.sum() == pytest.approx(mass.sum())


def test_balance_makes_classes_weigh_alike() -> None:
    data = rows(100)
    job = Job(fresh(), data.take(np.argsort(data.labels)[:70]), replace(CONFIG, balance=True), None, None)
    assert job.class_weights is not None
    counts = np.bincount(job.train.labels)
    totals = job.class_weights.numpy() * counts
    assert totals[0] == pytest.approx(totals[1])
    assert totals.sum() == pytest.approx(70)


def run_to(state: Path, average: float, kill_at: int | None = None) -> dict[str, torch.Tensor]:
    """The weights that a run ends with (early ones, perhaps) and its losses; killed at a step where one is given."""

    def on_step(step: int, _: int) -> None:
        if step == kill_at:
            raise KeyboardInterrupt

    model = fresh(dropout=0.3)
    config = replace(CONFIG, average=average, evaluations=2)
    history = train_classifier(model, rows(60), config, valid=rows(20, 1), state=state, on_step=on_step)
    losses = torch.tensor([entry["valid_loss"] for entry in history.evaluations], dtype=torch.float64)
    return weights(model) | {"losses": losses}


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_cut_run_ends_bit_equal(tmp_path: Path, average: float) -> None:
    whole = run_to(tmp_path / "whole", average)
    with pytest.raises(KeyboardInterrupt):
        run_to(tmp_path / "cut", average, kill_at=14)
    torch.manual_seed(7)
    assert same(whole, run_to(tmp_path / "cut", average))


@pytest.mark.parametrize("forgotten", ["model/backbone.blocks.0", "optimizer/head", "average/", "rng", "step"])
def test_forgetting_any_part_of_the_state_shows(tmp_path: Path, forgotten: str) -> None:
    whole = run_to(tmp_path / "whole", 0.9)
    with pytest.raises(KeyboardInterrupt):
        run_to(tmp_path / "cut", 0.9, kill_at=14)
    tensors, meta = load_state(tmp_path / "cut") or ({}, {})
    found = [key for key in tensors if key.startswith(forgotten)]
    if forgotten == "step":
        meta["history"]["steps"] -= 1
    elif forgotten == "rng":
        tensors["rng"] = torch.Generator().manual_seed(5).get_state()
    else:
        assert found
        for key in found:
            tensors[key] = torch.zeros_like(tensors[key])
    save_state(tmp_path / "cut", tensors, meta)
    assert not same(whole, run_to(tmp_path / "cut", 0.9))


def test_a_finished_state_is_not_trained_again(tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    train_classifier(first, rows(40), CONFIG, valid=rows(20, 1), state=tmp_path / "s")
    steps: list[int] = []
    train_classifier(
        second, rows(40), CONFIG, valid=rows(20, 1), state=tmp_path / "s", on_step=lambda step, _: steps.append(step)
    )
    assert steps == []
    assert same(weights(first), weights(second))


def test_it_stops_early_and_goes_back(tmp_path: Path) -> None:
    noise = rows(40, 1)
    noise = replace(noise, labels=np.random.default_rng(5).integers(0, 2, 40))
    config = replace(CONFIG, epochs=30, patience=2, smoothing=0.0)
    history = train_classifier(fresh(0.0), rows(80), config, valid=noise, state=tmp_path / "s")
    assert history.stopped_early
    assert history.steps == history.best_step + 2 * 10
    again = train_classifier(fresh(0.0), rows(80), config, valid=noise, state=tmp_path / "s")
    assert again.steps == history.steps, "an early stop is remembered"


def test_the_average_is_what_is_judged_and_kept() -> None:
    plain, averaged = fresh(0.0), fresh(0.0)
    config = replace(CONFIG, epochs=1)
    train_classifier(plain, rows(80), config)
    train_classifier(averaged, rows(80), replace(config, average=0.99))
    assert not same(weights(plain), weights(averaged))


def test_swapped_weights_come_back() -> None:
    model = fresh()
    before = weights(model)
    other = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    with Swapped(model, other):
        assert all((p == 0).all() for p in model.parameters())
    assert same(before, weights(model))
    assert all((tensor == 0).all() for tensor in other.values())


def test_a_student_follows_its_teacher_where_labels_say_nothing() -> None:
    data = rows(160)
    teacher = fresh()
    train_classifier(teacher, data, CONFIG)
    blind = replace(data, labels=np.random.default_rng(1).integers(0, 2, 160))
    goal = predict_logits(teacher, data.tokens).argmax(-1)
    agreement = {}
    for weight in (0.0, 1.0):
        torch.manual_seed(3)
        student = Classifier(Transformer(ModelConfig.from_depth(1, 30, max_len=32, causal=False)), 2)
        train_classifier(student, blind, CONFIG, teacher=teacher, distill=Distill(weight=weight, temperature=2.0))
        agreement[weight] = (predict_logits(student, data.tokens).argmax(-1) == goal).mean()
    assert agreement[1.0] > 0.9 > agreement[0.0]


def test_a_teacher_may_be_its_logits() -> None:
    data = rows(40)
    teacher = fresh().eval()
    results = []
    for guide in (teacher, predict_logits(teacher, data.tokens)):
        student = fresh()
        train_classifier(student, data, replace(CONFIG, epochs=1), teacher=guide, distill=Distill())
        results.append(weights(student))
    assert same(*results)
    with pytest.raises(ValueError, match="needs the teacher itself"):
        train_classifier(fresh(), data, CONFIG, teacher=np.zeros((40, 2)), distill=Distill(hidden=1.0))


def test_hidden_states_are_followed() -> None:
    data = rows(40)
    teacher = fresh().eval()
    gap = {}
    for hidden in (0.0, 10.0):
        torch.manual_seed(3)
        student = Classifier(Transformer(ModelConfig.from_depth(1, 30, max_len=32, causal=False)), 2)
        train_classifier(student, data, CONFIG, teacher=teacher, distill=Distill(weight=0.5, hidden=hidden))
        ids = torch.from_numpy(np.stack([row[:3] for row in data.tokens])).long()
        with torch.no_grad():
            gap[hidden] = (student.backbone.hidden(ids) - teacher.backbone.hidden(ids)).square().mean().item()
    assert gap[10.0] < gap[0.0]


def test_predictions_keep_the_order_of_rows_and_the_mode_of_the_model() -> None:
    data = rows(30)
    model = fresh().train()
    wide, narrow = (predict_logits(model, data.tokens, max_tokens=n) for n in (10_000, 20))
    assert model.training
    assert np.allclose(wide, narrow, atol=1e-5)
    alone = np.concatenate([predict_logits(model, [row]) for row in data.tokens])
    assert np.allclose(wide, alone, atol=1e-5)


def test_nothing_to_train_on_is_an_error() -> None:
    empty = rows(3).take([])
    with pytest.raises(DaymillError, match="no labelled rows"):
        train_classifier(fresh(), empty, CONFIG)


def test_rows_without_labels_are_set_aside() -> None:
    data = replace(rows(5), weights=np.arange(5, dtype=np.float32))
    data.labels[[1, 3]] = IGNORE
    assert data.labelled().ids == ["0", "2", "4"]
    assert data.labelled().weights.tolist() == [0, 2, 4]  # type: ignore[union-attr]


def test_a_run_that_is_looked_at_is_the_same_to_the_bit_and_tells_of_its_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "cpu", (32,))
    monkeypatch.setattr("training.peak.SECONDS", 0.0)
    watched, cut, plain = fresh(0.2), fresh(0.2), fresh(0.2)
    watched.load_state_dict(plain.state_dict())
    cut.load_state_dict(plain.state_dict())
    valid = rows(20, 1)
    off = train_classifier(plain, rows(60), CONFIG, valid=valid)
    told: list[int] = []
    config = replace(CONFIG, look_every=6)
    on = train_classifier(watched, rows(60), config, valid=valid, on_look=lambda step, _: told.append(step))
    assert all(torch.equal(tensor, watched.state_dict()[name]) for name, tensor in plain.state_dict().items())
    assert not off.looks and told == [step for step, _ in on.looks] == [1, 7, 13, 19, 25, 31]
    for _, values in on.looks:
        assert values["train/mfu"] > 0 and values["layers/out_std/0"] > 0 and values["layers/update_ratio/rest"] > 0
    assert on.spent["validation"] > 0 and sum(breakdown(on.spent).values()) == pytest.approx(1)

    def killed(step: int, _: int) -> None:
        if step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_classifier(cut, rows(60), config, valid=valid, state=tmp_path / "s", on_step=killed)
    replayed: list[int] = []
    again = train_classifier(
        fresh(0.2), rows(60), config, valid=valid, state=tmp_path / "s", on_look=lambda step, _: replayed.append(step)
    )
    assert replayed == told, "a new process tells the curves from their begin"
    layers = [[{k: v for k, v in values.items() if "layers" in k} for _, values in run.looks] for run in (on, again)]
    assert layers[0] == layers[1]


def test_saving_keeps_to_its_share_and_the_end_is_always_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that takes as long as all steps together: the first, whose cost nobody knew, and the last."""
    saved: list[int] = []
    plain = Job.save

    def slow(self: Job, path: Path) -> None:
        saved.append(self.history.steps)
        time.sleep(0.2)
        plain(self, path)

    monkeypatch.setattr(Job, "save", slow)
    train_classifier(fresh(), rows(32), replace(CONFIG, save_share=0.02), valid=rows(10, 1), state=tmp_path / "a")
    assert saved == [4, 16]
    saved.clear()
    train_classifier(fresh(), rows(32), CONFIG, valid=rows(10, 1), state=tmp_path / "b")
    assert saved == [4, 8, 12, 16], "the control: without a limit at every evaluation"
