"""Compressed gradients: nothing is lost, bytes are saved sent and received, replicas stay alike, skipped steps undo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from training.loader import TokenBatch, share
from training.optim import make_adamw
from training.parallel.compress import Compress, Compressed
from training.parallel.layout import Layout, Mesh
from training.parallel.lowrank import LowRank
from training.parallel.reducer import Bucket
from training.parallel.wire import GroupWire, ring_bytes
from training.ranks import token_loss_sum
from training.step import Trainer

pytestmark = pytest.mark.slow
SMALL = 30_000  # bytes of a bucket: several of them
TOP_K, POWER = Compress("top-k", saved=0.8), Compress("power-sgd", saved=0.8)


def train(rank: int, ranks: int, how: Compress, steps: int, poison: int = -1) -> dict[str, Any]:
    """Sums of what there was to reduce on this rank and of what came back, what is late, and the bytes."""
    model = tiny(2)
    world = Mesh(model, Layout(data=ranks), LENGTH, how.exchange, SMALL)
    assert world.reducer is not None and len(world.reducer.buckets) > 2
    exchange = world.reducer.exchange
    assert isinstance(exchange, Compressed)
    trainer = Trainer(model, make_adamw(model, 0.1), 1e9, world)  # a gradient that is not clipped is what came back
    given = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    reduced = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    updated = []
    mine: dict[str, torch.Tensor] = {}
    reduce = world.reduce_gradients

    def spy() -> None:
        assert world.reducer is not None
        mine.update({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        reduce()

    world.reduce_gradients = spy  # type: ignore[method-assign]
    for step in range(steps):
        before = {key: tensor.clone() for key, tensor in exchange.tensors(world.named).items()}

        def loss_sum(batch: TokenBatch, at: int = step) -> torch.Tensor:
            summed = token_loss_sum(model, batch, "fp32")
            return summed * float("nan") if at == poison and rank == 1 else summed

        parts = [share(batch, rank, ranks) for batch in batches(2, 8, seed=step)]
        report = trainer.step(parts, loss_sum, lambda batch: batch.tokens, 1e-3)
        updated.append(float(report.updated))
        if not report.updated:  # a skipped step is as if it had not been
            after = exchange.tensors(world.named)
            assert after.keys() == before.keys()
            assert all(torch.equal(tensor, before[key]) for key, tensor in after.items())
            continue
        for name, p in model.named_parameters():
            assert p.grad is not None
            given[name] += mine[name]
            reduced[name] += p.grad
    return {
        "given": given,
        "reduced": reduced,
        "late": exchange.late.tensors(world.named),
        "weights": dict(model.state_dict()),
        "updated": updated,
        "sent": exchange.traffic.sent,
        "received": exchange.traffic.received,
        "dense": sum(ring_bytes(ranks, 4 * bucket.numel) for bucket in world.reducer.buckets),
    }


@pytest.mark.parametrize("how", [TOP_K, POWER], ids=["top-k", "power-sgd"])
def test_nothing_is_lost_and_a_poisoned_step_changes_nothing(how: Compress, tmp_path: Path) -> None:
    """What came back and what is late on all ranks are the gradients that there were."""
    told = worlds.run(2, tmp_path, train, 2, how, 5, 2)
    assert told[0]["updated"] == told[1]["updated"] == [1, 1, 0, 1, 1]
    lost = 0.0
    for name in told[0]["given"]:
        there_was = sum(rank["given"][name] for rank in told)
        late = sum(rank["late"][name] for rank in told)
        scale = float(there_was.abs().max())
        assert float((told[0]["reduced"][name] + late - there_was).abs().max()) < 1e-5 * scale, name
        lost += float(late.abs().sum())
        assert torch.equal(told[0]["weights"][name], told[1]["weights"][name]), f"{name}: replicas differ"
    assert lost > 0, "the control: without what is late the sums would differ"


@pytest.mark.parametrize("how", [TOP_K, POWER], ids=["top-k", "power-sgd"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_bytes_sent_and_received_are_a_fifth_of_a_dense_ring(ranks: int, how: Compress, tmp_path: Path) -> None:
    steps = 2
    for rank in worlds.run(ranks, tmp_path, train, ranks, how, steps):
        assert 0 < rank["sent"] <= 0.2 * steps * rank["dense"]
        assert 0 < rank["received"] <= 0.2 * steps * rank["dense"]


def test_a_dense_warm_up_sends_all_and_remembers_nothing(tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path, train, 2, Compress("top-k", dense_steps=9), 2)
    assert told[0]["late"] == {}
    assert told[0]["sent"] == 2 * told[0]["dense"]
    for name in told[0]["given"]:
        there_was = sum(rank["given"][name] for rank in told)
        assert torch.allclose(told[0]["reduced"][name], there_was, atol=1e-6)


class AsTorchWants:
    """A bucket of DDP."""

    def __init__(self, bucket: Bucket, flat: torch.Tensor) -> None:
        self.bucket, self.flat = bucket, flat

    def buffer(self) -> torch.Tensor:
        return self.flat

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def gradients(self) -> list[torch.Tensor]:
        return self.bucket.pieces(self.flat)


def beside_torch(rank: int, ranks: int) -> dict[str, Any]:
    """Five steps of one bucket by our exchange and by torch's hook, on the same gradients."""
    shapes = {"a": (40, 24), "vector": (24,), "b": (40, 24)}
    parameters = {name: torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for name, shape in shapes.items()}
    bucket = Bucket(0, tuple(parameters), tuple(parameters.values()))
    ours = Compress("power-sgd", saved=0.78).exchange(GroupWire(dist.group.WORLD))  # type: ignore[arg-type]
    assert isinstance(ours, Compressed)
    ours.prepare([bucket], last=None)  # type: ignore[arg-type]
    state = PowerSGDState(None, matrix_approximation_rank=3, start_powerSGD_iter=2, min_compression_rate=2)
    state.iter = 2
    for name in ("a", "b"):
        ours.low.start(name, parameters[name], 3)
    start = {name: ours.low.qs[name].clone() for name in ("a", "b")}
    state.p_memory_dict[0] = torch.empty(3 * 2 * 40, dtype=torch.float64)
    state.q_memory_dict[0] = torch.cat([start[name].T.reshape(-1) for name in ("a", "b")])  # as if of a step before
    drawn = torch.Generator().manual_seed(rank)
    mine, theirs = [], []
    for _ in range(5):
        flat = torch.randn(bucket.numel, generator=drawn, dtype=torch.float64)
        future = powerSGD_hook(state, AsTorchWants(bucket, flat.clone()))  # type: ignore[arg-type]
        theirs.append(future.wait().clone() * ranks)  # torch gives means
        sent = ours.begin(bucket, flat.clone())
        sent.proceed()
        mine.append(sent.wait())
        ours.settle(True)
    late = torch.cat([ours.late.memory.get(n, torch.zeros_like(p)).reshape(-1) for n, p in parameters.items()])
    return {"mine": torch.stack(mine), "theirs": torch.stack(theirs), "late": late, "error": state.error_dict[0]}


