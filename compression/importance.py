"""How much the model's answers lean on each attention head and FFN channel: first-order Taylor scores.

Put a gate of 1 on each unit (the input of `o` by head, the input of `down` by channel). Removing the unit changes a
row's loss, to first order, by d(loss)/d(gate) = sum over tokens of activation x gradient; the score is the mean of
its magnitude over rows (Michel et al., arXiv:1905.10650; Molchanov et al., arXiv:1906.10771).

The loss is not the cross-entropy of the labels: on a trained classifier its gradient vanishes on most rows, and the
ranking with it. It is the size of the centered logits, so that a unit counts by how far it moves them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.model import Classifier

Batch = tuple[Tensor, Tensor]  # ids [B, T], mask [B, T]


@dataclass(frozen=True)
class Scores:
    """Scores of one block's units: heads [H] and FFN channels [F]."""

    heads: Tensor
    ffn: Tensor


def taylor_scores(model: Classifier, batches: Iterable[Batch], dtype: torch.dtype = torch.float32) -> list[Scores]:
    """Scores of every block, mean over the rows of `batches`; `dtype` bf16 computes them under autocast."""
    frozen = copy.deepcopy(model).eval().requires_grad_(False)  # only activations need gradients
    head_dim = frozen.backbone.config.head_dim
    shapes = frozen.backbone.config.layers
    heads = [torch.zeros(shape.heads) for shape in shapes]
    ffn = [torch.zeros(shape.ffn) for shape in shapes]
    rows = 0
    for ids, mask in batches:
        with (
            unit_inputs(frozen) as inputs,
            torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32),
        ):
            logits = frozen(ids, mask).float()
        pull = (logits - logits.mean(-1, keepdim=True)).abs().sum()
        effects = [(x.detach() * grad).float().sum(1) for x, grad in zip(inputs, torch.autograd.grad(pull, inputs))]
        for layer, (at_o, at_down) in enumerate(zip(effects[::2], effects[1::2])):
            heads[layer] += at_o.unflatten(-1, (-1, head_dim)).sum(-1).abs().sum(0)
            ffn[layer] += at_down.abs().sum(0)
        rows += len(ids)
    return [Scores(h / max(rows, 1), f / max(rows, 1)) for h, f in zip(heads, ffn)]


@contextmanager
def unit_inputs(model: Classifier) -> Iterator[list[Tensor]]:
    """While open, a forward pass appends the inputs of `o` and `down`, block by block, as tensors with a graph."""
    seen: list[Tensor] = []

    def keep(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = args[0] if args[0].requires_grad else args[0].detach().requires_grad_()
        seen.append(x)
        return (x,)

    ends = (f"blocks.{layer}.{part}" for layer in range(len(model.backbone.blocks)) for part in ("attn.o", "mlp.down"))
    hooks = [model.backbone.get_submodule(end).register_forward_pre_hook(keep) for end in ends]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
