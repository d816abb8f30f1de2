"""Precisions over ranks: the losses of one process, one loss scale on all ranks, and what is refused by name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from data.errors import DaymillError
from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from tests.unit.training.parallel.test_run import CONFIG, HOW, Killed, shard
from training import numerics
from training.config import LayerShape, ModelConfig
from training.history import Progressed
from training.loader import TokenBatch, share
from training.model import Transformer
from training.numerics import Numerics
from training.optim import make_adamw
from training.parallel.compress import Compress, Compressed
from training.parallel.layout import Layout, Mesh
from training.parallel.reducer import AllReduce
from training.parallel.run import check_precision_of, spread_over, told_by_first
from training.precision import Choice
from training.pretrain import pretrain
from training.ranks import token_loss_sum
from training.scaling import LossScale
from training.step import Trainer

pytestmark = pytest.mark.slow
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16, "adaptive": torch.bfloat16}


def run(rank: int, state: Path, layout: Layout, precision: str, more: dict[str, Any]) -> dict[str, Any]:
    """A run in fp32 weights, to its end or to the step `kill_at`; also the dtypes that blocks gave."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(40, 32, (LayerShape(4, 48),) * 4, head_dim=8, max_len=16))
    exchange = HOW["top-k"].exchange if more.get("compress") else AllReduce
    spread = spread_over(layout, CONFIG.length, CONFIG.accumulate, exchange) if layout.ranks > 1 else None
    seen: set[str] = set()
    for block in model.blocks:
        block.register_forward_hook(lambda _m, _i, out: seen.add(str(out.dtype)))

    def on_step(step: int) -> None:
        if step == more.get("kill_at"):
            raise Killed

    first = more.get("first_scale", 65536.0)
    numerics.LossScale = partial(LossScale, value=first, growth_steps=3)  # type: ignore[misc, assignment]
    config = replace(CONFIG, precision=precision, emulate=True)  # type: ignore[arg-type]
    done = Progressed()
    try:
        with suppress(Killed):
            done = pretrain(model, shard(), shard(1), config, state=state, spread=spread, on_step=on_step)
    finally:
        numerics.LossScale = LossScale  # type: ignore[misc]
    scale = done.numerics.get("loss_scale") or {}
    return {
        "losses": [values["train/loss"] for _, values in done.points],
        "valid": [values["valid/loss"] for _, values in done.points if "valid/loss" in values],
        "weights": {name: p.detach() for name, p in model.named_parameters()} if not layout.shard else {},
        "dtypes": sorted(seen),
        "skipped": done.skipped,
        "scale": scale.get("value", 1.0),
    }


@pytest.mark.parametrize(
    ("layout", "precision"),
    [
        (Layout(tensor=2), "bf16"),
        (Layout(tensor=2), "fp16"),
        (Layout(pipeline=2, schedule="zero-bubble", sizes=(2, 2)), "bf16"),
        (Layout(pipeline=2, sizes=(1, 3)), "fp16"),
        (Layout(data=2, shard=True), "fp16"),
        (Layout(data=2, shard=True), "fp8"),
        (Layout(pipeline=2, schedule="zero-bubble", sizes=(2, 2)), "fp8"),
        (Layout(data=2), "adaptive"),
    ],
    ids=lambda given: (
        given
        if isinstance(given, str)
        else "-".join(
            [f"{n}{getattr(given, n)}" for n in ("data", "tensor", "pipeline") if getattr(given, n) > 1]
            + ["shard"] * given.shard
        )
    ),
)
def test_a_run_over_ranks_is_the_run_of_one(layout: Layout, precision: str, tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path / "world", run, tmp_path / "state", layout, precision, {})
    alone = run(0, tmp_path / "alone", Layout(), precision, {})
    close = 2e-3 if precision in ("fp8", "adaptive") else 5e-4  # of a rank's rows fp8 takes other scales
    assert alone["dtypes"] == [str(DTYPES[precision])]
    for rank in told:
        assert rank["dtypes"] == alone["dtypes"], "the ranks compute in the precision, not in fp32"
        assert rank["losses"] == pytest.approx(alone["losses"], rel=close)
        assert rank["valid"] == pytest.approx(alone["valid"], rel=close)
        assert rank["scale"] == alone["scale"] and rank["skipped"] == alone["skipped"]
    if layout.data == 2 and not layout.shard:
        assert all(torch.equal(w, told[1]["weights"][name]) for name, w in told[0]["weights"].items())


