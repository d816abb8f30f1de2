"""`auto` measures the real ranks' link and computing, and all ranks choose alike."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from training.loader import share
from training.optim import make_adamw
from training.parallel.compress import METHODS, WATCHED, Compress, Compressed
from training.parallel.layout import Layout, Mesh
from training.parallel.reducer import buckets_of
from training.parallel.wire import GroupWire, Waiting, Wire, ring_bytes
from training.ranks import token_loss_sum
from training.step import Trainer

pytestmark = pytest.mark.slow
SECONDS_PER_BYTE = 1e-6  # of the slow wire: no noise of a busy machine comes near


@dataclass(frozen=True)
class Late:
    waiting: Waiting
    size: int

    def wait(self) -> None:
        self.waiting.wait()
        time.sleep(self.size * SECONDS_PER_BYTE)


class SlowWire(GroupWire):
    """Each message takes its time when it is waited for."""

    def add_up(self, flat: Tensor) -> Waiting:
        return Late(super().add_up(flat), flat.numel() * flat.element_size())

    def gather(self, mine: Tensor) -> tuple[Tensor, Waiting]:
        every, waiting = super().gather(mine)
        return every, Late(waiting, mine.numel() * mine.element_size())


def train(rank: int, slow: bool) -> dict[str, Any]:
    model = tiny(2)
    said: list[str] = []

    def exchange(wire: Wire) -> Compressed:
        assert isinstance(wire, GroupWire)
        return Compressed(SlowWire(wire.group) if slow else wire, Compress("auto", dense_steps=2), said.append)

    world = Mesh(model, Layout(data=2), LENGTH, exchange, bucket_bytes=20_000)
    assert world.reducer is not None and isinstance(world.reducer.exchange, Compressed)
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world)
    chosen, drawn = [], []
    for step in range(WATCHED + 2):
        torch.manual_seed(step)
        parts = [share(batch, rank, 2) for batch in batches(1, 4, seed=step)]
        trainer.step(parts, lambda batch: token_loss_sum(model, batch, "fp32"), lambda batch: batch.tokens, 1e-3)
        drawn.append(float(torch.rand(())))
        chosen.append(len(world.reducer.exchange.methods))
        if step == WATCHED - 1:
            sent = world.reducer.exchange.traffic.sent
    return {
        "methods": [METHODS.index(method) for method in world.reducer.exchange.methods],
        "chosen": chosen,
        "said": said,
        "drawn": drawn,
        "sent": sent,
        "after": world.reducer.exchange.traffic.sent - sent,
        "dense": sum(ring_bytes(2, 4 * bucket.numel) for bucket in world.reducer.buckets),
        "buckets": len(world.reducer.buckets),
    }


def test_a_slow_link_is_compressed(tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path, train, True)
    for rank in told:
        assert rank["methods"] == told[0]["methods"] and len(rank["methods"]) == rank["buckets"] > 2
        assert rank["chosen"] == [0] * WATCHED + [rank["buckets"]] * 2, "after as many dense steps as are watched"
        assert rank["sent"] == WATCHED * rank["dense"] and rank["after"] < 0.5 * 2 * rank["dense"]
        assert rank["said"][-1].startswith("a step: predicted ")
    dense, so = (float(word) for word in told[0]["said"][-1].split() if word[0].isdigit())
    assert so < dense


def test_all_ranks_choose_alike_and_measuring_leaves_no_trace(tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path, train, False)
    assert told[0]["methods"] == told[1]["methods"] and len(told[0]["methods"]) == told[0]["buckets"]
    for rank in told:
        assert rank["after"] <= 2 * rank["dense"], "messages that measured the link are not the run's"
        expected = []
        for step in range(WATCHED + 2):
            torch.manual_seed(step)
            expected.append(float(torch.rand(())))
        assert rank["drawn"] == expected, "and the run's random numbers are its own"


def test_a_small_model_has_several_buckets_and_a_large_one_large_ones() -> None:
    def buckets(count: int, numel: int) -> list[int]:
        named = [(f"p{at}", torch.nn.Parameter(torch.empty(numel, device="meta"))) for at in range(count)]
        return [4 * bucket.numel >> 20 for bucket in buckets_of(named)]

    assert buckets(12, 1 << 18) == [1] * 12  # 12 MiB
    assert buckets(64, 1 << 19) == [8] * 16  # 128 MiB
    assert set(buckets(1_000, 1 << 18)) == {25}  # 1,000 MiB
