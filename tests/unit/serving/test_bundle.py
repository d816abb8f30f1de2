"""Bundles: complete, deterministic, and refused where a byte is not as built."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from data.errors import DaymillError
from serving.bundle import Choice, Rules, build_bundle, copy_graph, open_bundle
from serving.engine import Engine
from serving.goldens import load_goldens, verify_goldens
from serving.manifest import Bundle, BundleError, Runtime, seal
from tests.tiny_bundle import LABELS, TEXTS, TRUTH, make_bundle, tokenizer_json, write_graph


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("bundle") / "bundle")


@pytest.fixture
def copied(built: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built.folder, tmp_path / "copy"))


def edit_manifest(folder: Path, change: Callable[[dict], None], reseal: bool = True) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    body = {key: value for key, value in data.items() if key not in ("format", "version", "digest")}
    path.write_text(json.dumps(seal(body) if reseal else data))


def test_a_bundle_says_what_it_is(built: Bundle) -> None:
    manifest = open_bundle(built.folder).manifest
    assert set(manifest.files) == {"model.onnx", "tokenizer.json", "goldens.json", "card.md"}
    assert manifest.labels == LABELS and manifest.binary and manifest.opset[""] == 18 and manifest.ir_version == 10
    assert manifest.runtime.package == "onnxruntime" and manifest.runtime.accepts(manifest.runtime.built_with)
    assert manifest.metrics["test"]["f1"] == 1.0 and manifest.metrics["test"]["rows"] == len(TEXTS)


def test_the_version_is_the_content(built: Bundle, tmp_path: Path) -> None:
    again = make_bundle(tmp_path / "again")
    assert again.manifest.version == built.manifest.version and again.manifest.digest == built.manifest.digest
    other = make_bundle(tmp_path / "other", shift=0.5)
    assert other.manifest.version != built.manifest.version
    measured = make_bundle(tmp_path / "measured", metrics={"parity": {"flip_share": 0.001}})
    assert measured.manifest.version == built.manifest.version  # the same answers
    assert measured.manifest.digest != built.manifest.digest


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "goldens.json", "card.md"])
def test_a_changed_byte_is_refused_and_named(copied: Path, name: str) -> None:
    data = bytearray((copied / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / name).write_bytes(bytes(data))
    with pytest.raises(BundleError, match=name):
        open_bundle(copied)


def test_a_missing_file_is_named(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    with pytest.raises(BundleError, match=r"tokenizer\.json is missing"):
        open_bundle(copied)


def test_an_edited_manifest_is_refused(copied: Path) -> None:
    edit_manifest(copied, lambda data: data.update(threshold=0.1), reseal=False)
    with pytest.raises(BundleError, match="was edited"):
        open_bundle(copied)


def test_a_file_name_must_stay_in_the_folder(copied: Path) -> None:
    edit_manifest(copied, lambda data: data["files"].update({"../evil": data["files"]["card.md"]}))
    with pytest.raises(BundleError, match="leaves the bundle"):
        open_bundle(copied)


def test_an_unknown_format_and_no_bundle_at_all(copied: Path, tmp_path: Path) -> None:
    edit_manifest(copied, lambda data: data.update(format=9), reseal=False)
    with pytest.raises(BundleError, match="format 9"):
        open_bundle(copied)
    with pytest.raises(BundleError, match="no bundle at"):
        open_bundle(tmp_path / "nothing")
    (copied / "manifest.json").write_text("{")
    with pytest.raises(BundleError, match="not JSON"):
        open_bundle(copied)


def test_goldens_replay(built: Bundle) -> None:
    assert verify_goldens(Engine(built, threads=1)) <= 1e-5


def test_a_model_that_answers_otherwise_fails_its_goldens(copied: Path) -> None:
    """Hashes agree, answers do not: what a wrong kernel or a wrong engine would do."""
    write_graph(copied / "model.onnx", shift=0.01)
    edit_manifest(copied, rehash(copied, "model.onnx"))
    with pytest.raises(BundleError, match=r"off by 0\.01"):
        verify_goldens(Engine(open_bundle(copied), threads=1))


def test_another_tokenizer_fails_the_goldens(copied: Path) -> None:
    spec = json.loads((copied / "tokenizer.json").read_text())
    spec["model"]["merges"] = spec["model"]["merges"][:3]
    (copied / "tokenizer.json").write_text(json.dumps(spec))
    edit_manifest(copied, rehash(copied, "tokenizer.json"))
    with pytest.raises(BundleError, match="other tokens"):
        verify_goldens(Engine(open_bundle(copied), threads=1))


def test_goldens_without_entries_prove_nothing(copied: Path) -> None:
    (copied / "goldens.json").write_text('{"goldens": []}')
    with pytest.raises(BundleError, match="no golden"):
        load_goldens(copied)


def test_no_text_of_a_record_is_shipped(built: Bundle) -> None:
    engine = Engine(built, threads=1)
    rows = {tuple(ids.tolist()) for ids in engine.encode(TEXTS)}
    goldens = load_goldens(built.folder)
    assert not [golden for golden in goldens if tuple(golden["ids"]) in rows]
    assert len([golden for golden in goldens if "text" not in golden]) == 8
    everything = b"".join(path.read_bytes() for path in built.folder.iterdir() if path.name != "tokenizer.json")
    assert not [text for text in TEXTS if text.encode() in everything]


def test_a_graph_with_other_inputs_is_refused(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "graph.onnx")
    model = onnx.load(graph)
    model.graph.input[0].name = "input_ids"
    model.graph.node[0].input[1] = "input_ids"
    onnx.save(model, graph)
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    with pytest.raises(BundleError, match="expected ids, mask -> logits"):
        build(tmp_path, Choice("onnxruntime", "fp32", graph))


def test_bf16_needs_openvino(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no engine onnxruntime in bf16"):
        build(tmp_path, Choice("onnxruntime", "bf16", tmp_path / "graph.onnx"))


def test_a_label_that_the_model_lacks(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "graph.onnx")
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    with pytest.raises(DaymillError, match="does not know"):
        build(tmp_path, Choice("onnxruntime", "fp32", graph), labels=("ham", "eggs"))


def test_external_weights_travel_along(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "in" / "graph.onnx")
    onnx.save(onnx.load(graph), graph, save_as_external_data=True, location="graph.data", size_threshold=1000)
    (tmp_path / "in" / "tokenizer.json").write_text(tokenizer_json())
    bundle = build(tmp_path / "in", Choice("onnxruntime", "fp32", graph))
    assert "graph.data" in bundle.manifest.files
    assert np.isfinite(Engine(open_bundle(bundle.folder), threads=1).predict(["win money"]).score).all()


def test_external_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "graph.onnx")
    model = onnx.load(graph)
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "../../etc/passwd")
    model.graph.initializer[0].ClearField("raw_data")
    onnx.save(model, graph)
    (tmp_path / "out").mkdir()
    with pytest.raises(BundleError, match="external data"):
        copy_graph(graph, tmp_path / "out")


def test_the_range_of_a_runtime() -> None:
    runtime = Runtime(package="onnxruntime", built_with="1.32.0", minimum="1.32", below="2")
    assert runtime.accepts("1.32.0") and runtime.accepts("1.40.1") and runtime.accepts("1.33.0+cpu")
    assert not runtime.accepts("1.31.9") and not runtime.accepts("2.0.0")


def rehash(folder: Path, name: str) -> Callable[[dict], None]:
    from serving.manifest import file_entry

    return lambda data: data["files"].update({name: file_entry(folder / name).model_dump()})


def build(folder: Path, choice: Choice, labels: tuple[str, ...] = LABELS) -> Bundle:
    rules = Rules(labels, None, 0.5, max_len=64, max_chars=1000)
    tokenizer = folder / "tokenizer.json"
    return build_bundle(folder / "bundle", "tiny", choice, rules, tokenizer, TEXTS, TRUTH, {}, {}, threads=1)
