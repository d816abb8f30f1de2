"""The INT8 model: linears and the embedding that compute, in torch, what the exported Q/DQ graph will.

Quantized: q, k, v, o, gate, up, down and the token embedding. Full precision: the head, norms, attention products
and softmax. Activation ranges are static, so that one caller's outlier cannot move another caller's answer
(onnxruntime#10111).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compression.fakequant import IntegerLinear, RoundedRows, weight_integers, weight_scales
from data.errors import DaymillError
from training.checkpoint import Card, load_card, load_tensors, save_checkpoint
from training.model import Classifier, Transformer

FULL_RANGE = 127
REDUCED_RANGE = 63  # 7 bits: without VNNI the CPU adds pairs of uint8 x int8 products in saturating 16 bits
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")


class QuantLinear(nn.Linear):
    """A linear with int8 weights (a scale per output channel) and a static uint8 range for its input.

    Buffers: weight_scale [out] fp32, act_scale () fp32, act_zero () int32. Until `quantizing` it computes in
    full precision; until `frozen` the weight scales follow the weights.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, weight_max: int = FULL_RANGE) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.weight_max = weight_max
        self.quantizing = False
        self.frozen = False
        self.weight_scale: Tensor
        self.act_scale: Tensor
        self.act_zero: Tensor
        self.register_buffer("weight_scale", torch.ones(out_features))
        self.register_buffer("act_scale", torch.ones(()))
        self.register_buffer("act_zero", torch.zeros((), dtype=torch.int32))

    @staticmethod
    def of(linear: nn.Linear, weight_max: int) -> QuantLinear:
        """The quantized twin of a linear; weights are shared, not copied."""
        twin = QuantLinear(linear.in_features, linear.out_features, linear.bias is not None, weight_max)
        twin.weight, twin.bias = linear.weight, linear.bias
        refresh_scale(twin)
        return twin

    def forward(self, x: Tensor) -> Tensor:
        if not self.quantizing:
            return super().forward(x)
        if not self.frozen:
            refresh_scale(self)
        dtype = product_dtype(x)
        y = IntegerLinear.apply(
            x, self.weight, self.weight_scale, self.act_scale, self.act_zero, self.weight_max, dtype
        )
        return (y if self.bias is None else y + self.bias).to(dtype)


class QuantEmbedding(nn.Embedding):
    """An embedding whose rows are int8 with a scale each: weight_scale [vocab] fp32."""

    def __init__(self, num_embeddings: int, embedding_dim: int, weight_max: int = FULL_RANGE) -> None:
        super().__init__(num_embeddings, embedding_dim)
        self.weight_max = weight_max
        self.quantizing = False
        self.frozen = False
        self.weight_scale: Tensor
        self.register_buffer("weight_scale", torch.ones(num_embeddings))

    @staticmethod
    def of(embedding: nn.Embedding, weight_max: int) -> QuantEmbedding:
        twin = QuantEmbedding(embedding.num_embeddings, embedding.embedding_dim, weight_max)
        twin.weight = embedding.weight
        refresh_scale(twin)
        return twin

    def forward(self, ids: Tensor) -> Tensor:
        rows = F.embedding(ids, self.weight)
        if not self.quantizing:
            return rows
        if self.frozen:
            scale = self.weight_scale[ids]
        else:  # of the rows in use only: the whole vocabulary at every step would cost more than the model
            scale = weight_scales(rows.flatten(0, -2), self.weight_max).view(ids.shape)
        return RoundedRows.apply(rows, scale, self.weight_max)


QuantModule = QuantLinear | QuantEmbedding


def prepare(model: Classifier, weight_max: int = FULL_RANGE) -> Classifier:
    """A copy of the model with quantizable modules replaced, in full precision until `quantize_on`.

    `weight_max` is FULL_RANGE, or REDUCED_RANGE for CPUs without VNNI.
    """
    if weight_max not in (FULL_RANGE, REDUCED_RANGE):
        raise DaymillError(f"weight_max is {weight_max}; expected {FULL_RANGE} or {REDUCED_RANGE}")
    twin = copy.deepcopy(model)
    backbone: Any = twin.backbone
    backbone.embed = QuantEmbedding.of(backbone.embed, weight_max)
    for block in backbone.blocks:
        for part in (block.attn, block.mlp):
            for name in LINEARS:
                if isinstance(linear := getattr(part, name, None), nn.Linear):
                    setattr(part, name, QuantLinear.of(linear, weight_max))
    return twin


