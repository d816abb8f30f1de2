"""Floating-point operations that training a token takes, counted from the model's shape.

Only products count, a multiply-add twice: every linear layer, attention over the whole row, and the output projection.
A backward pass takes twice a forward pass. Causal masks and documents of a packed row save nothing here, since the
products are computed whole (the convention of PaLM, arXiv:2204.02311, appendix B).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from training.config import ModelConfig
from training.model import Transformer

BACKWARD = 2  # products of a backward pass for each of the forward pass


@cache
def weights(config: ModelConfig) -> tuple[int, int]:
    """Entries of all linear layers in blocks, and channels of all blocks' queries.

    Read from a model without memory, so that whatever linear layers blocks come to have are counted.
    """
    with torch.device("meta"):
        blocks = Transformer(config).blocks
    linear = sum(module.weight.numel() for module in blocks.modules() if isinstance(module, nn.Linear))
    return linear, sum(shape.heads * config.head_dim for shape in config.layers)


def backbone_flops(config: ModelConfig, tokens: int) -> int:
    """FLOPs of a forward pass of the blocks for one token of a row of `tokens`."""
    linear, queries = weights(config)
    return 2 * linear + 2 * 2 * tokens * queries  # scores, and their sum over values


def pretraining_flops(config: ModelConfig, tokens: int, real: int, targets: int) -> int:
    """FLOPs of a forward and a backward pass of rows of `tokens` with so many real tokens, and targets among them."""
    output = 2 * config.width * config.vocab_size
    return (1 + BACKWARD) * (backbone_flops(config, tokens) * real + output * targets)


def classifying_flops(config: ModelConfig, tokens: int) -> int:
    """FLOPs of a forward and a backward pass for a row of `tokens`; the head's one product is not counted."""
    return (1 + BACKWARD) * backbone_flops(config, tokens) * tokens
