"""kill -9 in the finetune stage, run again: the model is bit-equal to that of an uninterrupted run, by objective.

That each part of the state counts is tested in tests/unit/training: test_classify.py and test_answers.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file

from data.shards import RECORD_SCHEMA, ShardWriter
from data.tokens import train_tokenizer
from training.checkpoint import Card, save_checkpoint
from training.config import ModelConfig
from training.model import Transformer
from training.state import load_state

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
PIPELINE = """
stages:
  finetune:
    cmd: exec python -m tasks.finetune
    deps: [artifacts/split, artifacts/pretrain/checkpoint]
    params: [finetune]
    outs:
      - artifacts/finetune/checkpoint
      - artifacts/finetune/curves
      - artifacts/finetune/report.json
      - artifacts/finetune/predictions.parquet
      - artifacts/finetune/training.html
"""
SMALL = {
    "max_len": 32, "epochs": 5, "rows": 8, "max_tokens": 128, "dropout": 0.1, "evaluations": 4, "patience": 0,
    "precision": "fp32", "save_share": 0.0, "answer": {"tokens": 8, "rows": 4, "save_every_s": 0.1},
}  # fmt: skip
WORDS = ["red", "green", "blue", "black"]


def project(folder: Path, objective: str) -> Path:
    """A project with our code, records with labels and dialogues, a random checkpoint, and nothing else."""
    for room in ("tasks", "training", "data"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / room).symlink_to(ROOT / room)
    shipped = YAML(typ="safe").load((ROOT / "params.yaml").read_text())["finetune"]
    with (folder / "params.yaml").open("w") as file:
        YAML().dump({"finetune": shipped | SMALL | {"objective": objective}}, file)
    (folder / "dvc.yaml").write_text(PIPELINE)
    rng = np.random.default_rng(0)
    for part, count in (("train", 160), ("valid", 24), ("test", 24)):
        chosen = [WORDS[i] for i in rng.integers(0, 4, count)]
        extras = [
            {"prompt": f"say {word}", "completion": " ".join([word] * (1 + i % 3))} for i, word in enumerate(chosen)
        ]
        columns: dict[str, Any] = {name: [None] * count for name in RECORD_SCHEMA.names}
        columns |= {
            "id": [f"{part}{i}" for i in range(count)],
            "text": [f"{e['prompt']}\n\n{e['completion']}" for e in extras],
            "label": ["warm" if word == "red" else "cold" for word in chosen],
            "source": ["made"] * count,
            "extra": [json.dumps(e) for e in extras],
        }
        with ShardWriter(folder / "artifacts/split" / part) as writer:
            writer.write(pa.table(columns, schema=RECORD_SCHEMA))
    torch.manual_seed(0)
    shape = ModelConfig.from_depth(1, 270, max_len=32)
    tokenizer = train_tokenizer([f"say {word}" for word in WORDS] * 3, 270)
    save_checkpoint(folder / "artifacts/pretrain/checkpoint", Transformer(shape), Card(shape, "lm"), tokenizer)
    return folder


def start(folder: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "tasks.finetune"], cwd=folder, env=env, stdout=log, stderr=log)


def finish(folder: Path) -> dict[str, torch.Tensor]:
    assert start(folder).wait(LIMIT_S) == 0, (folder / "log.txt").read_text()
    return load_file(folder / "artifacts/finetune/checkpoint/model.safetensors")


def saved(folder: Path) -> int:
    """The step of the newest complete state, 0 where there is none."""
    found = list((folder / "artifacts/.work/finetune").glob("*/*.safetensors"))
    state = load_state(found[0]) if found else None
    if state is None:
        return 0
    return int(state[1]["step"] if "step" in state[1] else state[1]["history"]["steps"])


def kill_on_the_way(folder: Path) -> None:
    """Start the stage, wait for a state, then kill -9 a little later."""
    process = start(folder)
    deadline = time.monotonic() + LIMIT_S
    while saved(folder) < 5:
        assert process.poll() is None, (folder / "log.txt").read_text()
        assert time.monotonic() < deadline, "no state was saved"
        time.sleep(0.01)
    time.sleep(0.15)  # mid-step, mid-accumulation or mid-save
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before the kill; nothing was tested"


@pytest.mark.parametrize("objective", ["classify", "dialogue"])
def test_killed_and_run_again_gives_the_same_bits(tmp_path: Path, objective: str) -> None:
    whole = finish(project(tmp_path / "whole", objective))
    cut = project(tmp_path / "cut", objective)
    kill_on_the_way(cut)
    assert saved(cut) >= 5
    resumed = finish(cut)
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
