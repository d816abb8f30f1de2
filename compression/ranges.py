"""Static activation ranges: what each quantized linear sees on real rows, as one uint8 scale and zero point."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from compression.distill import draw
from compression.fakequant import activation_range
from compression.importance import Batch
from compression.quantize import QuantLinear, quant_modules, quantize_on
from data.batching import budget_batches
from data.errors import DaymillError
from data.tokens import pad
from training.model import Classifier
from training.rows import Rows

SAMPLE = 1 << 20  # values a batch from which percentiles are taken


@torch.no_grad()
def calibrate(
    model: Classifier, batches: Iterable[Batch], percentile: float, momentum: float = 0.9
) -> dict[str, tuple[float, float]]:
    """Set act_scale and act_zero of every QuantLinear from full-precision passes; returns its (low, high) by name.

    `percentile` (50-100) of the values of real tokens, padding left out, is taken at both ends of each batch and
    averaged over batches with bias-corrected `momentum`: 100 keeps the extremes, less trades them for resolution.
    """
    if not 50 < percentile <= 100:
        raise DaymillError(f"percentile is {percentile}; expected above 50, at most 100")
    modules = {name: module for name, module in quant_modules(model) if isinstance(module, QuantLinear)}
    ends: dict[str, Tensor] = {name: torch.zeros(2, dtype=torch.float64) for name in modules}
    mask = torch.empty(0)
    seen = 0

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            ends[name].mul_(momentum).add_((1 - momentum) * percentiles(args[0][mask.bool()], percentile))

        return hook

    was_training = model.training
    model.eval()
    quantize_on(model, False)
    hooks = [module.register_forward_pre_hook(watch(name)) for name, module in modules.items()]
    try:
        for ids, mask in batches:
            model(ids, mask)
            seen += 1
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    if not seen:
        raise DaymillError("calibration got no rows; the train split is empty")
    ranges = {}
    for name, module in modules.items():
        low, high = (ends[name] / (1 - momentum**seen)).tolist()
        scale, zero = activation_range(low, high)
        module.act_scale.fill_(scale)
        module.act_zero.fill_(zero)
        ranges[name] = (low, high)
    quantize_on(model)
    return ranges


def percentiles(values: Tensor, percentile: float) -> Tensor:
    """The lower and upper `percentile` [2] of some values (of an even sample where there are many)."""
    flat = values.flatten().float()
    if percentile == 100:
        return torch.stack(flat.aminmax()).double()
    flat = flat[:: -(-flat.numel() // SAMPLE)]
    at = torch.tensor([1 - percentile / 100, percentile / 100])
    return torch.quantile(flat, at).double()


def calibration_batches(rows: Rows, count: int, seed: int, max_tokens: int = 4096) -> list[Batch]:
    """`count` rows by lot, in batches of similar length."""
    tokens = draw(rows, count, seed).tokens
    batches = []
    for members in budget_batches([len(row) for row in tokens], max_tokens):
        ids, mask = pad([tokens[i] for i in members])
        batches.append((torch.from_numpy(ids), torch.from_numpy(mask)))
    return batches
