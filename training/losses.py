"""Losses as sums with their weights, so that every average is taken once, over the whole step.

Shape suffixes: N rows or tokens, C classes, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from data.batching import IGNORE

TINY = 1e-37  # keeps the logarithm of a vanished probability finite
STRIDE = 256  # places that are kept or left out together
CHUNK = 1024  # tokens whose logits exist at one time


class LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of `hidden @ weight.T`, chunk by chunk, with the gradients made on the way.

    The logits of all tokens (4,096 x 8,192 fp32 = 134 MB) and their gradient never exist at once, which also saves
    most of the memory traffic (the idea of arXiv:2410.10989). Accumulates in fp32.

    With `smoothing` s a target's probability is 1 - s, and s is spread evenly over all V words, it among them; ignored
    places count in neither term (pytorch#73205).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, needs_grad: bool, smoothing: float
    ) -> Tensor:
        """Scalar fp32 sum over tokens; the products run in the dtype of `hidden`."""
        weight = weight_VD.to(hidden_ND.dtype)
        total = torch.zeros((), dtype=torch.promote_types(torch.float32, hidden_ND.dtype))
        grad_hidden = torch.empty_like(hidden_ND) if needs_grad else None
        grad_weight = torch.zeros_like(weight_VD) if needs_grad else None
        for start in range(0, len(hidden_ND), CHUNK):
            h, target = hidden_ND[start : start + CHUNK], target_N[start : start + CHUNK, None]
            ignored = target == IGNORE
            hit = target.masked_fill(ignored, 0)
            if smoothing:
                log_p = torch.log_softmax(h @ weight.T, dim=-1, dtype=total.dtype)
                spread = smoothing * log_p.mean(1, keepdim=True)
                total -= ((1 - smoothing) * log_p.gather(1, hit) + spread).masked_fill_(ignored, 0).sum()
                p = log_p.exp_()
            else:
                p = torch.softmax(h @ weight.T, dim=-1, dtype=total.dtype)
                total -= p.gather(1, hit).clamp_min_(TINY).log_().masked_fill_(ignored, 0).sum()
            if grad_hidden is not None and grad_weight is not None:
                p.scatter_add_(1, hit, p.new_full((1, 1), smoothing - 1.0).expand_as(hit))
                if smoothing:
                    p -= smoothing / len(weight)
                p.index_fill_(0, ignored.squeeze(1).nonzero().squeeze(1), 0)
                slope = p.to(h.dtype)
                torch.mm(slope, weight, out=grad_hidden[start : start + CHUNK])
                grad_weight += slope.T @ h
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        (scale,) = grad_outputs
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale.to(grad_weight.dtype), None, None, None


def next_token_loss_sum(hidden: Tensor, weight_VD: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Summed cross-entropy of hidden [B, T, D] against targets [B, T], through the output embedding.

    Without any real target the sum is 0.
    """
    flat_hidden, flat_targets = real_places(hidden, targets)
    # Autocast is off inside: the function chooses its own dtypes.
    with torch.autocast(hidden.device.type, enabled=False):
        return LinearCrossEntropy.apply(flat_hidden, weight_VD, flat_targets, torch.is_grad_enabled(), smoothing)


def real_places(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states [N, D] and targets [N] of [B, T] places, most of those with target IGNORE left out.

    What is kept is a multiple of STRIDE, since blocks of ever new sizes would fragment the memory.
    """
    flat_hidden, flat_targets = hidden.flatten(0, 1), targets.flatten()
    ignored = flat_targets == IGNORE
    kept = min(len(ignored), -(-int((~ignored).sum()) // STRIDE) * STRIDE)
    if kept < len(ignored):
        where = torch.argsort(ignored.to(torch.uint8), stable=True)[:kept].sort().values
        flat_hidden, flat_targets = flat_hidden[where], flat_targets[where]
    return flat_hidden, flat_targets


def label_loss_sum(
    logits_NC: Tensor,
    labels_N: Tensor,
    smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    row_weights_N: Tensor | None = None,
) -> Tensor:
    """Summed label-smoothed cross-entropy; rows labelled IGNORE count in neither term (pytorch#73205).

    A row's loss counts `class_weights[its label]` times its entry of `row_weights_N`; what the sum is divided by is
    the caller's: the same weights, summed over the whole step.
    """
    real = labels_N != IGNORE
    logits, labels = logits_NC[real].float(), labels_N[real]
    log_p = F.log_softmax(logits, dim=-1)
    hit = -log_p.gather(1, labels[:, None]).squeeze(1)
    loss = (1 - smoothing) * hit - smoothing * log_p.mean(dim=-1)
    if class_weights is not None:
        loss = loss * class_weights[labels]
    if row_weights_N is not None:
        loss = loss * row_weights_N[real]
    return loss.sum()


def soft_loss_sum(
    logits_NC: Tensor, teacher_NC: Tensor, temperature: float, row_weights_N: Tensor | None = None
) -> Tensor:
    """Summed KL(teacher || student) at a temperature, times its square so that gradients keep their scale."""
    student = F.log_softmax(logits_NC.float() / temperature, dim=-1)
    target = F.log_softmax(teacher_NC.float() / temperature, dim=-1)
    if row_weights_N is None:
        return F.kl_div(student, target, reduction="sum", log_target=True) * temperature**2
    loss = F.kl_div(student, target, reduction="none", log_target=True).sum(-1)
    return (loss * row_weights_N).sum() * temperature**2
