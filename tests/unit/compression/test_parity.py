"""The parity gate: passes what is right, and ends whatever answers differently, depends on neighbors or is 4-bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compression.engines import EagerSession
from compression.export import (
    GRAPHS,
    OFFERS,
    Model,
    Source,
    ask_models,
    prove,
    prove_control,
    report,
    require,
    write_graph,
    write_graphs,
)
from compression.parity import Bars, Parity, ParityError, compare, isolation, judge, predict
from compression.sessions import Ids, Logits, open_session
from tests.tiny_models import DECODER, batch, card, classifier, quantized, rows

# Random weights answer less steadily than trained ones: a flipped rounding step moves their logits further.
BARS = Bars(mean_diff=0.05, flip_share=0.05)
MODELS: dict[Source, Model] = {
    "unpruned": Model(classifier(), card()),
    "pruned": Model(classifier(), card()),
    "quantized": Model(quantized(), card(quantization=True)),
}
PORTABLE = [offer for offer in OFFERS if offer.engine == "onnxruntime" and offer.graph != "unpruned"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    for graph in GRAPHS:
        if graph.writer != "torch":
            write_graph(graph, MODELS[graph.source].classifier, folder / graph.file)
    return folder


@pytest.fixture(scope="module")
def references() -> dict[Source, Logits]:
    return ask_models(MODELS, rows())


def copy(exported: Path, folder: Path) -> Path:
    for path in exported.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_untouched_graphs_pass(exported: Path, references: dict[Source, Logits]) -> None:
    found = prove(MODELS, references, exported, rows(), BARS, 1, PORTABLE)
    require(found, MODELS["quantized"].card)
    assert [verdict.reasons for verdict in found.values()] == [()] * len(PORTABLE)
    assert found["onnxruntime-fp32"].max_diff <= 1e-4 and found["onnxruntime-fp32"].flips == 0
    assert found["onnxruntime-int8"].rows == 60


@pytest.mark.parametrize(
    ("graph", "weight"), [("int8-fused", "blocks.0.mlp.down.weight_scale"), ("pruned-fused", "blocks.1.attn.v.weight")]
)
def test_one_perturbed_weight_ends_the_gate(
    tmp_path: Path, exported: Path, references: dict[Source, Logits], graph: str, weight: str
) -> None:
    folder = copy(exported, tmp_path)
    model = onnx.load(str(folder / f"{graph}.onnx"))
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == weight)
    values = numpy_helper.to_array(tensor).copy()
    values.flat[3] += 40 * np.abs(values).max()
    tensor.CopyFrom(numpy_helper.from_array(values, weight))
    onnx.save(model, str(folder / f"{graph}.onnx"))
    found = prove(MODELS, references, folder, rows(), BARS, 1, PORTABLE)
    with pytest.raises(ParityError, match="do not answer as their models"):
        require(found, MODELS["quantized"].card)


def test_four_bit_weights_are_refused_by_their_logits(
    tmp_path: Path, references: dict[Source, Logits], exported: Path
) -> None:
    final = MODELS["quantized"]
    control = prove_control(final, references["quantized"], tmp_path, rows(), BARS, 1)
    ours = prove(MODELS, references, exported, rows(), BARS, 1, PORTABLE)["onnxruntime-int8"]
    assert any("mean logit difference" in reason for reason in control.reasons)
    assert control.relative_diff > 5 * ours.relative_diff
    assert not list(tmp_path.iterdir())


def test_flips_alone_do_not_decide() -> None:
    """A wrong scale keeps every decision of a two-label model with a threshold of one half."""
    model, some = classifier(), rows()
    right = EagerSession(model).run
    reference = predict(right, some.tokens)

    def scaled(ids: Ids, mask: Ids) -> Logits:
        return right(ids, mask) * np.float32(1.5)

    verdict = compare(scaled, reference, some, card(), graph="g", precision="int8", bars=Bars())
    assert verdict.flips == 0 and not verdict.passed


def test_not_a_number_is_refused() -> None:
    model, some = classifier(), rows(8)
    right = EagerSession(model).run
    reference = predict(right, some.tokens)

    def broken(ids: Ids, mask: Ids) -> Logits:
        return np.full_like(right(ids, mask), np.nan)

    for precision in ("fp32", "int8"):
        verdict = compare(broken, reference, some, card(), graph="g", precision=precision, bars=Bars())
        assert not verdict.passed and verdict.to_json()["max_diff"] is None


def test_dynamic_quantization_depends_on_neighbors_and_is_found(tmp_path: Path, exported: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(exported / "pruned.onnx"), str(tmp_path / "dynamic.onnx"))
    some = rows(12).tokens
    dynamic = open_session("onnxruntime", tmp_path / "dynamic.onnx", "int8", 1).run
    static = open_session("onnxruntime", exported / "int8-fused.onnx", "int8", 1).run
    assert isolation(dynamic, some, DECODER.max_len) > 1e-4
    assert isolation(static, some, DECODER.max_len) <= 1e-6


def measured(**changes: float | str) -> Parity:
    numbers = dict.fromkeys(("max_diff", "mean_diff", "relative_diff", "flip_share", "isolation"), 0.0)
    values = {"graph": "g", "precision": "int8", "rows": 10, "flips": 0, "f1": 1.0, **numbers}
    return Parity(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, True),
        ({"flip_share": 0.005}, True),
        ({"flip_share": 0.0051}, False),
        ({"relative_diff": 0.021}, False),
        ({"isolation": 2e-6}, False),
        ({"precision": "bf16", "isolation": 0.04}, True),
        ({"precision": "bf16", "isolation": 0.06}, False),
        ({"precision": "int8+bf16", "isolation": 0.04}, False),
        ({"precision": "fp32", "max_diff": 1e-4}, True),
        ({"precision": "fp32", "max_diff": 1.1e-4}, False),
        ({"precision": "fp32", "flips": 1, "flip_share": 0.001}, False),
        ({"precision": "fp32", "max_diff": float("nan")}, False),
    ],
)
def test_each_bar(changes: dict[str, float | str], passes: bool) -> None:
    assert judge(measured(**changes), Bars()).passed is passes


def test_int8_is_not_run_on_a_cpu_that_saturates(
    monkeypatch: pytest.MonkeyPatch, exported: Path, references: dict[Source, Logits]
) -> None:
    monkeypatch.setattr("compression.cpu.platform.machine", lambda: "x86_64")
    monkeypatch.setattr("compression.export.cpu_features", lambda: ("avx2",))
    full_range = replace(MODELS["quantized"].card, quantization={"weight_max": 127})
    models = MODELS | {"quantized": Model(MODELS["quantized"].classifier, full_range)}
    found = prove(models, references, exported, rows(), BARS, 1, PORTABLE)
    assert "saturates" in found["onnxruntime-int8"].reasons[0] and found["onnxruntime-fp32"].passed
    require(found, full_range)  # INT8 is not offered here, and fp32 still holds


def test_predictions_keep_the_order_of_rows() -> None:
    run: Callable[[Ids, Ids], Logits] = EagerSession(classifier()).run
    some = rows(9).tokens
    one_by_one = np.concatenate([run(row[None].astype(np.int64), np.ones((1, len(row)), np.int64)) for row in some])
    np.testing.assert_allclose(predict(run, some, max_tokens=40), one_by_one, atol=1e-5)


def test_the_report_names_files_hashes_and_reasons(
    exported: Path, references: dict[Source, Logits], tmp_path: Path
) -> None:
    folder = copy(exported, tmp_path)
    (folder / "unpruned.onnx").write_bytes((exported / "unpruned-fused.onnx").read_bytes())
    found = prove(MODELS, references, folder, rows(), BARS, 1, PORTABLE)
    control = judge(measured(relative_diff=0.5, precision="int8"), BARS)
    summary = report(found, control, {"int8-fused": {"attention": 2}}, folder)
    assert summary["parity"]["rows"] == 60 and summary["parity"]["fp32_flips"] == 0
    assert summary["four_bit"]["refused"] and summary["files"]["int8.onnx"]["source"] == "quantized"
    share = summary["files"]["int8-fused.onnx"]["bytes"] / summary["files"]["unpruned-fused.onnx"]["bytes"]
    assert share < 0.6


@pytest.mark.slow
def test_everything_is_written_and_proven_as_the_stage_does(tmp_path: Path) -> None:
    fusions = write_graphs(MODELS, tmp_path)
    assert set(fusions) == {"unpruned-fused", "pruned-fused", "int8-fused"}
    ids, mask = batch(3, 1)
    for shape in ((1, 1), (3, DECODER.max_len), (128, 4)):  # the exporter froze neither dimension
        ids, mask = batch(*shape)
        baseline = open_session("onnxruntime", tmp_path / "unpruned.onnx", "fp32", 1).run(ids, mask)
        np.testing.assert_allclose(baseline, EagerSession(classifier()).run(ids, mask), atol=2e-5)
    found = prove(MODELS, ask_models(MODELS, rows()), tmp_path, rows(), BARS, 2)
    require(found, MODELS["quantized"].card)
    assert set(found) == {offer.key for offer in OFFERS}
