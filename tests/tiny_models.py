"""Classifiers small enough for a test, of both architectures, in full precision and quantized, with made-up rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from compression.cpu import cpu_features, int8_objection
from compression.quantize import FULL_RANGE, REDUCED_RANGE, freeze_ranges, prepare, quantize_on
from compression.ranges import calibrate
from training.checkpoint import Card
from training.config import LayerShape, ModelConfig
from training.model import Classifier, Transformer
from training.rows import Rows

torch.set_num_threads(1)  # models this small only lose by sharing their work

# Layers differ as pruning makes them differ.
DECODER = ModelConfig(vocab_size=90, width=64, layers=(LayerShape(2, 96), LayerShape(1, 64)), max_len=64)
ENCODER = replace(
    DECODER, norm="layer", norm_place="post", activation="gelu", position="learned", causal=False, bias=True
)
MIXED = replace(DECODER, norm="layer", activation="gelu", causal=False, bias=True)
# Two query heads share one of keys and values; as widths of pruned models, thetas differ from layer to layer.
SPARSE = replace(
    DECODER,
    activation="dsrelu",
    layers=(LayerShape(4, 96, 2, 0.3), LayerShape(2, 64, 1, 0.5)),
    head_dim=16,
    causal=False,
)
SQUARED = replace(SPARSE, activation="relu2", bias=True, causal=True)
# As the quantize stage chooses: eight bits saturate on a CPU without VNNI.
WEIGHT_MAX = REDUCED_RANGE if int8_objection(cpu_features()) else FULL_RANGE
ARCHITECTURES = {"decoder": DECODER, "encoder": ENCODER, "mixed": MIXED, "sparse": SPARSE, "squared": SQUARED}


def classifier(config: ModelConfig = DECODER, classes: int = 2) -> Classifier:
    """Random weights, large enough for logits that depend on every part."""
    torch.manual_seed(0)
    model = Classifier(Transformer(config), classes).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=1.0 if "head" in name else 0.15)
        else:
            parameter.data.add_(0.1 * torch.randn(parameter.shape))
    return model


def quantized(config: ModelConfig = DECODER) -> Classifier:
    model = prepare(classifier(config), WEIGHT_MAX)
    ids, mask = batch(16, 24)
    calibrate(model, [(torch.from_numpy(ids), torch.from_numpy(mask))], percentile=100)
    freeze_ranges(model)
    quantize_on(model)
    return model.eval()


def card(config: ModelConfig = DECODER, quantization: bool = False) -> Card:
    return Card(
        config,
        "classify",
        ["ham", "spam"],
        "spam",
        0.5,
        {"max_len": config.max_len, "max_chars": 1000},
        {"weight_max": WEIGHT_MAX} if quantization else None,
    )


def batch(rows: int, tokens: int, seed: int = 0, ragged: bool = True) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and mask [rows, tokens]; ragged rows end early and are padded."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 90, (rows, tokens))
    mask = np.ones_like(ids)
    if ragged:
        mask = (np.arange(tokens) < rng.integers(1, tokens + 1, (rows, 1))).astype(np.int64)
    return ids * mask, mask


def rows(count: int = 60, seed: int = 1) -> Rows:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(1, 90, rng.integers(1, 33)).astype(np.int32) for _ in range(count)]
    labels = rng.integers(0, 2, count)
    names = [f"r{at}" for at in range(count)]
    return Rows(names, tokens, labels, ["ham", "spam"], [None] * count, ["test"] * count)
