"""The prune and quantize stages from files to files, as DVC runs them, and again after a kill."""

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
import pyarrow.parquet as pq
import pytest
import torch

from compression.quantize import load_quantized
from data.shards import RECORD_SCHEMA, ShardWriter
from data.tokens import parse_tokenizer, train_tokenizer
from training.checkpoint import Card, load_card, load_checkpoint, load_tensors, save_checkpoint
from training.classify import train_classifier
from training.config import ModelConfig
from training.decision import decide
from training.knobs import ClassifyConfig
from training.model import Classifier, Transformer
from training.predict import predict_logits
from training.rows import load_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PREPROCESS = {"max_len": 24, "max_chars": 200}
PARTS = {"train": 400, "valid": 120, "test": 240}
PARAMS = """
prune:
  target_share: 0.37
  steps: 2
  between: 4
  final: 8
  rows: 16
  train_rows: 300
  lr: 5.0e-4
  weight_decay: 0.0
  distill: 1.0
  temperature: 1.0
  score_rows: 64
  watch_rows: 64
  controls: true
  precision: fp32
  seed: 0
quantize:
  moving: 4
  frozen: 4
  rows: 16
  lr: 2.0e-4
  weight_decay: 0.0
  distill: 1.0
  temperature: 1.0
  percentile: 99.99
  calibration_rows: 64
  bits: auto
  precision: fp32
  seed: 0
"""
PIPELINE = """
stages:
  prune:
    cmd: exec python -m tasks.prune
    deps: [artifacts/split/train, artifacts/split/valid, artifacts/split/test, artifacts/finetune/checkpoint]
    outs: [artifacts/prune/checkpoint, artifacts/prune/teacher.safetensors, artifacts/prune/report.json]
  quantize:
    cmd: exec python -m tasks.quantize
    deps: [artifacts/prune/checkpoint, artifacts/prune/teacher.safetensors]
    outs: [artifacts/quantize/checkpoint, artifacts/quantize/report.json]
"""


def made_up(count: int, seed: int) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    labels = [str(label) for label in rng.choice(["ham", "spam"], count)]
    words = ["meeting", "report", "garden", "river", "window", "paper", "stone", "music", "letter", "train"]
    bait = {"ham": "agenda notes", "spam": "winner prize"}
    return [" ".join(rng.choice(words, 8)) + f" {bait[label]} {i}" for i, label in enumerate(labels)], labels


