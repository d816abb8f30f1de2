"""Pretraining over ranks: the losses of one process, and a run that goes on where and as it was cut."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

from data.tokens import TokenShard
from tests.unit.training.parallel import worlds
from training.config import LayerShape, ModelConfig
from training.history import Progressed
from training.knobs import PretrainConfig
from training.model import Transformer
from training.parallel import compress
from training.parallel.compress import Compress, Compressed
from training.parallel.forecast import Cost, Method
from training.parallel.layout import Layout
from training.parallel.reducer import AllReduce, Bucket
from training.parallel.run import spread_over
from training.parallel.wire import GroupWire
from training.pretrain import pretrain
from training.state import load_state, part, save_state

pytestmark = pytest.mark.slow
CONFIG = PretrainConfig(
    tokens=10 * 6 * 16,
    length=16,
    rows=3,
    accumulate=2,
    lr=5e-3,
    evaluations=2,
    valid_tokens=0,
    save_every_s=0,
    save_share=0,
    precision="fp32",
    attention="plain",
)


class Killed(Exception):
    pass


def shard(seed: int = 0) -> TokenShard:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, 40)
    tokens = (np.cumsum(rng.random(lengths.sum()) < 0.9) % 40).astype(np.uint16)
    return TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)]))


HOW = {
    "top-k": Compress("top-k", saved=0.8, dense_steps=2),
    "power-sgd": Compress("power-sgd", saved=0.8, dense_steps=2),
    "auto": Compress("auto", dense_steps=2),
}


def made_up(fastest: Method) -> Callable[..., list[dict[Method, Cost]]]:
    """Costs of a link on which this method is the fastest."""

    def costs(_: object, buckets: Sequence[Bucket], methods: Sequence[Method]) -> list[dict[Method, Cost]]:
        return [{method: Cost(0.0, 0.1 if method == fastest else 5.0) for method in methods} for _ in buckets]

    return costs


def run(rank: int, state: Path, layout: Layout, more: dict[str, Any]) -> dict[str, Any]:
    """A run to its end or to the step `kill_at`; its losses, its weights, and where it ended."""
    torch.manual_seed(0)
    shape = ModelConfig(40, 32, (LayerShape(4, 48),) * 4, head_dim=8, max_len=16, dropout=more.get("dropout", 0.0))
    model = Transformer(shape).to(torch.float64)
    exchange = HOW[more["compress"]].exchange if "compress" in more else AllReduce
    spread = spread_over(layout, CONFIG.length, CONFIG.accumulate, exchange) if layout.ranks > 1 else None

    def on_step(step: int) -> None:
        if step == more.get("kill_at"):
            raise Killed

    config = replace(CONFIG, **more.get("config", {}))
    done = Progressed()
    with suppress(Killed), mock.patch.object(compress, "costs", made_up(more.get("fastest", "dense"))):
        done = pretrain(model, shard(), shard(1), config, state=state, spread=spread, on_step=on_step)
    return {
        "losses": [values["train/loss"] for _, values in done.points],
        "valid": [values["valid/loss"] for _, values in done.points if "valid/loss" in values],
        "looks": [values for _, values in done.points if "train/mfu" in values],
        "weights": {name: p.detach() for name, p in model.named_parameters()} if not layout.shard else {},
    }


@pytest.mark.parametrize(
    "layout",
    [Layout(data=2), Layout(tensor=2, pipeline=2, sizes=(1, 3)), Layout(data=2, tensor=2, shard=True)],
    ids=["data", "tensor x pipeline", "sharded x tensor"],
)
def test_a_run_over_ranks_is_the_run_of_one(layout: Layout, tmp_path: Path) -> None:
    more = {"config": {"look_every": 4}}
    told = worlds.run(layout.ranks, tmp_path / "world", run, tmp_path / "state", layout, more)
    alone = run(0, tmp_path / "alone", Layout(), more)
    assert len(alone["losses"]) == 10 and len(alone["valid"]) == 2
    for rank in told:
        assert rank["losses"] == pytest.approx(alone["losses"], rel=1e-8)
        assert rank["valid"] == pytest.approx(alone["valid"], rel=1e-8)
        assert_looks_alike(rank["looks"], alone["looks"])


def assert_looks_alike(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
    """Layers are told of as one process does, whatever the ranks; only ranks wait for each other."""
    assert len(ours) == len(theirs) == 3
    for mine, other in zip(ours, theirs, strict=True):
        names = {name for name in other if name.startswith("layers/")}
        assert len(names) == 4 * 7 + 2 and names == {name for name in mine if name.startswith("layers/")}
        for name in names:
            assert mine[name] == pytest.approx(other[name], rel=1e-5, abs=1e-9), name
        assert other["time/communication"] == 0 < mine["time/communication"] < 1
        assert mine["memory/peak_rss_mib"] > 0 and "memory/pss_mib" not in other
        assert sys.platform != "linux" or mine["memory/pss_mib"] > 0


@pytest.mark.parametrize(
    ("layout", "more"),
    [
        (Layout(data=2), {"dropout": 0.2}),
        (Layout(data=2), {"compress": "top-k"}),
        (Layout(data=2), {"compress": "power-sgd", "dropout": 0.2}),
        (Layout(pipeline=2, schedule="zero-bubble", sizes=(3, 1)), {"dropout": 0.2}),
        (Layout(tensor=2), {"dropout": 0.2}),
        (Layout(data=2, shard=True), {"dropout": 0.2}),
        (Layout(data=4, pipeline=2, sizes=(2, 2)), {}),  # three rows a micro-batch: one data rank has none
    ],
    ids=["data", "top-k", "power-sgd", "pipeline", "tensor", "sharded", "a rank without rows"],
)
def test_a_cut_run_ends_bit_equal(layout: Layout, more: dict[str, Any], tmp_path: Path) -> None:
    whole = worlds.run(layout.ranks, tmp_path / "a", run, tmp_path / "whole", layout, more)
    worlds.run(layout.ranks, tmp_path / "b", run, tmp_path / "state", layout, more | {"kill_at": 6})
    resumed = worlds.run(layout.ranks, tmp_path / "c", run, tmp_path / "state", layout, more)
    for ours, theirs in zip(resumed, whole, strict=True):
        assert ours["losses"] == theirs["losses"]
        assert all(torch.equal(tensor, theirs["weights"][name]) for name, tensor in ours["weights"].items())


@pytest.mark.parametrize(("how", "lost"), [("top-k", "/late/"), ("power-sgd", "/late/"), ("power-sgd", "/q/")])
def test_what_compression_remembers_is_missed_where_it_is_lost(how: str, lost: str, tmp_path: Path) -> None:
    """The control of the test above."""
    layout, more = Layout(data=2), {"compress": how}
    whole = worlds.run(2, tmp_path / "a", run, tmp_path / "whole", layout, more)
    worlds.run(2, tmp_path / "b", run, tmp_path / "state", layout, more | {"kill_at": 6})
    change(tmp_path / "state", lambda name, value: torch.ones_like(value) if lost in name else value)
    resumed = worlds.run(2, tmp_path / "c", run, tmp_path / "state", layout, more)
    assert resumed[0]["losses"][:6] == whole[0]["losses"][:6]
    assert resumed[0]["losses"] != whole[0]["losses"]


def change(path: Path, to: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
    """Change some tensors of a state; at least one of them."""
    saved = load_state(path)
    assert saved is not None
    tensors = {name: to(name, value) for name, value in saved[0].items()}
    assert any(value is not saved[0][name] for name, value in tensors.items())
    save_state(path, tensors, saved[1])


def test_a_run_keeps_the_methods_that_it_chose(tmp_path: Path) -> None:
    """Measured anew they might be others, and the losses too."""
    layout, more = Layout(data=2), {"compress": "auto", "fastest": "top-k"}
    whole = worlds.run(2, tmp_path / "a", run, tmp_path / "whole", layout, more)
    worlds.run(2, tmp_path / "b", run, tmp_path / "state", layout, more | {"kill_at": 8})
    kept = (tmp_path / "state").read_bytes()
    other = more | {"fastest": "power-sgd"}
    resumed = worlds.run(2, tmp_path / "c", run, tmp_path / "state", layout, other)
    assert resumed[0]["losses"] == whole[0]["losses"]
    dense = worlds.run(2, tmp_path / "d", run, tmp_path / "dense", layout, more | {"fastest": "dense"})
    assert dense[0]["losses"][:6] == whole[0]["losses"][:6] and dense[0]["losses"] != whole[0]["losses"]
    (tmp_path / "state").write_bytes(kept)
    change(tmp_path / "state", lambda name, value: torch.zeros_like(value) if "/methods" in name else value)
    lost = worlds.run(2, tmp_path / "e", run, tmp_path / "state", layout, more)
    assert lost[0]["losses"] != whole[0]["losses"], "the control"


def test_a_run_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    more: dict[str, Any] = {}
    worlds.run(3, tmp_path / "b", run, tmp_path / "state", Layout(data=3), more | {"kill_at": 6})
    resumed = worlds.run(2, tmp_path / "c", run, tmp_path / "state", Layout(tensor=2), more)
    alone = run(0, tmp_path / "alone", Layout(), more)
    assert resumed[0]["losses"] == pytest.approx(alone["losses"], rel=1e-8)


def test_what_is_late_moves_to_fewer_ranks(tmp_path: Path) -> None:
    """No gradient is lost where three ranks become two: the first one takes the third one's over."""
    worlds.run(3, tmp_path / "b", run, tmp_path / "state", Layout(data=3), {"compress": "top-k", "kill_at": 6})
    before = load_state(tmp_path / "state")
    after = worlds.run(2, tmp_path / "c", late_of, tmp_path / "state")
    assert before is not None
    for name in after[0]:
        was = sum(before[0][f"rank{rank}/late/{name}"] for rank in range(3))
        assert torch.allclose(after[0][name] + after[1][name], was, atol=1e-12)
        assert torch.equal(after[1][name], before[0][f"rank1/late/{name}"])


def late_of(rank: int, state: Path) -> dict[str, torch.Tensor]:
    """What a rank of two has late after loading a state."""
    saved = load_state(state)
    assert saved is not None
    exchange = Compressed(GroupWire(dist.group.WORLD), HOW["top-k"])  # type: ignore[arg-type]
    exchange.load([part(saved[0], f"rank{number}") for number in range(3)])
    assert exchange.steps == 6
    return exchange.late.memory
