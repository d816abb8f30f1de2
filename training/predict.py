"""Logits of many rows: sorted by length, batched by a token budget, without gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from data.batching import budget_batches
from data.tokens import Ids, pad
from training.device import device_of, moved
from training.precision import Precision, autocast


def predict_logits(
    model: nn.Module, rows: Sequence[Ids], max_tokens: int = 8192, precision: Precision = "fp32"
) -> NDArray[np.float32]:
    """float32 logits [N, C] in the order of `rows`; the model is in eval mode meanwhile."""
    if not rows:
        raise ValueError("no rows to predict")
    was_training = model.training
    model.eval()
    parts: list[NDArray[np.float32]] = []
    batches, device = budget_batches([len(row) for row in rows], max_tokens), device_of(model)
    with torch.inference_mode(), autocast(precision, device):
        for batch in batches:
            ids, mask = (moved(torch.from_numpy(array), device) for array in pad([rows[i] for i in batch]))
            parts.append(model(ids, mask).float().cpu().numpy())
    model.train(was_training)
    logits = np.concatenate(parts)
    ordered = np.empty_like(logits)
    ordered[np.concatenate(batches)] = logits
    return ordered
