"""The ONNX graph of a classifier, written node by node from its config and weights.

Exporters lose fusions without a word (onnxruntime#19423, #23864); a graph that is written holds what it declares.
Two styles: "plain" uses the standard operators alone (any runtime loads it), "fused" uses ONNX Runtime's own
attention, rotary, norm and activation kernels. INT8 weights make it a Q/DQ graph: uint8 activations in static ranges
times int8 weights, and nothing else quantized, so that every linear becomes one integer product.

Shape letters: B batch, T tokens, D width, H heads, K head dimension, C classes, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from training.config import LayerShape, ModelConfig

Style = Literal["plain", "fused"]
Array = NDArray[Any]

OPSET = 20  # has Gelu; Q/DQ per axis is older
IR_VERSION = 10
MASKED = -1e9  # as in training.model: finite, so that a row without any token gives numbers


@dataclass(frozen=True)
class Linear:
    """weight [in, out] fp32, or int8 with `scale` [out] and the uint8 range of the input (`act_scale`, `act_zero`)."""

    weight: Array
    bias: Array | None = None
    scale: Array | None = None
    act_scale: float = 0.0
    act_zero: int = 0


@dataclass(frozen=True)
class Norm:
    """gain [D], and a bias [D] where it is a LayerNorm."""

    gain: Array
    bias: Array | None = None


@dataclass(frozen=True)
class Weights:
    """All numbers of a classifier. `linears` and `norms` go by module name below the backbone ("blocks.0.attn.q")."""

    config: ModelConfig
    embed: Array  # [V, D] fp32, or int8 with embed_scale [V]
    embed_scale: Array | None
    position: Array | None  # [max_len, D] where positions are learned
    rotary: tuple[Array, Array] | None  # cos and sin [max_len, K/2]
    linears: Mapping[str, Linear]
    norms: Mapping[str, Norm]
    head: Linear
    thetas: Mapping[str, float]  # of D-SReLU, by the name of the feed-forward network

    @property
    def quantized(self) -> bool:
        return self.embed_scale is not None


def build_graph(weights: Weights, style: Style) -> onnx.ModelProto:
    """The model as ONNX: ids, mask int64 [batch, seq] -> logits fp32 [batch, C]."""
    return _Builder(weights, style).build()


class _Builder:
    def __init__(self, weights: Weights, style: Style) -> None:
        self.weights = weights
        self.config = weights.config
        self.fused = style == "fused"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.quantized: dict[tuple[str, float, int], str] = {}

    def build(self) -> onnx.ModelProto:
        x = self.embed()
        self.prepare_attention()
        for at, shape in enumerate(self.config.layers):
            x = self.block(x, f"blocks.{at}", shape)
        if self.config.norm_place == "pre":
            x = self.norm(x, "norm")
        self.pool_and_head(x)
        return self.model()

    # --- parts of the model ---

    def embed(self) -> str:
        w = self.weights
        if w.embed_scale is None:
            x = self.op("Gather", self.constant("embed.weight", w.embed), "ids")
        else:
            rows = self.op("Gather", self.constant("embed.weight", w.embed), "ids")
            rows = self.op("Cast", rows, to=TensorProto.FLOAT)
            scale = self.op("Gather", self.constant("embed.weight_scale", w.embed_scale[:, None]), "ids")
            x = self.op("Mul", rows, scale)
        self.length = self.op("Shape", "ids", start=1, end=2)
        if w.position is not None:
            x = self.op("Add", x, self.first_rows("position.weight", w.position))
        return self.norm(x, "embed_norm") if self.config.norm_place == "post" else x

    def prepare_attention(self) -> None:
        """What all blocks share: rotary tables, and which keys are visible."""
        if self.fused:
            self.key_mask = self.op("Cast", "mask", to=TensorProto.INT32)
            return
        if self.weights.rotary is not None:
            self.cos, self.sin = (
                self.first_rows(name, table) for name, table in zip(("rotary.cos", "rotary.sin"), self.weights.rotary)
            )
        visible = self.op("Unsqueeze", self.op("Cast", "mask", to=TensorProto.BOOL), self.ints(1, 2))  # [B, 1, 1, T]
        if self.config.causal:
            length = self.op("Squeeze", self.length, self.ints(0))
            zero, one = (self.constant(f"{i}", np.int64(i)) for i in (0, 1))
            place = self.op("Range", zero, length, one)
            past = self.op("LessOrEqual", place, self.op("Unsqueeze", place, self.ints(1)))  # [T, T]
            visible = self.op("And", visible, past)
        self.bias = self.op("Where", visible, self.scalar(0.0), self.scalar(MASKED))

    def block(self, x: str, name: str, shape: LayerShape) -> str:
        if self.config.norm_place == "pre":
            x = self.op("Add", x, self.attention(self.norm(x, f"{name}.norm1"), f"{name}.attn", shape))
            return self.op("Add", x, self.feed_forward(self.norm(x, f"{name}.norm2"), f"{name}.mlp"))
        x = self.norm(self.op("Add", x, self.attention(x, f"{name}.attn", shape)), f"{name}.norm1")
        return self.norm(self.op("Add", x, self.feed_forward(x, f"{name}.mlp")), f"{name}.norm2")

    def attention(self, x: str, name: str, shape: LayerShape) -> str:
        q, k, v = (self.linear(x, f"{name}.{part}") for part in "qkv")
        attend = self.fused_attention if self.fused else self.plain_attention
        return self.linear(attend(q, k, v, shape), f"{name}.o")

    def fused_attention(self, q: str, k: str, v: str, shape: LayerShape) -> str:
        if self.weights.rotary is not None:
            cos, sin = (
                self.constant(name, table) for name, table in zip(("rotary.cos", "rotary.sin"), self.weights.rotary)
            )
            q, k = (self.microsoft("RotaryEmbedding", x, self.ints(0), cos, sin) for x in (q, k))
        if shape.group > 1:
            flat = self.ints(0, 0, shape.heads * self.config.head_dim)
            k, v = (self.op("Reshape", self.for_queries(self.split(x, shape.keys), shape, 2), flat) for x in (k, v))
        causal = int(self.config.causal)
        return self.microsoft(
            "MultiHeadAttention", q, k, v, "", self.key_mask, num_heads=shape.heads, unidirectional=causal
        )

    def split(self, x: str, heads: int) -> str:
        """[B, T, H * K] as [B, T, H, K]."""
        return self.op("Reshape", x, self.ints(0, 0, heads, self.config.head_dim))

    def for_queries(self, x: str, shape: LayerShape, axis: int) -> str:
        """Heads of keys or values along `axis`, once for each query head that shares them."""
        if shape.group == 1:
            return x
        heads = self.ints(*(head // shape.group for head in range(shape.heads)))
        return self.op("Gather", x, heads, axis=axis)

    def plain_attention(self, q: str, k: str, v: str, shape: LayerShape) -> str:
        parts = ((q, shape.heads), (k, shape.keys), (v, shape.keys))
        q, k, v = (self.op("Transpose", self.split(x, heads), perm=[0, 2, 1, 3]) for x, heads in parts)
        if self.weights.rotary is not None:
            q, k = self.rotate(q), self.rotate(k)
        k, v = (self.for_queries(x, shape, 1) for x in (k, v))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.scalar(1 / math.sqrt(self.config.head_dim)))
        y = self.op("MatMul", self.op("Softmax", self.op("Add", scores, self.bias), axis=-1), v)
        return self.op(
            "Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]), self.ints(0, 0, shape.heads * self.config.head_dim)
        )

    def rotate(self, x: str) -> str:
        first, second = self.ops("Split", x, outputs=2, axis=-1, num_outputs=2)
        left = self.op("Sub", self.op("Mul", first, self.cos), self.op("Mul", second, self.sin))
        right = self.op("Add", self.op("Mul", second, self.cos), self.op("Mul", first, self.sin))
        return self.op("Concat", left, right, axis=-1)

    def feed_forward(self, x: str, name: str) -> str:
        if self.config.activation == "swiglu":
            gate, up = self.linear(x, f"{name}.gate"), self.linear(x, f"{name}.up")
            if self.fused:
                gate = self.microsoft("QuickGelu", gate, alpha=1.0)  # x * sigmoid(x), which is SiLU
            else:
                gate = self.op("Mul", gate, self.op("Sigmoid", gate))
            inner = self.op("Mul", gate, up)
        else:
            inner = self.activated(self.linear(x, f"{name}.up"), name)
        return self.linear(inner, f"{name}.down")

    def activated(self, x: str, name: str) -> str:
        if self.config.activation == "relu2":
            positive = self.op("Relu", x)
            return self.op("Mul", positive, positive)
        if self.config.activation == "dsrelu":
            idle = self.op("LessOrEqual", self.op("Abs", x), self.scalar(self.weights.thetas[name]))
            return self.op("Where", idle, self.scalar(0.0), x)
        return self.microsoft("Gelu", x) if self.fused else self.op("Gelu", x)

    def norm(self, x: str, name: str) -> str:
        norm, epsilon = self.weights.norms[name], self.config.norm_eps
        gain = self.constant(f"{name}.weight", norm.gain)
        if norm.bias is not None:
            return self.op("LayerNormalization", x, gain, self.constant(f"{name}.bias", norm.bias), epsilon=epsilon)
        if self.fused:
            return self.op("SimplifiedLayerNormalization", x, gain, axis=-1, epsilon=epsilon)
        square = self.op("ReduceMean", self.op("Mul", x, x), self.ints(-1), keepdims=1)
        root = self.op("Sqrt", self.op("Add", square, self.scalar(epsilon)))
        return self.op("Mul", self.op("Div", x, root), gain)

    def pool_and_head(self, x: str) -> None:
        """Mean over real tokens, then the classifier's head in full precision.

        An answer must not depend on neighbors or padding, not even in its last bits. ReduceSum adds in another order
        for one row than for many; a product with the mask does not, and padding adds exact zeros at its end. The mask
        is there twice because products with a single row take a kernel whose order depends on the length.
        """
        real = self.op("Unsqueeze", self.op("Cast", "mask", to=TensorProto.FLOAT), self.ints(1))  # [B, 1, T]
        twice = self.op("MatMul", self.op("Concat", real, real, axis=1), x)  # [B, 2, D]
        total = self.op("Slice", twice, self.ints(0), self.ints(1), self.ints(1))
        count = self.op("Max", self.op("ReduceSum", real, self.ints(2), keepdims=1), self.scalar(1.0))
        head = self.weights.head
        logits = self.op("MatMul", self.op("Div", total, count), self.constant("head.weight", head.weight))
        bias = np.zeros(head.weight.shape[1], np.float32) if head.bias is None else head.bias
        self.op("Add", self.op("Squeeze", logits, self.ints(1)), self.constant("head.bias", bias), out="logits")

    # --- linears ---

    def linear(self, x: str, name: str) -> str:
        linear = self.weights.linears[name]
        weight = self.constant(f"{name}.weight", linear.weight)
        if linear.scale is not None:
            x = self.quantize(x, linear)
            scale = self.constant(f"{name}.weight_scale", linear.scale)
            zero = self.constant(f"zeros.{len(linear.scale)}", np.zeros(len(linear.scale), np.int8))
            weight = self.op("DequantizeLinear", weight, scale, zero, axis=1)
        y = self.op("MatMul", x, weight)
        return y if linear.bias is None else self.op("Add", y, self.constant(f"{name}.bias", linear.bias))

    def quantize(self, x: str, linear: Linear) -> str:
        """x through uint8 and back; once for all linears that read it in the same range."""
        key = (x, linear.act_scale, linear.act_zero)
        if key not in self.quantized:
            scale, zero = (
                self.scalar(linear.act_scale),
                self.constant(f"uint8.{linear.act_zero}", np.uint8(linear.act_zero)),
            )
            self.quantized[key] = self.op("DequantizeLinear", self.op("QuantizeLinear", x, scale, zero), scale, zero)
        return self.quantized[key]

    # --- nodes and constants ---

    def op(self, kind: str, *inputs: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        name = f"{kind}.{len(self.nodes)}"
        out = out or name
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=name, domain=domain, **attributes))
        return out

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        name = f"{kind}.{len(self.nodes)}"
        outs = [f"{name}.{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), outs, name=name, **attributes))
        return outs

    def microsoft(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.op(kind, *inputs, domain="com.microsoft", **attributes)

    def constant(self, name: str, value: Any) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
        return name

    def scalar(self, value: float) -> str:
        return self.constant(f"float.{value!r}", np.float32(value))

    def ints(self, *values: int) -> str:
        return self.constant(f"ints.{','.join(map(str, values))}", np.array(values, dtype=np.int64))

    def first_rows(self, name: str, table: Array) -> str:
        """Rows 0..T-1 of a table by position."""
        return self.op("Slice", self.constant(name, table), self.ints(0), self.length, self.ints(0))

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in ("ids", "mask")]
        classes = self.weights.head.weight.shape[1]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])]
        graph = helper.make_graph(self.nodes, "daymill", inputs, outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET)] + [helper.make_opsetid("com.microsoft", 1)] * self.fused
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="daymill")
