"""Graphs that are written: the model's answers for any shape, integer weights in the file, trained scales unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper

from compression.engines import EagerSession
from compression.export import Graph, write_graph
from compression.graphs import Style, build_graph
from compression.importance import taylor_scores
from compression.prune import choose, shrink, step_shares
from compression.quantize import QuantLinear
from compression.sessions import open_session
from compression.weights import read_weights
from tests.tiny_models import ARCHITECTURES, DECODER, SPARSE, batch, classifier, quantized

ENGINES = [("plain", "onnxruntime"), ("fused", "onnxruntime"), ("plain", "openvino")]


def written(path: Path, model: torch.nn.Module, style: Style) -> Path:
    onnx.save(build_graph(read_weights(model), style), str(path))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("style", "engine"), ENGINES)
def test_fp32_answers_as_torch_for_any_batch_and_sequence(
    tmp_path: Path, architecture: str, style: Style, engine: str
) -> None:
    model = classifier(ARCHITECTURES[architecture])
    session = open_session(engine, written(tmp_path / "m.onnx", model, style), "fp32", 1)
    for shape in ((1, 1), (3, 1), (1, DECODER.max_len), (3, 17), (128, 5)):
        ids, mask = batch(*shape)
        np.testing.assert_allclose(session.run(ids, mask), EagerSession(model).run(ids, mask), atol=2e-5)


@pytest.mark.slow
def test_a_learned_theta_and_shared_keys_survive_torchs_own_exporter(tmp_path: Path) -> None:
    model = classifier(replace(SPARSE, learned_theta=True))
    assert all(block.mlp.threshold not in (0.3, 0.5) for block in model.backbone.blocks), "as if it had learned"
    write_graph(Graph("unpruned", "unpruned", "torch"), model, tmp_path / "torch.onnx")
    session = open_session("onnxruntime", tmp_path / "torch.onnx", "fp32", 1)
    for shape in ((1, 1), (3, 17), (128, 5)):
        ids, mask = batch(*shape)
        np.testing.assert_allclose(session.run(ids, mask), EagerSession(model).run(ids, mask), atol=2e-5)
    for style, engine in ENGINES:
        session = open_session(engine, written(tmp_path / "m.onnx", model, style), "fp32", 1)
        np.testing.assert_allclose(session.run(ids, mask), EagerSession(model).run(ids, mask), atol=2e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_int8_answers_as_the_trained_rounding(tmp_path: Path, architecture: str) -> None:
    model = quantized(ARCHITECTURES[architecture])
    session = open_session("onnxruntime", written(tmp_path / "m.onnx", model, "fused"), "int8", 1)
    ids, mask = batch(16, 20)
    wanted = EagerSession(model).run(ids, mask)
    full = EagerSession(classifier(ARCHITECTURES[architecture])).run(ids, mask)
    difference = np.abs(session.run(ids, mask) - wanted)
    assert np.median(difference) < 1e-5  # a sum in another order may flip a rounding step of a row now and then
    assert difference.mean() < 0.1 * np.abs(full - wanted).mean()


@pytest.mark.parametrize("style", ["plain", "fused"])
def test_a_row_without_any_real_token_gives_numbers(tmp_path: Path, style: Style) -> None:
    session = open_session("onnxruntime", written(tmp_path / "m.onnx", classifier(), style), "fp32", 1)
    ids, _ = batch(2, 6)
    assert np.isfinite(session.run(ids, np.zeros_like(ids))).all()


@pytest.mark.parametrize(("style", "engine"), ENGINES)
def test_int8_answers_do_not_depend_on_neighbors_or_padding(tmp_path: Path, style: Style, engine: str) -> None:
    session = open_session(engine, written(tmp_path / "m.onnx", quantized(), style), "int8", 2)
    for length in (1, 2, 7, 16, 31):
        row = batch(1, length, seed=length, ragged=False)[0]
        alone = session.run(row, np.ones_like(row))
        outlier = np.full_like(row, 89)
        beside = session.run(np.vstack([outlier, outlier, row]), np.ones((3, length), np.int64))[2:]
        padding = ((0, 0), (0, length))
        padded = session.run(np.pad(row, padding), np.pad(np.ones_like(row), padding))
        np.testing.assert_allclose(beside, alone, atol=1e-6, rtol=0)
        np.testing.assert_allclose(padded, alone, atol=1e-6, rtol=0)


def test_exported_scales_are_the_trained_ones_per_output_channel() -> None:
    model = quantized()
    graph = build_graph(read_weights(model), "fused").graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    checked = 0
    for name, module in model.backbone.named_modules():
        if isinstance(module, QuantLinear):
            scale, weight = constants[f"{name}.weight_scale"], constants[f"{name}.weight"]
            assert weight.dtype == np.int8 and weight.shape == (module.in_features, module.out_features)
            np.testing.assert_allclose(scale, module.weight_scale.numpy(), rtol=1e-7)
            np.testing.assert_allclose(weight * scale, module.weight.detach().numpy().T, atol=float(scale.max()) / 2)
            checked += 1
    axes = {node.attribute[0].i for node in graph.node if node.op_type == "DequantizeLinear" and node.attribute}
    assert checked == 14 and axes == {1}


def test_embedding_rows_are_int8_and_stored_once() -> None:
    graph = build_graph(read_weights(quantized()), "plain").graph
    tables = [tensor for tensor in graph.initializer if list(tensor.dims) == [90, 64]]
    assert [tensor.data_type for tensor in tables] == [TensorProto.INT8]


def test_plain_graphs_use_standard_operators_only() -> None:
    for config in ARCHITECTURES.values():
        model = build_graph(read_weights(quantized(config)), "plain")
        onnx.checker.check_model(model, full_check=True)
        assert {node.domain for node in model.graph.node} == {""}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_cut_of_a_pruning_in_steps_can_be_exported(tmp_path: Path, architecture: str) -> None:
    """Torch-Pruning#411: a model that still computes in torch may no longer export."""
    start = ARCHITECTURES[architecture]
    config = replace(start, layers=(replace(start.layers[0], heads=4, ffn=160),) * 2)
    model = classifier(config)
    ids, mask = batch(3, 9)
    for share in step_shares(0.5, 5):
        scores = taylor_scores(model, [(torch.from_numpy(ids), torch.from_numpy(mask))])
        model = shrink(model, choose(model.backbone.config, scores, share * config.prunable_parameters()))
        for style, engine in ENGINES:
            session = open_session(engine, written(tmp_path / "cut.onnx", model, style), "fp32", 1)
            np.testing.assert_allclose(session.run(ids, mask), EagerSession(model).run(ids, mask), atol=2e-5)