def test_low_rank_sums_are_those_of_torchs_hook(tmp_path: Path) -> None:
    told = worlds.run(2, tmp_path, beside_torch, 2)
    for rank in told:
        assert torch.allclose(rank["mine"], rank["theirs"], rtol=1e-9, atol=1e-9)
        assert float(rank["late"].abs().sum()) > 1
    assert torch.equal(told[0]["mine"], told[1]["mine"])
    low = slice(0, 40 * 24)  # torch also remembers its rounding of what it sums whole
    assert torch.allclose(told[0]["late"][low], told[0]["error"][low], atol=1e-9)


def test_zeros_have_a_basis_and_16_bit_gradients_too() -> None:
    wire = type("Alone", (), {"rank": 0, "ranks": 1, "add_up": lambda self, flat: Done()})()
    for dtype in (torch.float32, torch.bfloat16):
        parameter = torch.nn.Parameter(torch.zeros(32, 32, dtype=dtype))
        bucket = Bucket(0, ("a",), (parameter,))
        exchange = LowRank(wire, late=Compressed(wire, POWER).late)
        sent = exchange.begin(bucket, torch.zeros(32 * 32, dtype=dtype))
        sent.proceed()
        assert torch.equal(sent.wait(), torch.zeros(32 * 32, dtype=dtype))


class Done:
    def wait(self) -> None:
        pass
