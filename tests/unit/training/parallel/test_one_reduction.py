"""Gradients are reduced once a step, however many micro-batches it has, and on their way before the step's end.

Three projects shipped a `no_sync` that did nothing: counted here are collectives as torch issues them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.fsdp import FSDPModule
from torch.utils._python_dispatch import TorchDispatchMode

from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from training.loader import share
from training.optim import make_adamw
from training.parallel.layout import Layout, Mesh
from training.ranks import token_loss_sum
from training.step import Trainer

pytestmark = pytest.mark.slow
STEPS, BLOCKS = 2, 2


class Spy(TorchDispatchMode):
    """Counts collectives by the name of torch's operator."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.counts[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def collectives(rank: int, layout: Layout, accumulate: int, at_once: bool = False) -> dict[str, Any]:
    """How often each collective was issued in some steps, by the name of its operator; and how many buckets had left
    when the last backward pass was over."""
    model = tiny(BLOCKS)
    world = Mesh(model, layout, LENGTH, bucket_bytes=6_000)
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world)
    reduce, left = world.reduce_gradients, [0]

    def spy() -> None:
        left.append(len(world.reducer.under_way) if world.reducer is not None else 0)
        reduce()

    world.reduce_gradients = spy  # type: ignore[method-assign]
    if at_once:  # the control: every backward pass reduces
        assert isinstance(model, FSDPModule)
        model.set_requires_gradient_sync = lambda _: None  # type: ignore[method-assign,assignment]
    with Spy() as told:
        for step in range(STEPS):
            parts = [share(batch, world.rank, world.ranks) for batch in batches(accumulate, 4, seed=step)]
            trainer.step(parts, lambda batch: token_loss_sum(model, batch, "fp32"), lambda batch: batch.tokens, 1e-3)
    return {
        "counts": dict(told.counts),
        "left": left,
        "buckets": len(world.reducer.buckets) if world.reducer is not None else 0,
    }


def counted(told: dict[str, Any], name: str) -> int:
    return sum(count for operator, count in told["counts"].items() if name in operator)


def test_sharded_modules_reduce_once_a_step(tmp_path: Path) -> None:
    """Each block and the rest of the model are a module; FSDP2 scatters the sum of each one's gradients."""
    layout = Layout(data=2, shard=True)
    for accumulate in (1, 3):
        for rank in worlds.run(2, tmp_path / str(accumulate), collectives, layout, accumulate):
            assert counted(rank, "reduce_scatter") == STEPS * (BLOCKS + 1), rank["counts"]
    for rank in worlds.run(2, tmp_path / "control", collectives, layout, 3, True):
        assert counted(rank, "reduce_scatter") == 3 * STEPS * (BLOCKS + 1)


def test_buckets_are_reduced_once_a_step_and_leave_early(tmp_path: Path) -> None:
    """A step's other all-reduces are of three numbers: weight, loss, and none for the norm, which replicas share."""
    once, thrice = (
        worlds.run(2, tmp_path / str(accumulate), collectives, Layout(data=2), accumulate)[0] for accumulate in (1, 3)
    )
    assert once["buckets"] > 3
    assert counted(once, "allreduce") == counted(thrice, "allreduce") == STEPS * (once["buckets"] + 2)
    for told in (once, thrice):
        assert all(left == told["buckets"] for left in told["left"][1:]), "all had left when the backward pass was over"
