"""A ladder of sizes: its curve is found again, tokens are in proportion, what is done stays, what is cut goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.errors import DaymillError
from data.tokens import TokenShard
from training import ladder
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.ladder import Rung, climb, fit, plan, predictions
from training.model import Transformer

CONFIG = PretrainConfig(
    tokens=1,
    length=16,
    rows=2,
    valid_tokens=0,
    save_every_s=0,
    save_share=0,
    precision="fp32",
    attention="plain",
    lr=5e-3,
)
RUNG = Rung(depth=1, parameters=1000, tokens=16 * 2 * 12)
SHAPE = ModelConfig.from_depth(1, 40, max_len=16, dropout=0.1)


def shard(seed: int) -> TokenShard:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, 40)
    tokens = (np.cumsum(rng.random(lengths.sum()) < 0.9) % 40).astype(np.uint16)
    return TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)]))


def along(a: float, b: float, c: float, rungs: int = 4) -> list[Rung]:
    found = [Rung(depth, 100_000 * depth**2, 1_000_000 * depth**2) for depth in range(1, rungs + 1)]
    unit = found[0].compute
    return [replace(rung, loss=a + b * (rung.compute / unit) ** -c) for rung in found]


@pytest.mark.parametrize(("a", "b", "c"), [(3.0, 4.0, 0.3), (0.0, 8.0, 0.08), (1.5, 5.0, 0.8)])
def test_losses_on_a_curve_tell_the_next_one(a: float, b: float, c: float) -> None:
    rungs = along(a, b, c)
    told = predictions(rungs)
    assert told[:2] == [None, None]
    assert told[3] == pytest.approx(rungs[3].loss, rel=2e-3)
    curve = fit(rungs)
    assert curve.a == pytest.approx(a, abs=0.15) and curve.c == pytest.approx(c, rel=0.05)


def test_two_rungs_give_a_power_law_and_one_gives_none() -> None:
    rungs = along(0.0, 8.0, 0.1)
    assert predictions(rungs)[2] == pytest.approx(rungs[2].loss, rel=1e-9)
    with pytest.raises(DaymillError, match="two rungs"):
        fit(rungs[:1])


def test_a_rung_that_leaves_the_curve_is_seen() -> None:
    rungs = along(3.0, 4.0, 0.3)
    broken = [*rungs[:3], replace(rungs[3], loss=rungs[3].loss * 1.1)]
    told = predictions(broken)[3]
    assert told is not None and broken[3].loss / told > 1.09


def test_tokens_are_in_proportion_to_parameters() -> None:
    rungs = plan([1, 2, 3], 90_000, lambda depth: ModelConfig.from_depth(depth, 300, max_len=32))
    assert rungs[-1].tokens == 90_000
    for rung in rungs:
        model = Transformer(ModelConfig.from_depth(rung.depth, 300, max_len=32))
        assert rung.parameters == sum(p.numel() for p in model.parameters())
        assert rung.tokens / rung.parameters == pytest.approx(90_000 / rungs[-1].parameters, rel=1e-3)


class Killed(BaseException):
    """Stands for a kill."""


class KillsAt:
    def __init__(self, step: int) -> None:
        self.left = step

    def advance(self, count: int = 1, note: str = "") -> None:
        self.left -= 1
        if not self.left:
            raise Killed


def trained(folder: Path, config: PretrainConfig = CONFIG, kill_at: int = 0) -> Rung:
    bar = KillsAt(kill_at) if kill_at else None
    return climb(RUNG, SHAPE, config, shard(0), shard(1), folder, "data", bar)


def test_a_rung_that_is_done_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained(tmp_path)
    assert 0 < first.loss < np.log(40) and not list(tmp_path.glob("*.safetensors"))

    def broken(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(ladder, "pretrain", broken)
    assert trained(tmp_path) == first
    for other in (replace(CONFIG, lr=4e-3), replace(CONFIG, seed=1)):
        with pytest.raises(AssertionError, match="trained again"):
            trained(tmp_path, other)
    with pytest.raises(AssertionError, match="trained again"):
        climb(RUNG, SHAPE, CONFIG, shard(0), shard(1), tmp_path, "other data")


def test_a_killed_rung_goes_on_and_ends_with_the_same_loss(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    with pytest.raises(Killed):
        trained(tmp_path / "cut", kill_at=7)
    assert list((tmp_path / "cut").glob("*.safetensors"))
    steps = KillsAt(1000)
    again = climb(RUNG, SHAPE, CONFIG, shard(0), shard(1), tmp_path / "cut", "data", steps)
    assert again.loss == whole.loss
    assert 1000 - steps.left < 12, "it did not begin anew"
