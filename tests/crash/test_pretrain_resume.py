"""kill -9 in the pretrain stage, run again: the final weights are bit-equal to those of an uninterrupted run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from data.tokens import train_tokenizer, write_tokens
from training.state import load_state

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
PARAMS = """
pretrain:
  depth: 1
  tokens: 64000
  length: 32
  max_len: 32
  rows: 2
  accumulate: 2
  lr: 2e-3
  warmup: 0.1
  hold: 0.5
  floor: 0.05
  weight_decay: 0.1
  clip: 1.0
  dropout: 0.1
  smoothing: 0.0
  activation: swiglu
  head_dim: 32
  kv_heads: null
  dsrelu: {theta: 0.5, learned: false, ramp: 0.2, skip: none, skip_share: 0.6}
  precision: auto
  emulate: false
  fp8_scaling: tensor
  replay: null
  attention: auto
  save_every_s: 0.2
  save_share: 0
  compile: off
  telemetry: {every: 20, wandb: off}
  parallel:
    {data: 1, tensor: 1, pipeline: 1, schedule: auto, shard: false, restarts: 0, rebalance: 0,
     compress: {method: off, saved: 0.8, dense_steps: 100}}
  seed: 0
"""
PIPELINE = """
stages:
  pretrain:
    cmd: exec python -m tasks.pretrain
    deps: [artifacts/tokenize]
    params: [pretrain]
    outs: [artifacts/pretrain/checkpoint, artifacts/pretrain/curves, artifacts/pretrain/training.html]
"""


def project(folder: Path) -> Path:
    """A project with our code, tokens, and nothing else."""
    tokens = folder / "artifacts/tokenize"
    tokens.mkdir(parents=True)
    for room in ("tasks", "training", "data"):
        (folder / room).symlink_to(ROOT / room)
    (folder / "params.yaml").write_text(PARAMS)
    (folder / "dvc.yaml").write_text(PIPELINE)
    (tokens / "tokenizer.json").write_text(train_tokenizer(["a small corpus"] * 3, 260))
    rng = np.random.default_rng(0)
    for name, count in (("train", 300), ("valid", 20)):
        write_tokens(tokens, name, (rng.integers(2, 260, rng.integers(2, 60)) for _ in range(count)), 260)
    return folder


def start(folder: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "tasks.pretrain"], cwd=folder, env=env, stdout=log, stderr=log)


def finish(folder: Path) -> dict[str, torch.Tensor]:
    assert start(folder).wait(LIMIT_S) == 0, (folder / "log.txt").read_text()
    return load_file(folder / "artifacts/pretrain/checkpoint/model.safetensors")


def saved_step(folder: Path) -> int:
    """The step of the newest complete state, 0 where there is none."""
    found = list((folder / "artifacts/.work/pretrain").glob("*/pretrain.safetensors"))
    saved = load_state(found[0]) if found else None
    return 0 if saved is None else int(saved[1]["step"])


def kill_beyond(folder: Path, step: int) -> int:
    """Start the stage, wait for a state of more than `step` steps, then kill -9 a little later."""
    process = start(folder)
    deadline = time.monotonic() + LIMIT_S
    while saved_step(folder) <= step:
        assert process.poll() is None, (folder / "log.txt").read_text()
        assert time.monotonic() < deadline, "no state was saved"
        time.sleep(0.01)
    time.sleep(np.random.default_rng(step).uniform(0, 0.3))  # mid-step, mid-accumulation or mid-save
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before the kill; nothing was tested"
    return saved_step(folder)


def test_killed_twice_and_run_again_gives_the_same_bits(tmp_path: Path) -> None:
    whole = finish(project(tmp_path / "whole"))
    cut = project(tmp_path / "cut")
    first = kill_beyond(cut, 0)
    second = kill_beyond(cut, first)
    assert 0 < first < second < 500, "both kills were within the run"
    resumed = finish(cut)
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    loss = "artifacts/pretrain/curves/dvclive/plots/metrics/train/loss.tsv"
    assert (tmp_path / "whole" / loss).read_text() == (cut / loss).read_text(), "the curve has every step once"
