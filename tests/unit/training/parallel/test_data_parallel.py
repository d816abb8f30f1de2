"""Data parallelism: the gradients of one process, one reduction a step, replicas alike to the bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from training.loader import TokenBatch, share
from training.optim import make_adamw
from training.parallel.layout import Layout, Mesh
from training.parallel.reducer import AllReduce, Bucket, Sent
from training.ranks import token_loss_sum
from training.step import Trainer
from training.world import Alone

pytestmark = pytest.mark.slow
STEPS = 3
SMALL = 6_000  # bytes of a bucket: several of them


class Spy(AllReduce):
    """Counts how often gradients are sent."""

    begun = 0

    def begin(self, bucket: Bucket, flat: torch.Tensor) -> Sent:
        Spy.begun += 1
        return super().begin(bucket, flat)


def train(rank: int, ranks: int, dtype: torch.dtype, late: bool = False, poison: int = -1) -> dict[str, Any]:
    """A few steps; the gradients of the last one, all weights, and what the steps reported."""
    model = tiny(2, dtype=dtype)
    Spy.begun = 0
    world = Mesh(model, Layout(data=ranks), LENGTH, Spy, bucket_bytes=SMALL) if ranks > 1 else Alone()
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world)
    reports = []
    for step in range(STEPS):
        parts = [share(batch, rank, ranks) for batch in batches(2, 5, seed=step)]
        if late and rank == 1:
            parts = parts[:1] if step else []  # a rank may have less to do, or nothing

        def loss_sum(batch: TokenBatch, at: int = step) -> torch.Tensor:
            summed = token_loss_sum(model, batch)
            return summed * float("nan") if at == poison and rank == 1 else summed

        report = trainer.step(parts, loss_sum, lambda batch: batch.tokens, 1e-3)
        reports.append([report.loss_sum, report.weight, report.grad_norm, float(report.updated)])
    reducer = world.reducer if isinstance(world, Mesh) else None
    return {
        "gradients": {name: p.grad for name, p in model.named_parameters()},
        "weights": dict(model.state_dict()),
        "reports": reports,
        "begun": Spy.begun if reducer else 0,
        "buckets": len(reducer.buckets) if reducer else 0,
    }


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], relative: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        scale = float(b[name].abs().max()) or 1.0
        assert float((a[name] - b[name]).abs().max()) <= relative * scale, name


@pytest.mark.parametrize(("ranks", "dtype", "relative"), [(2, torch.float64, 1e-12), (3, torch.float32, 2e-5)])
def test_ranks_give_the_gradients_of_one_process(
    ranks: int, dtype: torch.dtype, relative: float, tmp_path: Path
) -> None:
    together = worlds.run(ranks, tmp_path, train, ranks, dtype)
    alone = train(0, 1, dtype)
    for mine in together:
        same(mine["gradients"], alone["gradients"], relative)
        for ours, theirs in zip(mine["reports"], alone["reports"], strict=True):
            assert ours == pytest.approx(theirs, rel=relative * 10)
        assert mine["begun"] == STEPS * mine["buckets"] and mine["buckets"] > 3, "each bucket once a step"
        for name, weight in mine["weights"].items():
            assert torch.equal(weight, together[0]["weights"][name]), f"{name}: replicas differ"


def test_a_rank_without_rows_and_a_poisoned_rank(tmp_path: Path) -> None:
    """A rank that has nothing to do waits for nobody; a NaN on one rank reaches no rank's weights."""
    idle = worlds.run(2, tmp_path / "idle", partial(train, late=True), 2, torch.float32)
    assert idle[0]["reports"] == idle[1]["reports"]
    assert all(torch.equal(weight, idle[1]["weights"][name]) for name, weight in idle[0]["weights"].items())
    ill = worlds.run(2, tmp_path / "ill", partial(train, poison=1), 2, torch.float32)
    for rank in ill:
        assert [report[3] for report in rank["reports"]] == [1, 0, 1]
        assert all(torch.isfinite(weight).all() for weight in rank["weights"].values())
