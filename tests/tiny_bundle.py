"""A bundle small enough to make in a test: byte-level tokens, one embedding, a mean, no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from data.tokens import train_tokenizer
from serving.bundle import Choice, Rules, build_bundle
from serving.manifest import Bundle

LABELS = ("ham", "spam")
TEXTS = tuple(f"{'win money now' if at % 3 == 0 else 'see you at lunch'} number {at}" for at in range(60))
TRUTH = tuple("spam" if at % 3 == 0 else "ham" for at in range(60))
_tokenizer: list[str] = []


def tokenizer_json() -> str:
    if not _tokenizer:
        _tokenizer.append(train_tokenizer(TEXTS, vocab_size=300))
    return _tokenizer[0]


def write_graph(path: Path, shift: float = 0.0, seed: int = 0, classes: int = 2, batch: int | str = "batch") -> Path:
    """logits [B, C] = mean over real tokens of a table [V, C], plus `shift` on the last class.

    Tokens of "win" pull towards the last class, so that the texts above are told apart.
    """
    from data.tokens import encode, parse_tokenizer

    table = np.random.default_rng(seed).normal(scale=0.3, size=(300, classes)).astype(np.float32)
    spam = encode(parse_tokenizer(tokenizer_json()), ["win money now"], 64, 1000)[0]
    ham = encode(parse_tokenizer(tokenizer_json()), ["see you at lunch"], 64, 1000)[0]
    table[spam, -1] += 4.0
    table[ham, -1] -= 4.0
    bias = np.zeros(classes, dtype=np.float32)
    bias[-1] = shift
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["weight"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weight", "last"], ["weights"]),
        helper.make_node("Mul", ["rows", "weights"], ["real"]),
        helper.make_node("ReduceSum", ["real", "tokens"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["weights", "tokens"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["mean", "bias"], ["logits"]),
    ]
    constants = {"table": table, "bias": bias, "last": np.array([-1]), "tokens": np.array([1])}
    shape: list[Any] = [batch, "seq"]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("ids", "mask")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def make_bundle(
    folder: Path,
    shift: float = 0.0,
    seed: int = 0,
    engine: str = "onnxruntime",
    precision: str = "fp32",
    labels: tuple[str, ...] = LABELS,
    positive: str | None = "spam",
    metrics: dict[str, Any] | None = None,
    name: str = "tiny",
) -> Bundle:
    """Build a real bundle in `folder`; another `shift` gives another version with other scores."""
    graph = write_graph(folder.parent / f"{folder.name}.parts" / "graph.onnx", shift, seed, len(labels))
    tokenizer = graph.parent / "tokenizer.json"
    tokenizer.write_text(tokenizer_json(), encoding="utf-8")
    return build_bundle(
        folder,
        name,
        Choice(engine, precision, graph),
        Rules(labels, positive, 0.5, max_len=64, max_chars=1000),
        tokenizer,
        TEXTS,
        TRUTH,
        {"git_commit": "0" * 40},
        {"parity": {"flip_share": 0.0}} if metrics is None else metrics,
        threads=1,
    )
