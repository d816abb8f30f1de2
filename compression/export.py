"""From checkpoints to ONNX files whose answers are proven: written, fusions counted, compared on real rows."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onnx
import torch

from compression.cpu import cpu_features, int8_objection
from compression.engines import EagerSession
from compression.fuse import check_fusions, declared_fusions
from compression.graphs import build_graph
from compression.parity import Bars, Parity, ParityError, Run, compare, predict
from compression.quantize import FULL_RANGE, fake_quantize_weights
from compression.sessions import Logits, open_session
from compression.weights import read_weights
from training.checkpoint import Card
from training.model import Classifier
from training.rows import Rows

Source = Literal["unpruned", "pruned", "quantized"]


@dataclass(frozen=True)
class Graph:
    """One ONNX file: the model it comes from, and how it is written."""

    name: str
    source: Source
    writer: Literal["torch", "plain", "fused"]

    @property
    def precision(self) -> str:
        return "int8" if self.source == "quantized" else "fp32"

    @property
    def file(self) -> str:
        return f"{self.name}.onnx"


@dataclass(frozen=True)
class Offer:
    """A graph on an engine in a precision."""

    graph: str
    engine: str
    precision: str
    sample: int = 1  # every how many rows it is proven on; all of them for what may be released

    @property
    def key(self) -> str:
        """ "onnxruntime-int8"; of the unpruned model it says which graph: "onnxruntime-fp32-unpruned"."""
        tail = f"-{self.graph}" if self.graph.startswith("unpruned") else ""
        return f"{self.engine}-{self.precision}{tail}"


GRAPHS = (
    Graph("unpruned", "unpruned", "torch"),  # what a user gets out of the box
    Graph("unpruned-fused", "unpruned", "fused"),
    Graph("pruned", "pruned", "plain"),
    Graph("pruned-fused", "pruned", "fused"),
    Graph("int8", "quantized", "plain"),
    Graph("int8-fused", "quantized", "fused"),
)
OFFERS = (
    Offer("unpruned", "onnxruntime", "fp32"),
    Offer("unpruned-fused", "onnxruntime", "fp32", sample=8),  # only shows what fusing gains
    Offer("pruned-fused", "onnxruntime", "fp32"),
    Offer("pruned", "openvino", "fp32"),
    Offer("pruned", "openvino", "bf16"),
    Offer("int8-fused", "onnxruntime", "int8"),
    Offer("int8", "openvino", "int8"),
    Offer("int8", "openvino", "int8+bf16"),
)
CONTROL = Graph("four-bit", "quantized", "fused")


@dataclass(frozen=True)
class Model:
    """A torch classifier in eval mode, and its card."""

    classifier: Classifier
    card: Card


def ignore(_: str) -> None:
    """Nobody watches the progress."""


def write_graphs(
    models: dict[Source, Model], folder: Path, on_step: Callable[[str], None] = ignore
) -> dict[str, dict[str, int]]:
    """Write every graph of GRAPHS to `folder`; returns the counted fusions of each fused one.

    Raises FusionError where a declared fusion is missing from what ONNX Runtime runs.
    """
    fusions = {}
    for graph in GRAPHS:
        if counted := write_graph(graph, models[graph.source].classifier, folder / graph.file):
            fusions[graph.name] = counted
        on_step(graph.file)
    return fusions


def write_graph(graph: Graph, model: Classifier, path: Path) -> dict[str, int]:
    """Write one graph and return its counted fusions; a plain one declares none."""
    if graph.writer == "torch":
        torch_export(model, path)
        return {}
    weights = read_weights(model)
    onnx.save(build_graph(weights, graph.writer), str(path))
    return {} if graph.writer == "plain" else check_fusions(path, declared_fusions(weights))


def torch_export(model: Classifier, path: Path) -> None:
    """torch.onnx.export with dynamic batch and sequence: the unfused graph that others are measured against."""
    ids = torch.ones(2, 9, dtype=torch.int64)  # sizes other than 0 and 1, which export would freeze
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # it warns of a torchvision that nobody needs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                (ids, torch.ones_like(ids)),
                str(path),
                input_names=["ids", "mask"],
                output_names=["logits"],
                dynamic_shapes=(shape, shape),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        quiet.setLevel(level)


def ask_models(
    models: dict[Source, Model], rows: Rows, on_step: Callable[[str], None] = ignore
) -> dict[Source, Logits]:
    """Logits [N, C] of each torch model on all rows: what its graphs must answer."""
    references: dict[Source, Logits] = {}
    for source, model in models.items():
        model.classifier.backbone.set_attention("sdpa")  # the same numbers to 1e-6, faster on long rows
        references[source] = predict(EagerSession(model.classifier).run, rows.tokens)
        on_step(f"torch {source}")
    return references


def prove(
    models: dict[Source, Model],
    references: dict[Source, Logits],
    folder: Path,
    rows: Rows,
    bars: Bars,
    threads: int,
    offers: Sequence[Offer] = OFFERS,
    on_step: Callable[[str], None] = ignore,
) -> dict[str, Parity]:
    """The verdict on every offer by key, on all rows, against the logits of the torch model that its graph came from.

    INT8 is not run where the CPU would saturate: its verdict says so.
    """
    graphs = {graph.name: graph for graph in GRAPHS}
    verdicts = {}
    for offer in offers:
        source = graphs[offer.graph].source
        model = models[source]
        objection = objection_to(model.card) if offer.precision.startswith("int8") else None
        if objection:
            verdicts[offer.key] = refusal(offer, objection)
            continue
        session = open_session(offer.engine, folder / graphs[offer.graph].file, offer.precision, threads)
        chosen = range(0, len(rows), offer.sample)
        verdicts[offer.key] = compare(
            session.run,
            references[source][chosen],
            rows.take(chosen),
            model.card,
            graph=offer.graph,
            precision=offer.precision,
            bars=bars,
        )
        on_step(offer.key)
    return verdicts


def prove_control(final: Model, reference: Logits, folder: Path, rows: Rows, bars: Bars, threads: int) -> Parity:
    """The negative control: the final model with 4-bit weights, exported the same way. It must be refused.

    `reference` are the final model's own logits.
    """
    path = folder / CONTROL.file
    write_graph(CONTROL, fake_quantize_weights(final.classifier, bits=4), path)  # type: ignore[arg-type]
    run: Run = open_session("onnxruntime", path, "int8", threads).run
    verdict = compare(run, reference, rows, final.card, graph=CONTROL.name, precision="int8", bars=bars, isolated=1)
    path.unlink()
    return verdict


def require(verdicts: dict[str, Parity], final: Card) -> None:
    """Raise ParityError where a graph cannot be trusted.

    All fp32 must hold, and INT8 on ONNX Runtime, the portable default, wherever the CPU can run it. Other engines
    and precisions that miss a bar are only not offered.
    """
    failed = {
        key: verdict
        for key, verdict in verdicts.items()
        if not verdict.passed
        and (verdict.precision == "fp32" or (key.startswith("onnxruntime-int8") and not objection_to(final)))
    }
    if failed:
        lines = "; ".join(f"{key}: {', '.join(verdict.reasons)}" for key, verdict in failed.items())
        raise ParityError(
            f"exported graphs do not answer as their models on {next(iter(failed.values())).rows} rows ({lines}). "
            "Nothing is released. Export again; if it stays, the graph writer does not fit this model"
        )


def objection_to(card: Card) -> str | None:
    weight_max = (card.quantization or {}).get("weight_max", FULL_RANGE)
    return int8_objection(cpu_features(), reduced_range=weight_max < FULL_RANGE)


def refusal(offer: Offer, reason: str) -> Parity:
    """A verdict on what was not run."""
    nothing = float("inf")
    return Parity(offer.graph, offer.precision, 0, nothing, nothing, nothing, 0, 0.0, 0.0, nothing, (reason,))


def report(
    verdicts: dict[str, Parity], control: Parity, fusions: dict[str, dict[str, int]], folder: Path
) -> dict[str, Any]:
    """What the stage leaves for others: parity by engine, files with their hashes, the control, the fusions."""
    fp32 = [verdict for verdict in verdicts.values() if verdict.precision == "fp32"]
    return {
        "parity": {
            "rows": max(verdict.rows for verdict in verdicts.values()),
            "fp32_max_diff": max(verdict.max_diff for verdict in fp32),
            "fp32_flips": sum(verdict.flips for verdict in fp32),
            "engines": {key: verdict.to_json() for key, verdict in verdicts.items()},
        },
        "files": {graph.file: describe(graph, folder / graph.file) for graph in GRAPHS},
        "four_bit": {"refused": not control.passed, **control.to_json()},
        "fusions": fusions,
    }


def describe(graph: Graph, path: Path) -> dict[str, Any]:
    return {
        "bytes": path.stat().st_size,
        "graph": graph.name,
        "precision": graph.precision,
        "source": graph.source,
        "sha256": file_hash(path),
    }


def file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
