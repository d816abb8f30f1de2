"""Floating-point operations that training a token takes, counted from the model's shape.

Only products count, a multiply-add twice: projections, attention over the whole row, the feed-forward network and the
tied output projection. A backward pass takes twice a forward pass. Causal masks and documents of a packed row save
nothing here, since the products are computed whole (the convention of PaLM, arXiv:2204.02311, appendix B).
"""

from __future__ import annotations

from training.config import ModelConfig

BACKWARD = 2  # products of a backward pass for each of the forward pass


def backbone_flops(config: ModelConfig, tokens: int) -> int:
    """FLOPs of a forward pass of the blocks for one token of a row of `tokens`."""
    matrices = 3 if config.activation == "swiglu" else 2
    total = 0
    for shape in config.layers:
        inner = shape.heads * config.head_dim
        total += 2 * 4 * config.width * inner  # q, k, v, o
        total += 2 * 2 * tokens * inner  # scores and their sum over values
        total += 2 * matrices * config.width * shape.ffn
    return total


def pretraining_flops(config: ModelConfig, tokens: int) -> int:
    """FLOPs of a forward and a backward pass for one token of a row of `tokens`, next-token loss included."""
    output = 2 * config.width * config.vocab_size
    return (1 + BACKWARD) * (backbone_flops(config, tokens) + output)


def classifying_flops(config: ModelConfig, tokens: int) -> int:
    """FLOPs of a forward and a backward pass for a row of `tokens`; the head's one product is not counted."""
    return (1 + BACKWARD) * backbone_flops(config, tokens) * tokens
