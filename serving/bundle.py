"""Everything that a server needs in one folder: model, tokenizer, rules, goldens, card, and a manifest over them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compression.cpu import cpu_features
from compression.sessions import PRECISIONS
from data.errors import DaymillError
from serving.card import model_card
from serving.engine import Engine
from serving.evaluate import measure
from serving.goldens import make_goldens, verify_goldens
from serving.manifest import (
    CARD,
    GOLDENS,
    MANIFEST,
    MODEL,
    TOKENIZER,
    TOLERANCE,
    Bundle,
    BundleError,
    Manifest,
    Runtime,
    file_entry,
    open_bundle,
    read_manifest,
    seal,
)

__all__ = ["Bundle", "BundleError", "Choice", "Rules", "build_bundle", "open_bundle", "read_manifest", "verify_goldens"]


@dataclass(frozen=True)
class Choice:
    """What the benchmark picked: the engine ("onnxruntime", "openvino") and a precision that it offers."""

    engine: str
    precision: str
    graph: Path


@dataclass(frozen=True)
class Rules:
    """How texts become tokens and logits become labels; from the checkpoint's card."""

    labels: Sequence[str]
    positive: str | None
    threshold: float
    max_len: int
    max_chars: int
    tail: float = 0.0  # share of both that comes from the end of a longer text
    reduced_range: bool = False  # weights of 7 bits: safe on CPUs without VNNI


def build_bundle(
    out: Path,
    name: str,
    choice: Choice,
    rules: Rules,
    tokenizer: Path,
    texts: Sequence[str],
    labels: Sequence[str],
    lineage: Mapping[str, Any],
    metrics: Mapping[str, Any],
    golden_rows: int = 8,
    threads: int | None = None,
) -> Bundle:
    """Write a bundle to the new folder `out`, measured on the test rows (`texts`, `labels`) by its own engine.

    Goldens are made from the texts without shipping any. Raises DaymillError when the graph, the tokenizer or the
    machine cannot give what the manifest would promise.
    """
    if choice.precision not in PRECISIONS.get(choice.engine, ()):
        offered = ", ".join(f"{engine} {'/'.join(known)}" for engine, known in PRECISIONS.items())
        raise BundleError(f"no engine {choice.engine} in {choice.precision}; expected one of {offered}")
    out.mkdir(parents=True)
    copy_graph(choice.graph, out)
    shutil.copyfile(tokenizer, out / TOKENIZER)
    for later in (GOLDENS, CARD):
        (out / later).touch()
    body = {
        "name": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **graph_facts(out / MODEL),
        "runtime": Runtime.of(choice.engine).model_dump(),
        "precision": choice.precision,
        "reduced_range": rules.reduced_range,
        "cpu_features": list(cpu_features()),
        "labels": list(rules.labels),
        "positive": rules.positive,
        "threshold": rules.threshold,
        "preprocess": {"max_len": rules.max_len, "max_chars": rules.max_chars, "tail": rules.tail},
        "tolerance": TOLERANCE[choice.precision],
        "lineage": dict(lineage),
        "metrics": dict(metrics),
    }
    engine = Engine(write_manifest(out, body), threads)
    if engine.runtime != choice.engine:
        raise BundleError(f"the benchmark chose {choice.engine}, but only {engine.runtime} can load the graph here")
    (out / GOLDENS).write_text(json.dumps(make_goldens(engine, texts, golden_rows), indent=0) + "\n", encoding="utf-8")

    measured = measure(engine, texts, labels)
    test = {
        "rows": len(texts),
        "metric": f"f1 of {rules.positive}" if engine.manifest.binary else "macro f1",
        "f1": round(measured.f1.value, 4),
        "f1_low": round(measured.f1.low, 4),
        "f1_high": round(measured.f1.high, 4),
        "majority_f1": round(measured.majority_f1, 4),
    }
    body["metrics"] = {**metrics, "test": {**metrics.get("test", {}), **test}}
    (out / CARD).write_text(model_card(write_manifest(out, body).manifest), encoding="utf-8")
    write_manifest(out, body)
    bundle = open_bundle(out)
    verify_goldens(Engine(bundle, threads))
    return bundle


def write_manifest(out: Path, body: dict[str, Any]) -> Bundle:
    """Seal `body` over the files that lie in `out` and write manifest.json, last of all."""
    files = {path.name: file_entry(path) for path in sorted(out.iterdir()) if path.name != MANIFEST}
    sealed = seal({**body, "files": {name: entry.model_dump() for name, entry in files.items()}})
    manifest = Manifest.model_validate(sealed)
    (out / MANIFEST).write_text(json.dumps(sealed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return Bundle(out, manifest)


def copy_graph(graph: Path, out: Path) -> None:
    """Copy an ONNX file as model.onnx, and the files of external weights that it names."""
    if not graph.is_file():
        raise DaymillError(f"no graph at {graph}: run the export and benchmark stages first")
    shutil.copyfile(graph, out / MODEL)
    for location in external_files(graph):
        if Path(location).name != location or location in (TOKENIZER, GOLDENS, CARD, MANIFEST, MODEL):
            raise BundleError(f"{graph}: external data in {location!r}; expected a file of its own beside the graph")
        shutil.copyfile(graph.parent / location, out / location)


def external_files(graph: Path) -> list[str]:
    """Names of the files that hold weights outside the graph's own file."""
    import onnx

    model = onnx.load(str(graph), load_external_data=False)
    return sorted({pair.value for tensor in model.graph.initializer for pair in tensor.external_data
                   if pair.key == "location"})  # fmt: skip


def graph_facts(graph: Path) -> dict[str, Any]:
    """Opsets and IR version of a graph. Raises BundleError when its inputs or outputs are not ours."""
    import onnx

    model = onnx.load(str(graph), load_external_data=False)
    inputs, outputs = ({value.name for value in values} for values in (model.graph.input, model.graph.output))
    inputs -= {tensor.name for tensor in model.graph.initializer}
    if inputs != {"ids", "mask"} or "logits" not in outputs:
        raise BundleError(f"{graph}: inputs {sorted(inputs)}, outputs {sorted(outputs)}; expected ids, mask -> logits")
    return {"opset": {entry.domain: entry.version for entry in model.opset_import}, "ir_version": model.ir_version}
