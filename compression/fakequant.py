"""Quantized arithmetic that can be trained: what the INT8 graph computes, with straight-through gradients.

Weights are symmetric int8 per output channel, activations uint8 with an integer zero point, both rounded half to
even after a true division, as ONNX's QuantizeLinear does (torch's own fake-quantize multiplies by a reciprocal and
lands on the other side of a tie now and then). Products are taken of the *integers* and scaled once at the end, as
MatMulIntegerToFloat does. These integers fit bf16's eight bits, so training may use bf16 products and lose nothing
but the rounding of their sums; in fp32 the sums are exact below 2**24.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ACT_MAX = 255  # uint8
TINY = 1e-8  # smallest scale: an all-zero channel divides by this instead of by 0


def weight_scales(weight: Tensor, weight_max: int) -> Tensor:
    """Scale [out] of each row of weight [out, in], so that its largest magnitude becomes `weight_max`."""
    return (weight.detach().abs().amax(dim=1) / weight_max).clamp(min=TINY)


def weight_integers(weight: Tensor, scale: Tensor, weight_max: int) -> Tensor:
    """Integers [out, in] (as floats) in -weight_max..weight_max."""
    return (weight.detach() / scale[:, None]).round_().clamp_(-weight_max, weight_max)


def activation_range(low: float, high: float) -> tuple[float, int]:
    """uint8 scale and zero point of the range low..high, widened to contain 0 (so that 0 is exact)."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / ACT_MAX, TINY)
    return scale, int(min(max(round(-low / scale), 0), ACT_MAX))


class IntegerLinear(torch.autograd.Function):
    """x [..., in] times weight [out, in], both quantized; gradients pass where nothing was clamped."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        weight_scale: Tensor,
        act_scale: Tensor,
        act_zero: Tensor,
        weight_max: int,
        dtype: torch.dtype,
    ) -> Tensor:
        raw = (x.detach().float() / act_scale).round_().add_(act_zero)
        clamped = raw.clamp(0, ACT_MAX)
        inside = raw == clamped if ctx.needs_input_grad[0] else None
        x_int = clamped.sub_(act_zero).to(dtype)
        w_int = weight_integers(weight, weight_scale, weight_max).to(dtype)
        ctx.save_for_backward(x_int, w_int, weight_scale, act_scale, inside)
        return (x_int @ w_int.T).float() * (act_scale * weight_scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_int, w_int, weight_scale, act_scale, inside = ctx.saved_tensors
        grad_x = grad_w = None
        if ctx.needs_input_grad[0]:
            grad_x = ((grads[0] * weight_scale).to(w_int.dtype) @ w_int).float() * inside
        if ctx.needs_input_grad[1]:
            grad = grads[0].flatten(0, -2).to(x_int.dtype)
            grad_w = (grad.T @ x_int.flatten(0, -2)).float() * act_scale
        return grad_x, grad_w, None, None, None, None, None


class RoundedRows(torch.autograd.Function):
    """Rows [..., D] quantized to int8 by their own scale [...] and back; gradients pass straight through."""

    @staticmethod
    def forward(_ctx: Any, rows: Tensor, scale: Tensor, weight_max: int) -> Tensor:
        return (rows / scale[..., None]).round_().clamp_(-weight_max, weight_max).mul_(scale[..., None])

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], None, None
