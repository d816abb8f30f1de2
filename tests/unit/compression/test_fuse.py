"""A declared fusion that is missing is an error with its name, and so is an integer product of the slow kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from compression.fuse import FusionError, check_fusions, declared_fusions
from compression.graphs import build_graph
from compression.weights import read_weights
from tests.tiny_models import ARCHITECTURES, classifier, quantized


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_declared_fusions_are_what_onnxruntime_runs(tmp_path: Path, architecture: str) -> None:
    for model in (classifier(ARCHITECTURES[architecture]), quantized(ARCHITECTURES[architecture])):
        weights = read_weights(model)
        onnx.save(build_graph(weights, "fused"), str(tmp_path / "m.onnx"))
        declared = declared_fusions(weights)
        assert check_fusions(tmp_path / "m.onnx", declared) == declared


def test_a_missing_fusion_fails_and_is_named(tmp_path: Path) -> None:
    weights = read_weights(classifier())
    onnx.save(build_graph(weights, "plain"), str(tmp_path / "m.onnx"))
    with pytest.raises(FusionError, match=r"attention \(0 of 2\).*rotary \(0 of 4\)"):
        check_fusions(tmp_path / "m.onnx", declared_fusions(weights))


def test_an_unfused_linear_is_named(tmp_path: Path) -> None:
    weights = read_weights(quantized())
    model = build_graph(weights, "fused")
    for node in model.graph.node:  # take one activation out of Q/DQ: its product falls back to fp32
        if node.op_type == "MatMul" and node.input[1].startswith("DequantizeLinear"):
            quantize = next(n for n in model.graph.node if n.output[0] == node.input[0]).input[0]
            node.input[0] = next(n for n in model.graph.node if n.output[0] == quantize).input[0]
            break
    onnx.save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(FusionError, match=r"integer_linear \(13 of 14\)"):
        check_fusions(tmp_path / "m.onnx", declared_fusions(weights))


def test_uint8_weights_are_refused(tmp_path: Path) -> None:
    weights = read_weights(quantized())
    model = build_graph(weights, "fused")
    for tensor in model.graph.initializer:  # the same numbers as uint8 around 128
        if tensor.data_type == TensorProto.INT8 and tensor.name != "embed.weight":
            shifted = numpy_helper.to_array(tensor).astype(np.int32) + 128
            tensor.CopyFrom(numpy_helper.from_array(shifted.astype(np.uint8), tensor.name))
    onnx.save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(FusionError, match="not uint8 x int8"):
        check_fusions(tmp_path / "m.onnx", declared_fusions(weights))


def test_int8_activations_are_not_fused_and_refused(tmp_path: Path) -> None:
    weights = read_weights(quantized())
    model = build_graph(weights, "fused")
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.UINT8:
            zero = numpy_helper.to_array(tensor).astype(np.int32) - 128
            tensor.CopyFrom(numpy_helper.from_array(zero.astype(np.int8), tensor.name))
    onnx.save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(FusionError, match="integer_linear"):
        check_fusions(tmp_path / "m.onnx", declared_fusions(weights))