@pytest.mark.parametrize("more", [{}, {"compress": True}], ids=["dense", "compressed"])
def test_a_cut_run_with_skipped_steps_ends_bit_equal(more: dict[str, Any], tmp_path: Path) -> None:
    """The error memory is kept in scaled gradients, so it changes with the scale."""
    more = more | {"first_scale": 2.0**22}
    layout = Layout(data=2)
    whole = worlds.run(2, tmp_path / "a", run, tmp_path / "whole", layout, "fp16", more)
    worlds.run(2, tmp_path / "b", run, tmp_path / "state", layout, "fp16", more | {"kill_at": 6})
    resumed = worlds.run(2, tmp_path / "c", run, tmp_path / "state", layout, "fp16", more)
    assert whole[0]["skipped"] >= 2
    for ours, theirs in zip(resumed, whole, strict=True):
        assert ours["losses"] == theirs["losses"] and ours["scale"] == theirs["scale"]
        assert all(torch.equal(tensor, theirs["weights"][name]) for name, tensor in ours["weights"].items())


def overflow_on_one(rank: int) -> dict[str, Any]:
    """Three steps; in the second one rank's gradients overflow."""
    model = tiny(2)
    world = Mesh(model, Layout(data=2), LENGTH, bucket_bytes=6_000)
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world, Numerics(model, Choice("fp16", "plain", "")))
    updated, scales = [], []
    for step in range(3):
        parts = [share(batch, rank, 2) for batch in batches(2, 6, seed=step)]

        def loss_sum(batch: TokenBatch, at: int = step) -> Tensor:
            summed = token_loss_sum(model, batch, "fp16")
            return summed * 2.0**40 if at == 1 and rank == 1 else summed

        updated.append(float(trainer.step(parts, loss_sum, lambda batch: batch.tokens, 1e-3).updated))
        scales.append(trainer.numerics.scale)
    return {"updated": updated, "scales": scales, "weights": dict(model.state_dict())}


def test_one_rank_overflows_and_the_scale_halves_on_all(tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path, overflow_on_one)
    for rank in told:
        assert rank["updated"] == [1, 0, 1]
        assert rank["scales"] == [65536.0, 32768.0, 32768.0]
        assert all(torch.equal(w, told[0]["weights"][name]) for name, w in rank["weights"].items())


def chosen(rank: int) -> dict[str, Any]:
    ours, theirs = Choice("fp16", "sdpa", "x"), Choice("fp32", "plain", "y" * 99, {"q": ["fp32"]})
    return told_by_first(asdict(theirs if rank else ours))


def test_what_the_first_rank_chose_is_chosen_by_all(tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path, chosen)
    assert told == [asdict(Choice("fp16", "sdpa", "x"))] * 2


@pytest.mark.parametrize(
    ("precision", "layout", "named"),
    [
        ("fp8", Layout(tensor=2), "parallel.tensor"),
        ("adaptive", Layout(tensor=2), "parallel.tensor"),
        ("adaptive", Layout(pipeline=2, sizes=(1, 1)), "parallel.pipeline"),
        ("adaptive", Layout(data=2, shard=True), "parallel.shard"),
    ],
)
def test_what_ranks_cannot_do_alike_is_refused_by_name(precision: Any, layout: Layout, named: str) -> None:
    with pytest.raises(DaymillError, match=f"precision {precision} is not for runs with {named}"):
        check_precision_of(layout, precision)
    check_precision_of(layout, "fp16")
    check_precision_of(Layout(data=2), precision)


def remembered(rank: int, method: Any) -> dict[str, Any]:
    """What a compressed step leaves for later, in gradients without their scale, before and after the scale changes."""
    model = tiny(2)
    world = Mesh(model, Layout(data=2), LENGTH, Compress(method, saved=0.8).exchange)
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world, Numerics(model, Choice("fp16", "plain", "")))
    found = []
    for factor in (1.0, 2.0**40):  # the second step overflows
        parts = [share(batch, rank, 2) for batch in batches(2, 6)]

        def loss_sum(batch: TokenBatch, by: float = factor) -> Tensor:
            return token_loss_sum(model, batch, "fp16") * by

        trainer.step(parts, loss_sum, lambda batch: batch.tokens, 1e-3)
        assert world.reducer is not None and isinstance(world.reducer.exchange, Compressed)
        late = world.reducer.exchange.late.memory
        found.append({name: tensor / trainer.numerics.scale for name, tensor in late.items()})
    return {"before": found[0], "after": found[1], "scale": trainer.numerics.scale}


@pytest.mark.parametrize("method", ["top-k", "power-sgd"])
def test_what_is_sent_later_follows_the_scale(method: str, tmp_path: Path) -> None:
    for rank in worlds.run(2, tmp_path, remembered, method):
        assert rank["scale"] == 32768.0 and any(tensor.any() for tensor in rank["before"].values())
        assert all(torch.equal(tensor, rank["after"][name]) for name, tensor in rank["before"].items())