def quant_modules(model: nn.Module) -> Iterator[tuple[str, QuantModule]]:
    """Names and quantized modules of a model, in its order."""
    for name, module in model.named_modules():
        if isinstance(module, QuantModule):
            yield name, module


def quantize_on(model: nn.Module, on: bool = True) -> None:
    """Switch all quantized modules to integer arithmetic, or back. Calibrate before switching on."""
    for _, module in quant_modules(model):
        module.quantizing = on


def freeze_ranges(model: nn.Module) -> None:
    """From here on weight scales stay as they are, whatever training does to the weights."""
    for _, module in quant_modules(model):
        refresh_scale(module)
        module.frozen = True


def refresh_scale(module: QuantModule) -> None:
    module.weight_scale.copy_(weight_scales(module.weight, module.weight_max))


def int8_weight(module: QuantModule) -> Tensor:
    """The int8 weights [out, in] (or [vocab, width]) that the graph will hold."""
    return weight_integers(module.weight, module.weight_scale, module.weight_max).to(torch.int8)


def product_dtype(x: Tensor) -> torch.dtype:
    """bf16 under autocast, else fp32: the integers are exact in both."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


def save_quantized(folder: Path, model: Classifier, card: Card, tokenizer_json: str) -> Card:
    """Write a quantized checkpoint (int8 weights, scales, zero points) and return its card."""
    modules = dict(quant_modules(model))
    if not modules or not all(module.frozen for module in modules.values()):
        raise DaymillError("only a prepared model with frozen ranges is saved as quantized; call freeze_ranges")
    weight_max = next(iter(modules.values())).weight_max
    card = replace(
        card,
        quantization={
            "weights": "int8, symmetric, one scale per output channel (embedding: per row)",
            "activations": "uint8, static range, integer zero point",
            "weight_max": weight_max,
            "modules": sorted(modules),
        },
    )
    packed = copy.deepcopy(model)
    for _, module in quant_modules(packed):
        module.weight = nn.Parameter(int8_weight(module), requires_grad=False)
    save_checkpoint(folder, packed, card, tokenizer_json)
    return card


def load_quantized(folder: Path) -> tuple[Classifier, Card]:
    """A quantized checkpoint in eval mode and its card; its logits are bit-equal to those of the saved model.

    Raises DaymillError for a checkpoint that is not quantized, or whose tensors do not fit its config.json.
    """
    card = load_card(folder)
    if card.quantization is None or card.task != "classify":
        raise DaymillError(f"{folder}: not a quantized classifier; run the quantize stage first")
    model = prepare(Classifier(Transformer(card.model), len(card.labels)), int(card.quantization["weight_max"]))
    modules = dict(quant_modules(model))
    tensors = load_tensors(folder)
    for name in modules:
        weight, scale = tensors.get(f"{name}.weight"), tensors.get(f"{name}.weight_scale")
        if weight is None or scale is None or weight.dtype != torch.int8:
            raise DaymillError(f"{folder}: {name} has no int8 weight with a scale; the checkpoint is damaged")
        tensors[f"{name}.weight"] = weight.float() * scale[:, None]
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise DaymillError(f"{folder}: weights do not fit config.json ({error})") from error
    for module in modules.values():
        module.quantizing = module.frozen = True
    return model.eval(), card


def fake_quantize_weights(model: nn.Module, bits: int = 4) -> nn.Module:
    """A copy with all linears and embeddings rounded to nearest at `bits` bits per channel, without training.

    At 4 bits this is the negative control of the parity check: on an easy task F1 stays while the logits move.
    """
    if not 2 <= bits <= 8:
        raise DaymillError(f"bits is {bits}; expected 2 to 8")
    rounded, top = copy.deepcopy(model), 2 ** (bits - 1) - 1
    with torch.no_grad():
        for module in rounded.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                scale = weight_scales(module.weight, top)
                module.weight.copy_(weight_integers(module.weight, scale, top) * scale[:, None])
    return rounded
