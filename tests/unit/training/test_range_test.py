"""A range test finds where a loss falls and where it rises, the same every time, or says that it saw neither."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from data.errors import DaymillError
from data.tokens import TokenShard
from training.config import ModelConfig
from training.engine import Engine, open_engine, weight_of
from training.knobs import PretrainConfig
from training.loader import PackedLoader, batch_of
from training.model import Transformer
from training.range_test import Sweep, advise, rates_between, rounded, sweep

CONFIG = PretrainConfig(tokens=1000, length=16, rows=4, precision="fp32", attention="plain")


def made(loss_at: list[tuple[float, float]], steps: int = 200) -> Sweep:
    """A sweep whose loss follows straight lines between points of (log10 rate, loss)."""
    rates = rates_between(1e-6, 1.0, steps)
    return Sweep(rates, np.interp(np.log10(rates), *zip(*loss_at)).tolist())


def test_the_steepest_descent_and_the_rise_are_found() -> None:
    advice = advise(made([(-6, 9.0), (-4, 8.8), (-3, 6.0), (-1.5, 5.5), (-1, 9.0), (0, 30.0)]))
    assert 1e-4 < advice.steepest < 2e-3
    assert 1e-3 < advice.least < 0.05
    assert advice.rises is not None and advice.least < advice.rises < 0.3


def test_a_loss_that_never_rises_says_so() -> None:
    assert advise(made([(-6, 9.0), (0, 2.0)])).rises is None


def test_a_loss_that_never_falls_is_an_error() -> None:
    with pytest.raises(DaymillError, match="fell at none"):
        advise(made([(-6, 5.0), (0, 9.0)]))


def test_too_few_steps_and_wrong_rates_are_errors() -> None:
    with pytest.raises(DaymillError, match="too few"):
        rates_between(1e-5, 1.0, 5)
    for low, high in ((0.0, 1.0), (1.0, 0.1), (math.nan, 1.0)):
        with pytest.raises(DaymillError, match="the lower one first"):
            rates_between(low, high, 100)
    with pytest.raises(DaymillError, match="not finite after 2 steps"):
        advise(Sweep([1e-3, 1e-2], [5.0, 6.0]))


def test_a_rate_is_rounded_down_to_a_plain_number() -> None:
    assert [rounded(rate) for rate in (1e-3, 0.0019, 0.00299, 0.0069, 0.95)] == [1e-3, 0.0015, 0.002, 0.005, 0.7]


def engine() -> tuple[Engine, PackedLoader]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 30, 60)
    tokens = (np.cumsum(rng.random(lengths.sum()) < 0.9) % 40).astype(np.uint16)
    loader = PackedLoader(TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)])), 16, 4, 0)
    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_depth(1, 40, max_len=16, dropout=0.1))
    return open_engine(model, CONFIG, batch_of(loader.packed, 0, 2)), loader


def swept(high: float, steps: int = 60) -> Sweep:
    own, loader = engine()
    rates = rates_between(1e-5, high, steps)
    return sweep(own.trainer, lambda _: [loader.next()], own.loss_sum, weight_of, rates)


def test_a_real_sweep_is_the_same_again_and_learns_on_the_way() -> None:
    first, again = swept(0.1), swept(0.1)
    assert first == again
    assert advise(first).steepest > 1e-4


def test_a_sweep_ends_where_the_loss_blows_up() -> None:
    found = swept(1e4, steps=120)
    assert len(found.rates) < 120
    advice = advise(found)
    assert advice.rises is not None and advice.rises < 100


def test_a_sweep_ends_at_a_loss_that_is_not_finite() -> None:
    own, loader = engine()
    calls = iter(range(1000))
    found = sweep(
        own.trainer,
        lambda _: [loader.next()],
        lambda batch: own.loss_sum(batch) * (float("nan") if next(calls) == 3 else 1.0),
        weight_of,
        rates_between(1e-5, 0.1, 60),
    )
    assert len(found.rates) == 3
