"""Fine-tuning, distillation and quantization-aware training over ranks: the losses and weights of one process."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compression.quantize import prepare
from compression.ranges import calibrate
from data.errors import DaymillError
from tests.processes import ranks_of
from tests.unit.training.parallel import worlds
from training.classify import train_classifier
from training.config import LayerShape, ModelConfig
from training.knobs import ClassifyConfig, Distill
from training.model import Classifier, Transformer
from training.parallel.layout import Layout, Mesh
from training.parallel.replicas import Replicas, train_over_ranks
from training.rows import Rows

pytestmark = pytest.mark.slow
SHAPE = ModelConfig(50, 32, (LayerShape(4, 48),) * 2, head_dim=8, max_len=24)
CONFIG = ClassifyConfig(
    epochs=3,
    rows=7,
    max_tokens=60,
    lr=3e-3,
    evaluations=1,
    patience=0,
    precision="fp32",
    attention="plain",
    average=0.9,
)


def rows(count: int, seed: int, weighted: bool = False) -> Rows:
    """Texts of very unequal lengths whose label is the parity of a token; the last step has fewer rows than ranks."""
    made = np.random.default_rng(seed)
    tokens = [made.integers(2, 50, made.integers(1, 24)).astype(np.int32) for _ in range(count)]
    labels = np.array([int(row[0]) % 3 for row in tokens], dtype=np.int64)
    weights = made.random(count).astype(np.float32) if weighted else None
    return Rows([str(i) for i in range(count)], tokens, labels, ["a", "b", "c"], [None] * count, [""] * count, weights)


def classifier(dropout: float = 0.0, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    return Classifier(Transformer(replace(SHAPE, dropout=dropout)), 3)


def quantized() -> Classifier:
    model = prepare(classifier())
    calibrate(model, [(torch.randint(2, 50, (4, 9)), torch.ones(4, 9, dtype=torch.long))], 100)
    return model


KINDS: dict[str, dict[str, Any]] = {
    "labels": {},
    "balanced, weighted": {"weighted": True, "config": {"balance": True}},
    "teacher": {"distill": Distill(0.7, 2.0)},
    "hidden states": {"distill": Distill(0.7, 2.0, hidden=1.0)},
    "quantized": {"quantized": True, "distill": Distill(1.0, 1.0)},
}


def train(rank: int, ranks: int, kind: str) -> dict[str, Any]:
    more = KINDS[kind]
    model = quantized() if more.get("quantized") else classifier()
    history = train_classifier(
        model,
        rows(43, 0, more.get("weighted", False)),
        replace(CONFIG, **more.get("config", {})),
        valid=rows(15, 1),
        teacher=classifier(seed=7) if "distill" in more else None,
        distill=more.get("distill"),
        spread=Replicas if ranks > 1 else None,
    )
    return {
        "weights": dict(model.state_dict()),
        "losses": [entry[name] for entry in history.evaluations for name in ("train_loss", "valid_loss")],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_learn_as_one_process(kind: str, tmp_path: Path) -> None:
    told, alone = worlds.run(2, tmp_path, train, 2, kind), train(0, 1, kind)
    assert len(alone["losses"]) == 6 and alone["losses"][-2] < alone["losses"][0]
    for rank in told:
        assert rank["losses"] == pytest.approx(alone["losses"], rel=2e-3 if kind == "quantized" else 1e-4)
        for name, weight in rank["weights"].items():
            assert torch.equal(weight, told[0]["weights"][name]), f"{name}: ranks differ"
            # rounding to integers turns a last bit into a step now and then
            assert torch.allclose(weight, alone["weights"][name], atol=5e-3 if kind == "quantized" else 2e-4), name


def refused(_: int) -> None:
    with pytest.raises(DaymillError, match="other training has data ranks alone"):
        Mesh(classifier(), Layout(tensor=2), 0)


def test_a_classifier_is_not_split(tmp_path: Path) -> None:
    worlds.run(2, tmp_path, refused)


def test_a_killed_rank_changes_nothing(tmp_path: Path) -> None:
    """Dropout too: what a rank draws follows from the step, and the state is as of the last validation."""

    class Killer:
        told = 0

        def advance(self, n: int = 1, note: str = "") -> None:
            self.told += n
            if self.told == 10 * CONFIG.rows and self.kill:
                self.kill = False
                self.killed = ranks_of("training.parallel.replicas", str(self.folder))
                os.kill(self.killed[-1], signal.SIGKILL)

        def __init__(self, folder: Path, kill: bool) -> None:
            self.folder, self.kill, self.killed = folder, kill, [0]

    weights, told = [], []
    for name, kill in (("whole", False), ("killed", True)):
        model, bar = classifier(dropout=0.2), Killer(tmp_path / name, kill)
        evaluations: list[dict[str, float]] = []
        history = train_over_ranks(
            2,
            model,
            rows(43, 0),
            CONFIG,
            tmp_path / name,
            valid=rows(15, 1),
            on_eval=evaluations.append,
            progress=bar,
            restarts=1,
        )
        assert bar.killed == [0] if not kill else len(bar.killed) == 2
        assert history.steps == 21 and evaluations[-1]["step"] == 21
        weights.append(model.state_dict())
        told.append([entry["valid_loss"] for entry in history.evaluations])
    assert told[0] == told[1]
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name]), name
    again = classifier(dropout=0.2)  # a run that has ended is not run again
    train_over_ranks(2, again, rows(43, 0), CONFIG, tmp_path / "whole")
    assert torch.equal(again.head.weight, weights[0]["head.weight"])
