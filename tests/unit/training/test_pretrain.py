"""Pretraining: learns, resumes bit-equal from a cut at any step, and notices each thing that a resume could forget."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from data.errors import DaymillError
from data.tokens import TokenShard
from training.config import ModelConfig
from training.history import Progressed
from training.knobs import PretrainConfig
from training.loader import PackedLoader, batch_of
from training.model import Transformer
from training.pretrain import check_finite, pretrain, validation_loss
from training.ranks import token_loss_sum
from training.state import load_state, save_state

CONFIG = PretrainConfig(
    tokens=24 * 64,
    length=16,
    rows=2,
    accumulate=2,
    lr=5e-3,
    evaluations=2,
    valid_tokens=0,
    save_every_s=0,
    save_share=0.0,
    precision="fp32",
    attention="plain",
)
STEPS = 24


def shard(seed: int = 0) -> TokenShard:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, 60)
    # A token is mostly followed by its successor: something to learn.
    tokens = (np.cumsum(rng.random(lengths.sum()) < 0.9) % 40).astype(np.uint16)
    return TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)]))


SHAPE = ModelConfig.from_depth(1, 40, max_len=16, dropout=0.2)


def fresh(shape: ModelConfig = SHAPE) -> Transformer:
    torch.manual_seed(0)
    return Transformer(shape)


class Killed(BaseException):
    """Stands for a kill: nothing of the run may catch it."""


def run(
    state: Path, kill_at: int | None = None, config: PretrainConfig = CONFIG, shape: ModelConfig = SHAPE
) -> tuple[Transformer, Progressed]:
    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    model = fresh(shape)
    return model, pretrain(model, shard(), shard(1), config, state=state, on_step=on_step)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Progressed]:
    return run(tmp_path_factory.mktemp("whole") / "state")


def test_the_loss_falls(uninterrupted: tuple[Transformer, Progressed]) -> None:
    _, done = uninterrupted
    assert done.step == STEPS
    assert done.last("valid/loss") < 0.8 * np.log(40)
    assert done.last("train/loss") > 0
    assert done.tokens_per_s > 0


@pytest.mark.parametrize("kill_at", [1, 9, 20])
def test_a_cut_run_ends_bit_equal(tmp_path: Path, uninterrupted: tuple[Transformer, Progressed], kill_at: int) -> None:
    whole, done = uninterrupted
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at)
    torch.manual_seed(99)  # whatever the next process draws first
    resumed, again = run(tmp_path / "state")
    assert_equal(whole, resumed)
    losses = [[values["train/loss"] for _, values in d.points] for d in (done, again)]
    assert losses[0] == losses[1]


SPARSE = ModelConfig.from_depth(1, 40, max_len=16, activation="dsrelu", theta=0.1, kv_heads=1)
SPARSE_RUN = replace(CONFIG, smoothing=0.1, theta_ramp=0.7, skip="neurons")


@pytest.mark.parametrize("learned", [False, True], ids=["scheduled", "learned"])
def test_a_cut_run_with_thresholds_ends_bit_equal(tmp_path: Path, learned: bool) -> None:
    shape = replace(SPARSE, learned_theta=learned)
    whole, done = run(tmp_path / "whole", config=SPARSE_RUN, shape=shape)
    with pytest.raises(Killed):
        run(tmp_path / "state", 9, SPARSE_RUN, shape)
    torch.manual_seed(99)
    resumed, again = run(tmp_path / "state", config=SPARSE_RUN, shape=shape)
    assert_equal(whole, resumed)
    assert [values["train/loss"] for _, values in done.points] == [values["train/loss"] for _, values in again.points]
    assert done.last("valid/loss") < 0.9 * np.log(40)
    assert resumed.blocks[0].mlp.threshold == whole.blocks[0].mlp.threshold
    assert (whole.blocks[0].mlp.threshold == 0.1) is not learned
    if learned:  # the negative control: its theta is part of what a resumed run needs
        with pytest.raises(Killed):
            run(tmp_path / "again", 9, SPARSE_RUN, shape)
        saved = load_state(tmp_path / "again")
        assert saved is not None
        saved[0]["model/blocks.0.mlp.log_theta"] += 0.1
        save_state(tmp_path / "again", *saved)
        forgot, _ = run(tmp_path / "again", config=SPARSE_RUN, shape=shape)
        with pytest.raises(AssertionError, match="differs"):
            assert_equal(whole, forgot)


def test_each_knob_of_the_thresholds_changes_a_run(tmp_path: Path) -> None:
    """The negative controls: a schedule that began anew at a resume, a skip that did nothing, would be seen."""
    losses = {}
    for name, changes in (
        ("as it is", {}),
        ("another ramp", {"theta_ramp": 0.3}),
        ("nothing skipped", {"skip": "none"}),
        ("tokens", {"skip": "tokens"}),
        ("less skipped", {"skip_share": 0.2}),
        ("no smoothing", {"smoothing": 0.0}),
    ):
        config = replace(SPARSE_RUN, **changes)  # type: ignore[arg-type]
        _, done = run(tmp_path / name, config=config, shape=SPARSE)
        losses[name] = done.last("valid/loss")
    assert len(set(losses.values())) == len(losses), losses


def test_weights_that_a_validation_keeps_have_the_final_theta(tmp_path: Path) -> None:
    rising = replace(CONFIG, theta_ramp=0.7, keep_best=True)
    with pytest.raises(DaymillError, match=r"theta rises over 70% of the steps.*Lower dsrelu\.ramp"):
        run(tmp_path / "rising", config=rising, shape=SPARSE)
    for config, shape in (
        (replace(rising, theta_ramp=0.5), SPARSE),
        (rising, replace(SPARSE, learned_theta=True)),
        (replace(rising, keep_best=False), SPARSE),
    ):
        assert run(tmp_path / f"{config}{shape}"[:9], config=replace(config, tokens=0), shape=shape)[1].step == 0


def test_layers_with_a_mode_of_their_own_do_not_skip(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="skipping parts of backward passes goes with the precisions"):
        run(tmp_path / "state", config=replace(SPARSE_RUN, precision="fp8", emulate=True), shape=SPARSE)


def drop_moments(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    for name in tensors:
        if name.startswith("optimizer/") and name.endswith("exp_avg"):
            tensors[name] = torch.zeros_like(tensors[name])


def drop_parameter(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["model/blocks.0.attn.q.weight"] = fresh().blocks[0].attn.q.weight.detach()


def drop_rng(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["rng"] = torch.Generator().manual_seed(5).get_state()


def drop_position(_: dict[str, Tensor], meta: dict[str, Any]) -> None:
    meta["position"] = {"epoch": 0, "row": 0}


def drop_step(_: dict[str, Tensor], meta: dict[str, Any]) -> None:
    meta["step"] -= 1


@pytest.mark.parametrize("forget", [drop_moments, drop_parameter, drop_rng, drop_position, drop_step])
def test_forgetting_any_part_of_the_state_shows(
    tmp_path: Path, uninterrupted: tuple[Transformer, Progressed], forget: Callable[..., None]
) -> None:
    state = tmp_path / "state"
    with pytest.raises(Killed):
        run(state, kill_at=11)
    saved = load_state(state)
    assert saved is not None
    tensors, meta = saved
    forget(tensors, meta)
    save_state(state, tensors, meta)
    resumed, _ = run(state)
    with pytest.raises(AssertionError, match="differs"):
        assert_equal(uninterrupted[0], resumed)


def test_a_resumed_run_keeps_its_choice_of_precision(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(Killed):
        run(state, kill_at=3, config=replace(CONFIG, precision="bf16", emulate=True, attention="sdpa"))
    _, done = run(state, config=replace(CONFIG, precision=None, attention=None))
    assert (done.choice["precision"], done.choice["attention"]) == ("bf16", "sdpa")


def test_the_probe_names_what_it_measured_and_draws_nothing(tmp_path: Path) -> None:
    wide = ModelConfig.from_depth(3, 40, max_len=16, dropout=0.2)
    config = replace(CONFIG, tokens=64, precision=None, attention=None)
    torch.manual_seed(0)
    probed = Transformer(wide)
    twin = copy.deepcopy(probed)
    done = pretrain(probed, shard(), shard(1), config, state=tmp_path / "probed")
    assert "fp32 plain" in done.choice["reason"] and "bf16 plain" in done.choice["reason"]
    settled = replace(config, precision=done.choice["precision"], attention=done.choice["attention"])
    pretrain(twin, shard(), shard(1), settled, state=tmp_path / "settled")
    assert_equal(probed, twin)


def test_a_state_of_another_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at=2)
    other = Transformer(ModelConfig.from_depth(2, 40, max_len=16))
    with pytest.raises(DaymillError, match="does not fit"):
        pretrain(other, shard(), shard(1), CONFIG, state=tmp_path / "state")


def test_no_tokens_leave_the_random_weights(tmp_path: Path) -> None:
    model, done = run(tmp_path / "state", config=replace(CONFIG, tokens=0))
    assert done.step == 0
    assert_equal(fresh(), model)


def test_validation_is_sum_over_sum_whatever_the_batches() -> None:
    model = fresh().eval()
    by_size = [validation_loss(model, shard(), replace(CONFIG, rows=rows), "fp32") for rows in (1, 3, 64)]
    assert by_size == pytest.approx([by_size[0]] * 3, rel=1e-6)
    loader = PackedLoader(shard(), 16, 1000, seed=0)
    batch = batch_of(loader.packed, 0, 1000)
    assert by_size[0] == pytest.approx(token_loss_sum(model, batch).item() / batch.tokens, rel=1e-6)


def test_each_document_comes_once_an_epoch_and_epochs_differ() -> None:
    loader = PackedLoader(shard(), 16, rows=3, seed=0)
    epochs = []
    for _ in range(2):
        seen: list[int] = []
        rows = 0
        while rows < len(loader.packed):
            batch = loader.next()
            rows += len(batch.ids)
            seen += batch.targets[batch.targets >= 0].tolist()
        epochs.append(seen)
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("length", [8, 16])
def test_packed_rows_go_on_from_any_position(length: int) -> None:
    """Into the second epoch, where the order is another one."""
    loader = PackedLoader(shard(), length, rows=3, seed=0)
    positions, batches = [], []
    while loader.epoch < 2:
        positions.append(loader.position())
        batches.append(loader.next())
    for position, batch in zip(positions, batches):
        other = PackedLoader(shard(), length, rows=3, seed=0)
        other.seek(position)
        again = other.next()
        assert torch.equal(again.ids, batch.ids) and torch.equal(again.docs, batch.docs)
    assert not torch.equal(batches[0].ids, batches[1].ids)


def test_weights_that_are_not_finite_are_named() -> None:
    model = fresh()
    with torch.no_grad():
        model.norm.weight[0] = float("nan")
    with pytest.raises(DaymillError, match=r"norm\.weight has non-finite"):
        check_finite(model)


def assert_equal(a: Transformer, b: Transformer) -> None:
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, b.state_dict()[name]), f"{name} differs"
