"""The tiny model and batches that worlds of every shape train, so that their numbers can be compared."""

from __future__ import annotations

import torch

from training.config import LayerShape, ModelConfig
from training.loader import TokenBatch
from training.model import Transformer

VOCAB, LENGTH = 64, 12


def tiny(
    layers: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    shape: LayerShape = LayerShape(4, 48),  # noqa: B008 (frozen)
    **more: object,
) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(VOCAB, 32, (shape,) * layers, head_dim=8, max_len=LENGTH, **more)  # type: ignore[arg-type]
    return Transformer(config).to(dtype)


def batches(count: int, rows: int, seed: int = 1) -> list[TokenBatch]:
    """Micro-batches of packed rows, with very unequal counts of real targets."""
    made = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        ids = torch.randint(0, VOCAB, (rows, LENGTH), generator=made)
        targets = torch.randint(0, VOCAB, (rows, LENGTH), generator=made)
        docs = torch.randint(0, 3, (rows, LENGTH), generator=made).sort(1).values
        for row in range(rows):
            real = int(torch.randint(1, LENGTH + 1, (1,), generator=made)) if (number + row) % 3 else 1
            targets[row, real:] = -100
            docs[row, real:] = -1
        found.append(TokenBatch(ids, targets, docs))
    return found
