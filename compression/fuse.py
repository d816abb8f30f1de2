"""Fusions that a fused graph declares, counted in the graph that ONNX Runtime really runs.

A fusion that went missing costs speed without a word (onnxruntime#19423, #23864): here it is an error with a name.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import onnx
from onnx import TensorProto

from compression.graphs import Weights
from compression.sessions import SLOWER
from data.errors import DaymillError

INTEGER_PRODUCTS = ("MatMulIntegerToFloat", "QLinearMatMul", "MatMulInteger")
OPERATORS = {
    "attention": ("MultiHeadAttention",),
    "rotary": ("RotaryEmbedding",),
    "norm": ("SimplifiedLayerNormalization", "LayerNormalization"),
    "activation": ("QuickGelu", "Gelu", "BiasGelu"),
    "integer_linear": ("MatMulIntegerToFloat",),
}


class FusionError(DaymillError):
    """A declared fusion is not in the graph."""


def declared_fusions(weights: Weights) -> dict[str, int]:
    """How often each kernel must occur in the fused graph of a model."""
    config, layers = weights.config, len(weights.config.layers)
    declared = {"attention": layers, "norm": len(weights.norms)}
    if config.activation in ("swiglu", "gelu"):  # the others are made of standard operators
        declared["activation"] = layers
    if config.position == "rotary":
        declared["rotary"] = 2 * layers
    if weights.quantized:
        declared["integer_linear"] = len(weights.linears)
    return declared


def check_fusions(path: Path, declared: dict[str, int]) -> dict[str, int]:
    """Counts of each declared fusion in the optimized graph. Raises FusionError naming every one that is missing.

    INT8 graphs are also refused where an integer product is not uint8 x int8: the other pairs run 10 to 100 times
    slower on CPUs without a word.
    """
    graph = optimized_graph(path)
    kinds = Counter(node.op_type for node in graph.node)
    found = {name: sum(kinds[kind] for kind in OPERATORS[name]) for name in declared}
    if missing := [f"{name} ({found[name]} of {count})" for name, count in declared.items() if found[name] < count]:
        raise FusionError(f"{path.name}: declared fusions are missing: {', '.join(missing)}")
    if "integer_linear" in declared and (slow := slow_products(graph)):
        raise FusionError(f"{path.name}: integer products that are not uint8 x int8: {', '.join(slow[:5])}")
    return found


def optimized_graph(path: Path) -> onnx.GraphProto:
    """The graph after ONNX Runtime's own rewriting, short of what depends on the machine's memory layout."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimized)
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        onnxruntime.InferenceSession(str(path), options, providers=providers, disabled_optimizers=SLOWER)
        return onnx.load(str(optimized)).graph


def slow_products(graph: onnx.GraphProto) -> list[str]:
    """Names of integer products whose weights are not int8 or whose activations are not uint8."""
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    zero_of = {
        node.output[0]: kinds.get(node.input[2], TensorProto.UNDEFINED)
        for node in graph.node
        if node.op_type == "QuantizeLinear" and len(node.input) > 2
    }
    return [
        node.name
        for node in graph.node
        if node.op_type in INTEGER_PRODUCTS
        and (kinds.get(node.input[1]) != TensorProto.INT8 or zero_of.get(node.input[0]) != TensorProto.UINT8)
    ]
