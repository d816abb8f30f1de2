"""Learning to answer over ranks: the numbers of one process, also where a rank's rows have other counts of targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.batching import IGNORE
from data.tokens import TokenShard
from tests.unit.training.parallel import worlds
from training.config import LayerShape, ModelConfig
from training.knobs import PretrainConfig
from training.model import Transformer
from training.parallel.layout import Layout
from training.parallel.run import spread_over
from training.pretrain import pretrain
from training.state import load_state, part

pytestmark = pytest.mark.slow
CONFIG = PretrainConfig(
    tokens=8 * 6 * 16, length=16, rows=3, accumulate=2, lr=5e-3, evaluations=4, valid_tokens=0, save_every_s=0,
    keep_best=True, patience=3, precision="fp32", attention="plain",
)  # fmt: skip


def shard(seed: int) -> TokenShard:
    """Documents of which every other stretch counts, stretches of unequal lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 17, 40)
    tokens = (np.cumsum(rng.random(lengths.sum()) < 0.9) % 40).astype(np.int32)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    scored = rng.random(len(tokens)) < rng.uniform(0.1, 0.9, len(lengths)).repeat(lengths)
    scored[bounds[1:] - 1] = True
    return TokenShard(tokens, bounds, np.where(scored, tokens, IGNORE).astype(np.int32))


def run(rank: int, state: Path, layout: Layout) -> dict[str, Any]:
    torch.manual_seed(0)
    shape = ModelConfig(40, 32, (LayerShape(4, 48),) * 2, head_dim=8, max_len=16)
    model = Transformer(shape).to(torch.float64)
    spread = spread_over(layout, CONFIG.length, CONFIG.accumulate) if layout.ranks > 1 else None
    done = pretrain(model, shard(0), shard(1), CONFIG, state=state, spread=spread)
    return {"points": [list(values.items())[:1] for _, values in done.points], "best": done.best_step}


@pytest.mark.parametrize(
    "layout", [Layout(data=2), Layout(tensor=2), Layout(data=2, shard=True)], ids=["data", "tensor", "shard"]
)
def test_ranks_give_the_losses_and_the_best_weights_of_one_process(tmp_path: Path, layout: Layout) -> None:
    alone = run(0, tmp_path / "alone", Layout())
    found = worlds.run(layout.ranks, tmp_path / "world", run, tmp_path / "ranks", layout)
    losses, expected = ([value for ((_, value),) in each["points"]] for each in (found[0], alone))
    assert losses == pytest.approx(expected, rel=1e-9)
    assert {answer["best"] for answer in found} == {alone["best"]}
    whole, spread = (load_state(tmp_path / name) for name in ("alone", "ranks"))
    assert whole is not None and spread is not None
    for name, tensor in part(whole[0], "best").items():
        assert torch.allclose(tensor, part(spread[0], "best")[name], rtol=1e-8, atol=1e-10), name
