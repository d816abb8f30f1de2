"""The bundle stage: the rules of the model that the chosen graph came from, and parity proven or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from data.errors import DaymillError
from data.shards import RECORD_SCHEMA, ShardWriter
from serving.bundle import open_bundle
from serving.gate import parity_flips
from tasks.bundle import OUT, Bundle, main
from tasks.lineage import locked_hashes
from tasks.stage import Context
from tests.tiny_bundle import LABELS, TEXTS, TRUTH, tokenizer_json, write_graph

PARAMS = Bundle(name="mails", golden_rows=4, threads=1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose stages before bundle have run."""
    monkeypatch.chdir(tmp_path)
    art = tmp_path / "artifacts"
    card = {"labels": LABELS, "positive": "spam", "preprocess": {"max_len": 64, "max_chars": 1000}}
    verdict = {"max_diff": 1e-6, "relative_diff": 1e-3, "flips": 1, "isolation": 0.0, "passed": True, "reason": "ok"}
    write(art / "prune/checkpoint/config.json", card | {"threshold": 0.4, "quantization": None})
    write(art / "quantize/checkpoint/config.json", card | {"threshold": 0.6, "quantization": {"weight_max": 63}})
    (art / "quantize/checkpoint/tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    write(art / "quantize/report.json", {"compression": {"prunable_kept": 0.37}})
    write(art / "finetune/report.json", {"test": {"f1": 0.5, "tfidf_f1": 0.9, "majority_f1": 0.0}})
    write(art / "split/report.json", {"parts": {"test": {"rows": 60, "dates": ["2001-01-01", "2002-02-02"]}}})
    for name, shift in (("pruned.onnx", 0.1), ("int8.onnx", 0.2)):
        write_graph(art / "export" / name, shift)
    files = {
        "pruned.onnx": {"graph": "pruned-fused", "source": "pruned", "bytes": 1000},
        "int8.onnx": {"graph": "int8-fused", "source": "quantized", "bytes": 300},
    }
    engines = {
        "openvino-bf16": {"graph": "pruned-fused", "precision": "bf16", "rows": 60, "flip_share": 0.001, **verdict},
        "onnxruntime-int8": {"graph": "int8-fused", "precision": "int8", "rows": 60, "flip_share": 0.002, **verdict},
    }
    write(art / "export/report.json", {"files": files, "parity": {"engines": engines}})
    choose("openvino", "bf16", "pruned.onnx")
    with ShardWriter(art / "split/test") as shards:
        columns: dict[str, Any] = {name: [None] * 61 for name in RECORD_SCHEMA.names}
        columns |= {"id": [str(at) for at in range(61)], "text": [*TEXTS, "no label"], "label": [*TRUTH, None]}
        columns |= {"source": ["made up"] * 61, "extra": ["{}"] * 61}
        shards.write(pa.table(columns, schema=RECORD_SCHEMA))
    return tmp_path


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def choose(engine: str, precision: str, graph: str) -> None:
    choice = {"engine": engine, "precision": precision, "graph": graph, "speedup_b1": 4.0, "speedup_b32": 9.0}
    write(Path("artifacts/benchmark/benchmark.json"), {"choice": choice})


def bundle(project: Path) -> Any:
    return main(PARAMS, Context("bundle", project, project / "work", (OUT,)))


def test_the_choice_is_bundled_with_its_own_rules(project: Path) -> None:
    result = bundle(project)
    manifest = open_bundle(OUT).manifest
    assert (manifest.name, manifest.runtime.package, manifest.precision) == ("mails", "openvino", "bf16")
    assert manifest.threshold == 0.4 and not manifest.reduced_range
    assert parity_flips(manifest) == 0.001
    assert manifest.metrics["test"] | {"rows": 60, "f1": 1.0, "tfidf_f1": 0.9} == manifest.metrics["test"]
    assert manifest.metrics["speed"] == {"speedup_b1": 4.0, "speedup_b32": 9.0}
    assert manifest.lineage["data_date"] == "2002-02-02"
    assert (result.rows_in, result.metrics["version"]) == (60, manifest.version)
    assert result.key.startswith("openvino bf16, 0.0 MB, f1 1.000")
    card = (OUT / "card.md").read_text(encoding="utf-8")
    assert "TF-IDF + logistic regression | 0.900" in card and "prunable_kept | 0.37" in card and "2002-02-02" in card


def test_the_quantized_model_brings_its_threshold_and_range(project: Path) -> None:
    choose("onnxruntime", "int8", "int8.onnx")
    bundle(project)
    manifest = open_bundle(OUT).manifest
    assert manifest.threshold == 0.6 and manifest.reduced_range and manifest.precision == "int8"


def test_without_proven_parity_nothing_is_bundled(project: Path) -> None:
    choose("openvino", "fp32", "pruned.onnx")
    with pytest.raises(DaymillError, match=r"pruned\.onnx on openvino in fp32 was not measured"):
        bundle(project)
    choose("openvino", "bf16", "pruned.onnx")
    report = json.loads(Path("artifacts/export/report.json").read_text())
    report["parity"]["engines"]["openvino-bf16"] |= {"passed": False, "reason": "1 % flips"}
    write(Path("artifacts/export/report.json"), report)
    with pytest.raises(DaymillError, match="did not pass parity"):
        bundle(project)
    assert not OUT.exists()


def test_missing_inputs_are_named(project: Path) -> None:
    Path("artifacts/quantize/report.json").unlink()
    with pytest.raises(DaymillError, match=r"quantize/report\.json is missing"):
        bundle(project)
    choose("openvino", "bf16", "other.onnx")
    with pytest.raises(DaymillError, match=r"no 'other\.onnx'"):
        bundle(project)


def test_hashes_of_dvc_lock(tmp_path: Path) -> None:
    lock = tmp_path / "dvc.lock"
    assert locked_hashes(lock) == {}
    lock.write_text(
        "schema: '2.0'\nstages:\n  ingest:\n    cmd: x\n    deps:\n    - path: input\n      md5: aa.dir\n"
        "    - path: artifacts/code/ingest.json\n      md5: bb\n"
        "    outs:\n    - path: artifacts/ingest\n      md5: cc\n"
    )
    assert locked_hashes(lock) == {"artifacts/ingest": "cc", "input": "aa.dir"}
