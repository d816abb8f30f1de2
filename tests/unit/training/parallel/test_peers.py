"""The ranks that a convergence benchmark simulates in one process learn what real ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.peers import Peers
from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from training.loader import share
from training.optim import make_adamw
from training.parallel.compress import Compress
from training.parallel.layout import Layout, Mesh
from training.ranks import token_loss_sum
from training.step import Trainer
from training.world import World

pytestmark = pytest.mark.slow
SMALL = 30_000


def train(rank: int, ranks: int, how: Compress, together: bool) -> dict[str, Any]:
    model = tiny(2, dtype=torch.float64)
    world: World = (
        Peers(model, ranks, how.exchange, SMALL)
        if together
        else Mesh(model, Layout(data=ranks), LENGTH, how.exchange, SMALL)
    )
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world)
    losses = []
    for step in range(6):
        parts = batches(2, 9, seed=step)
        if not together:
            parts = [share(batch, rank, ranks) for batch in parts]
        losses.append(
            trainer.step(
                parts, lambda batch: token_loss_sum(model, batch, "fp32"), lambda batch: batch.tokens, 1e-3
            ).loss
        )
    wire = world.wires[0] if isinstance(world, Peers) else world.reducer.exchange.wire  # type: ignore[attr-defined]
    return {"losses": losses, "sent": wire.traffic.sent, "weights": dict(model.state_dict())}


@pytest.mark.parametrize(
    "how",
    [Compress("top-k", dense_steps=2), Compress("power-sgd", saved=0.8, dense_steps=2)],
    ids=["top-k", "power-sgd"],
)
def test_peers_learn_as_ranks_do(how: Compress, tmp_path: Path) -> None:
    real = worlds.run(4, tmp_path, train, 4, how, False)[0]
    simulated = train(0, 4, how, together=True)
    dense = train(0, 4, Compress(), together=True)
    assert simulated["losses"] == pytest.approx(real["losses"], rel=1e-9)
    assert simulated["losses"][3:] != pytest.approx(dense["losses"][3:], rel=1e-6), "the control: compression tells"
    assert simulated["sent"] == real["sent"]
    for name, weight in simulated["weights"].items():
        assert torch.allclose(weight, real["weights"][name], atol=1e-9), name