def write_split(folder: Path, count: int, seed: int) -> list[str]:
    body, labels = made_up(count, seed)
    columns: dict[str, Any] = {name: pa.nulls(count, RECORD_SCHEMA.field(name).type) for name in RECORD_SCHEMA.names}
    columns |= {"id": [f"{seed}-{i}" for i in range(count)], "text": body, "label": labels}
    columns |= {"source": ["made"] * count, "extra": ["{}"] * count}
    with ShardWriter(folder) as writer:
        writer.write(pa.table(columns, schema=RECORD_SCHEMA))
    return body


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the two stages read: splits, a trained classifier and its predictions."""
    root = tmp_path_factory.mktemp("project")
    (root / "params.yaml").write_text(PARAMS, encoding="utf-8")
    (root / "dvc.yaml").write_text(PIPELINE, encoding="utf-8")
    for package in ("tasks", "compression", "training", "data", "serving"):  # a stage hashes the code it runs
        (root / package).symlink_to(ROOT / package)
    split = root / "artifacts/split"
    texts = {part: write_split(split / part, count, seed) for seed, (part, count) in enumerate(PARTS.items())}
    tokenizer_json = train_tokenizer(texts["train"], 320)
    tokenizer = parse_tokenizer(tokenizer_json)
    rows = {part: load_rows(split / part, tokenizer, PREPROCESS, ["ham", "spam"]) for part in PARTS}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Classifier(Transformer(ModelConfig.from_depth(2, 320, max_len=24, dropout=0.1)), 2)
    train_classifier(
        model, rows["train"], ClassifyConfig(steps=60, rows=32, lr=2e-3, precision="fp32", attention="plain")
    )
    card = Card(model.backbone.config, "classify", ["ham", "spam"], "spam", 0.5, PREPROCESS)
    save_checkpoint(root / "artifacts/finetune/checkpoint", model, card, tokenizer_json)
    chosen = decide(predict_logits(model, rows["test"].tokens), card.labels, "spam", 0.5)
    torch.set_num_threads(threads)
    table = pa.table(
        {"id": rows["test"].ids, "predicted": [card.labels[i] for i in chosen], "part": ["test"] * len(chosen)}
    )
    pq.write_table(table, root / "artifacts/finetune/predictions.parquet")
    return root


def stage(project: Path, name: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", f"tasks.{name}"]
    return subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def finished(project: Path) -> dict[str, dict[str, Any]]:
    return {name: finish(stage(project, name)) for name in ("prune", "quantize")}


def report(project: Path, name: str) -> dict[str, Any]:
    return json.loads((project / f"artifacts/{name}/report.json").read_text(encoding="utf-8"))


def test_prune_writes_a_smaller_checkpoint_beside_its_controls(project: Path, finished: dict) -> None:
    found = report(project, "prune")
    card = load_card(project / "artifacts/prune/checkpoint")
    assert found["prunable_kept"] <= 0.37
    assert found["layers"] == [{"heads": s.heads, "ffn": s.ffn} for s in card.model.layers]
    assert len(found["steps"]) == 2
    assert set(found["controls"]) == {"ours", "random", "drop_layers"}
    for control in found["controls"].values():
        assert control["updates"] == 12 and control["kept"] <= 0.37
        assert control["f1_low"] <= control["f1"] <= control["f1_high"]
        assert control["gap"]["kl"] >= 0 and control["gap"]["mean_abs"] > 0
    assert found["test"]["f1"] > 0.95 and found["paired_low"] <= found["paired_diff"] <= found["paired_high"]
    assert finished["prune"]["key"].startswith("kept ")


def test_quantize_writes_an_int8_checkpoint_and_the_whole_way(project: Path, finished: dict) -> None:
    found = report(project, "quantize")
    _, card = load_quantized(project / "artifacts/quantize/checkpoint")
    pruned, _ = load_checkpoint(project / "artifacts/prune/checkpoint")
    assert card.model == pruned.backbone.config
    assert card.threshold == found["threshold"] and card.labels == ["ham", "spam"]
    compression = found["compression"]
    assert compression["f1_final"] == found["test"]["f1"] > compression["f1_unpruned_fp32"] - 0.05
    assert compression["f1_pruned"] == report(project, "prune")["test"]["f1"]
    assert found["test"]["rows"] == PARTS["test"]
    assert len(found["ranges"]) == 2 * 7 and all(low <= high for low, high in found["ranges"].values())
    size = {
        name: (project / f"artifacts/{name}/checkpoint/model.safetensors").stat().st_size
        for name in ("finetune", "quantize")
    }
    assert size["quantize"] < 0.3 * size["finetune"]


@pytest.mark.parametrize("name", ["prune", "quantize"])
def test_a_stage_killed_on_its_way_ends_as_an_uninterrupted_one(name: str, project: Path, finished: dict) -> None:
    checkpoint = project / f"artifacts/{name}/checkpoint"
    expected, card = load_tensors(checkpoint), load_card(checkpoint)
    sign = {"prune": "*/ours/steps.json", "quantize": "*/moving"}[name]
    process = stage(project, name)
    deadline = time.monotonic() + 120
    while not list((project / f"artifacts/.work/{name}").glob(sign)) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert list((project / f"artifacts/.work/{name}").glob(sign))

    finish(stage(project, name))

    again = load_tensors(checkpoint)
    assert load_card(checkpoint) == card
    assert again.keys() == expected.keys()
    assert all(torch.equal(again[key], tensor) for key, tensor in expected.items())
    assert not list((project / f"artifacts/.work/{name}").glob(sign))
