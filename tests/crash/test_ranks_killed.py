"""A rank of a pretraining run dies; torchrun starts all again, and the run ends as one that nothing happened to."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from data.errors import DaymillError
from data.tokens import read_tokens, write_tokens
from tests.processes import ranks_of
from training.config import LayerShape, ModelConfig
from training.knobs import PretrainConfig
from training.model import Transformer
from training.parallel.launch import launch
from training.parallel.layout import Layout
from training.parallel.worker import Job
from training.pretrain import pretrain
from training.state import load_state, part

pytestmark = pytest.mark.slow
CONFIG = PretrainConfig(
    tokens=40 * 8 * 32,
    length=32,
    rows=4,
    accumulate=2,
    evaluations=1,
    valid_tokens=0,
    save_every_s=0.2,
    save_share=0.0,
    precision="fp32",
    attention="plain",
)
SHAPE = ModelConfig(60, 64, (LayerShape(4, 96),) * 2, head_dim=16, max_len=32)


def documents(seed: int) -> list[np.ndarray]:
    """A token is mostly followed by its successor: something to learn."""
    rng = np.random.default_rng(seed)
    return [(np.cumsum(rng.random(length) < 0.9) % 60).astype(np.uint16) for length in rng.integers(2, 60, 100)]


def listening() -> set[str]:
    """Addresses at which processes that this one started are heard."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        for connection in child.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                found.add(connection.laddr.ip)
    return found


def make_job(folder: Path, layout: Layout) -> Path:
    (folder / "tokens").mkdir()
    for name, seed in (("train", 0), ("valid", 1)):
        write_tokens(folder / "tokens", name, documents(seed), 60)
    job = Job(str(folder / "tokens"), str(folder / "state"), SHAPE.to_json(), asdict(CONFIG), asdict(layout))
    path = folder / "job.json"
    job.save(path)
    return path


def test_a_killed_rank_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    path = make_job(tmp_path, Layout(data=2))
    killed: list[int] = []
    steps: list[int] = []
    heard_at: set[str] = set()

    def on_line(line: str) -> None:
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if "step" in told:
            steps.append(told["step"])
            if told["step"] == 3:
                heard_at.update(listening())
            if told["step"] == 12 and not killed and (tmp_path / "state").exists():
                killed.extend(ranks_of("training.parallel.worker", str(path))[-1:])
                os.kill(killed[0], signal.SIGKILL)

    launch(2, "training.parallel.worker", [str(path)], on_line)
    assert killed and max(steps) == 40
    assert heard_at == {"127.0.0.1"}, "torchrun and its ranks listen on loopback alone"
    torch.manual_seed(CONFIG.seed)
    alone = Transformer(SHAPE)
    config = replace(CONFIG, save_every_s=1e9)
    shards = [read_tokens(tmp_path / "tokens", name) for name in ("train", "valid")]
    pretrain(alone, *shards, config, state=tmp_path / "alone")
    saved = load_state(tmp_path / "state")
    assert saved is not None and saved[1]["step"] == 40
    for name, tensor in part(saved[0], "model").items():
        assert torch.allclose(tensor, alone.state_dict()[name], atol=2e-5), name


def test_ranks_that_cannot_run_say_why_and_end(tmp_path: Path) -> None:
    path = make_job(tmp_path, Layout(tensor=3))
    said: list[str] = []
    with pytest.raises(DaymillError, match=r"2 ranks of training\.parallel\.worker ended with"):
        launch(2, "training.parallel.worker", [str(path)], said.append, restarts=0)
    assert any("makes 3 ranks; 2 were started" in line for line in said)
    assert not ranks_of("training.parallel.worker", str(path))
