"""The numbers of a torch classifier as the graph writer wants them: numpy, by module name, nothing recomputed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compression.graphs import Linear, Norm, Weights
from compression.quantize import QuantEmbedding, QuantLinear, int8_weight
from training.config import ModelConfig
from training.model import Classifier, FeedForward, rotary_tables


def read_weights(model: Classifier) -> Weights:
    """Weights of a classifier: int8 with their trained scales and ranges where its modules are quantized."""
    backbone = model.backbone
    linears = {name: read_linear(module) for name, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    norms = {
        name: Norm(numpy(module.weight), numpy(module.bias) if isinstance(module, nn.LayerNorm) else None)
        for name, module in backbone.named_modules()
        if isinstance(module, nn.RMSNorm | nn.LayerNorm)
    }
    embed, quantized = backbone.embed, isinstance(backbone.embed, QuantEmbedding) and backbone.embed.quantizing
    return Weights(
        config=backbone.config,
        embed=numpy(int8_weight(embed)) if quantized else numpy(embed.weight),  # type: ignore[arg-type]
        embed_scale=numpy(embed.weight_scale) if quantized else None,  # type: ignore[arg-type]
        position=None if backbone.position is None else numpy(backbone.position.weight),
        rotary=read_rotary(backbone.config),
        linears=linears,
        norms=norms,
        head=read_linear(model.head),
        thetas={name: module.threshold for name, module in backbone.named_modules() if isinstance(module, FeedForward)},
    )


def read_linear(module: nn.Linear) -> Linear:
    """Weight transposed to [in, out], as ONNX multiplies."""
    bias = None if module.bias is None else numpy(module.bias)
    if not (isinstance(module, QuantLinear) and module.quantizing):
        return Linear(numpy(module.weight.T), bias)
    return Linear(
        numpy(int8_weight(module).T),
        bias,
        numpy(module.weight_scale),
        float(module.act_scale),
        int(module.act_zero),
    )


def read_rotary(config: ModelConfig) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The model's own tables [max_len, K/2]: computed again elsewhere, angles differ in their last bits."""
    if config.position != "rotary":
        return None
    cos, sin = rotary_tables(torch.arange(config.max_len)[None], config.head_dim, config.rope_theta, torch.float32)
    return numpy(cos[0, 0]), numpy(sin[0, 0])


def numpy(tensor: Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
