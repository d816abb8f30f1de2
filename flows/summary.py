"""artifacts/summary.json: what a run ended with, put together from the stages' own metrics and reports."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.settings import BUNDLE, METRICS, STAGES, SUMMARY

ARTIFACTS = Path("artifacts")
EAGER = ("eager", "fp32", "unpruned")  # what all speed is compared with
UNPRUNED = ("unpruned", "fp32")
TOLD_SEQUENCE = 128  # tokens
TEST_KEYS = ("rows", "f1", "f1_low", "f1_high", "tfidf_f1", "majority_f1", "paired_diff", "paired_low", "paired_high")


def write(
    root: Path,
    until: str,
    states: Mapping[str, str],
    started: float,
    gate: Mapping[str, Any] | None,
    answers: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    """Build the summary of a run that began at `started` (Unix seconds), write it, return it.

    `states`: stage -> "ran" or "cached". A part whose stage was never reached is None.
    """
    run = {"until": until, "started": round(started, 3), "seconds": round(time.time() - started, 3)}
    found = build(root, states) | {"run": run, "gate": dict(gate) if gate else None, "answers": answers}
    path = root / SUMMARY
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.writing")
    beside.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(beside, path)
    return found


def build(root: Path, states: Mapping[str, str]) -> dict[str, Any]:
    """What the artifacts of the stages in `states` tell; those of later stages are of an older run."""

    def report(name: str, file: str = "report.json") -> dict[str, Any]:
        return read(root / ARTIFACTS / name / file) if name in states else {}

    finetune, prune, quantize, export = map(report, ("finetune", "prune", "quantize", "export"))
    benchmark = report("benchmark", "benchmark.json")
    choice = benchmark.get("choice", {})
    manifest = report("bundle", "manifest.json")
    return {
        "stages": {name: stage(root, name) | {"state": states[name]} for name in STAGES if name in states},
        "test": test(finetune),
        "compression": compression(prune, quantize, choice),
        "parity": parity(export, choice),
        "released": released(manifest, choice, export.get("files", {}), benchmark.get("rows", [])),
        "controls": controls(prune, export),
    }


def stage(root: Path, name: str) -> dict[str, Any]:
    metrics = read(root / METRICS / f"{name}.json")
    return {
        "seconds": metrics.get("seconds"),
        "in": metrics.get("rows_in"),
        "out": metrics.get("rows_out"),
        "key": metrics.get("key", ""),
        "peak_mb": metrics.get("peak_mb"),
    }


def test(finetune: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of the trained model, before compression, on the test rows, beside the two baselines."""
    measured = finetune.get("test")
    return {key: measured.get(key) for key in TEST_KEYS} if measured else None


def compression(
    prune: Mapping[str, Any], quantize: Mapping[str, Any], choice: Mapping[str, Any]
) -> dict[str, Any] | None:
    measured = quantize.get("compression", {})
    if not measured and not prune:
        return None
    return {
        "prunable_kept": measured.get("prunable_kept", prune.get("prunable_kept")),
        "file_share": choice.get("file_share"),
        "f1_unpruned_fp32": measured.get("f1_unpruned_fp32"),
        "f1_final": measured.get("f1_final"),
        "paired_low": measured.get("paired_low"),
        "paired_high": measured.get("paired_high"),
    }


def parity(export: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any] | None:
    measured = export.get("parity")
    if not measured:
        return None
    kept = {key: measured.get(key) for key in ("rows", "fp32_max_diff", "fp32_flips")}
    return kept | {"released_flip_share": choice.get("released_flip_share")}


def released(
    manifest: Mapping[str, Any], choice: Mapping[str, Any], files: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The bundle, and how it compares with the unpruned model in eager fp32: speed, file, milliseconds a call."""
    if not manifest or not choice:
        return None
    graph = files.get(choice["graph"], {})
    unpruned = [file["bytes"] for file in files.values() if (file["source"], file["precision"]) == UNPRUNED]
    return {
        "engine": manifest["runtime"]["package"],
        "precision": manifest["precision"],
        "bundle": BUNDLE.as_posix(),
        "version": manifest["version"],
        "speedup_b1": choice.get("speedup_b1"),
        "speedup_b32": choice.get("speedup_b32"),
        "reason": choice.get("reason", ""),
        "file_bytes": graph.get("bytes"),
        "unpruned_file_bytes": unpruned[0] if unpruned else None,
        "latency": latency(rows, (choice["engine"], choice["precision"], graph.get("graph", ""))),
    }


def latency(rows: Sequence[Mapping[str, Any]], served: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Median milliseconds of a call before and after, for each batch at the sequence that is told."""
    sequences = [row["seq"] for row in rows if row["seq"] <= TOLD_SEQUENCE]
    if not sequences:
        return []
    told = max(sequences)
    median = {
        (row["engine"], row["precision"], row["graph"], row["batch"]): row["median_ms"]
        for row in rows
        if row["seq"] == told
    }
    batches = sorted({batch for *who, batch in median if tuple(who) == served and (*EAGER, batch) in median})
    return [
        {"batch": batch, "seq": told, "before_ms": median[(*EAGER, batch)], "after_ms": median[(*served, batch)]}
        for batch in batches
    ]


def controls(prune: Mapping[str, Any], export: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same budget spent worse, and a graph that the parity check has to refuse."""
    found = {name: entry.get("f1") for name, entry in prune.get("controls", {}).items()}
    four_bit = export.get("four_bit")
    if not found and not four_bit:
        return None
    return found | {"four_bit": dict(four_bit) if four_bit else None}


def read(path: Path) -> dict[str, Any]:
    """A report, or nothing when its stage has not run."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
