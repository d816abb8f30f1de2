"""Telemetry changes no bit of a run, is the same after a cut, and says where the time went."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from data.tokens import TokenShard
from training.clock import PARTS
from training.config import ModelConfig
from training.history import Progressed
from training.knobs import PretrainConfig
from training.layers import OneRank
from training.model import Transformer
from training.optim import make_adamw
from training.peak import SIZES, Peak
from training.pretrain import pretrain
from training.step import StepReport, Trainer
from training.telemetry import Telemetry

CONFIG = PretrainConfig(
    tokens=12 * 64, length=16, rows=2, accumulate=2, lr=5e-3, evaluations=2, valid_tokens=0, save_every_s=0,
    save_share=0, precision="fp32", attention="plain",
)  # fmt: skip
EVERY = 5


class Killed(BaseException):
    pass


def shard(seed: int = 0) -> TokenShard:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, 60)
    return TokenShard(rng.integers(0, 40, lengths.sum()).astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]))


@pytest.fixture(autouse=True)
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "cpu", (32,))
    monkeypatch.setattr("training.peak.SECONDS", 0.0)


def run(state: Path, every: int, kill_at: int | None = None, **more: Any) -> tuple[Transformer, Progressed]:
    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_depth(2, 40, max_len=16, dropout=0.2))
    config = replace(CONFIG, look_every=every, **more)
    return model, pretrain(model, shard(), shard(1), config, state=state, on_step=on_step)


def layers(done: Progressed) -> list[tuple[int, dict[str, float]]]:
    kept = [(step, {k: v for k, v in values.items() if k.startswith("layers/")}) for step, values in done.points]
    return [(step, values) for step, values in kept if values]


def test_a_run_that_is_looked_at_is_the_same_to_the_bit(tmp_path: Path) -> None:
    (plain, off), (watched, on) = (run(tmp_path / str(every), every) for every in (0, EVERY))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, watched.state_dict()[name]), name
    assert [values["train/loss"] for _, values in off.points] == [values["train/loss"] for _, values in on.points]
    assert not layers(off) and not off.peak, "0 looks at nothing"
    assert [step for step, _ in layers(on)] == [1, 6, 11]


def test_every_look_tells_everything(tmp_path: Path) -> None:
    _, done = run(tmp_path / "state", EVERY)
    for step, values in done.points:
        if step in (1, 6, 11):
            assert sum(values[f"time/{part}"] for part in PARTS) == pytest.approx(1)
            assert values["time/compute"] > 0 and values["time/communication"] == 0
            assert values["train/mfu"] > 0 and values["memory/peak_rss_mib"] > 50
            blocks = {
                f"layers/{name}/{number}" for number in (0, 1) for name in ("out_std", "ffn_dead", "update_ratio")
            }
            assert blocks <= values.keys() and "layers/grad_norm/rest" in values
        else:
            assert set(values) <= {
                "train/loss", "train/grad_norm", "train/lr", "train/tokens_per_s", "valid/loss"
            }  # fmt: skip
    assert done.spent["checkpoint"] > 0 and done.spent["validation"] > 0
    assert done.spent["wall"] >= sum(seconds for part, seconds in done.spent.items() if part != "wall") * 0.999


def test_a_cut_run_tells_the_same_of_its_layers_and_keeps_its_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = run(tmp_path / "whole", EVERY)
    with pytest.raises(Killed):
        run(tmp_path / "cut", EVERY, kill_at=8)
    monkeypatch.setattr("training.pretrain.peak_of", lambda *_: pytest.fail("measured again"))
    _, again = run(tmp_path / "cut", EVERY)
    assert layers(again) == layers(whole)
    assert again.peak["flops"] > 0 and "measured" in again.peak["source"]


@pytest.mark.parametrize(("peak", "mfu"), [(1e8, 0.5), (2e8, 0.25)])
def test_mfu_is_what_was_done_over_what_could_be(monkeypatch: pytest.MonkeyPatch, peak: float, mfu: float) -> None:
    """100 tokens of a million FLOPs in two seconds of training; a second of validation does not count."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    model = Transformer(ModelConfig.from_depth(1, 40))
    trainer = Trainer(model, make_adamw(model, 0.0), 1.0)
    telemetry = Telemetry(1, trainer, OneRank(), Peak(peak, "told"), {})
    with telemetry.step(2):
        now[0] += 2
    with telemetry.part("validation"):
        now[0] += 1
    telemetry.activations = None
    telemetry.flops = 6e7
    values = telemetry.after_step(2, StepReport(1.0, 40.0, 1.0, updated=False), 4e7)
    assert values["train/mfu"] == pytest.approx(mfu)
    assert values["time/compute"] == pytest.approx(2 / 3) and values["time/validation"] == pytest.approx(1 / 3)


def test_the_loss_scale_is_told_where_there_is_one() -> None:
    model = Transformer(ModelConfig.from_depth(1, 40))
    trainer = Trainer(model, make_adamw(model, 0.0), 1.0)
    telemetry = Telemetry(1, trainer, OneRank(), None, {})
    assert telemetry.scale() == {}
    for scale, told in ((1.0, {}), (65536.0, {"train/loss_scale": 65536.0})):
        vars(trainer)["numerics"] = SimpleNamespace(scale=scale)
        assert telemetry.scale() == told
