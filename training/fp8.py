"""Linear layers in fp8: e4m3 operands, 4 bits of mantissa, scaled at every use to the largest value around.

`tensor` has a scale for a whole tensor, and gradients in e5m2, whose range is wider; `row` has one for every row of
an operand along the sum, rounded down to a power of two, and gradients in e4m3, since a scale a row makes up for the
range (arXiv:2209.05433; both as torchao's recipes of these names). Sums are taken in fp32. What the backward pass
needs of the input is kept in fp8: a byte a value.

On GPUs that multiply fp8 torchao's layers do; elsewhere this file does the same rounding and multiplies in fp32, where
products of fp8 values are exact. Shape suffixes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from training.precision import Scaling

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SMALLEST = 1e-12  # of a largest value: zeros get a finite scale
MULTIPLE = 16  # of inputs and outputs: what the GPUs' kernels take

Scaled = tuple[Tensor, Tensor]  # values in fp8, and the scale they were multiplied with


def scaled(x: Tensor, dtype: torch.dtype, along: int | None) -> Scaled:
    """`x` [N, I] in fp8; `along` is the axis that shares a scale, None for one scale of all.

    A value that is not finite makes its scale's values NaN, so that the step is skipped.
    """
    most = torch.finfo(dtype).max
    if not x.numel():
        return x.to(dtype), x.new_ones((), dtype=torch.float32)
    largest = x.abs().amax() if along is None else x.abs().amax(along, keepdim=True)
    scale = (most / largest.double().clamp(min=SMALLEST)).float()
    if along is not None:
        scale = scale.log2().floor().exp2()
    return (x.float() * scale).clamp(-most, most).to(dtype), scale


def transposed(x: Scaled) -> Scaled:
    return x[0].T, x[1].T if x[1].ndim else x[1]


def multiplied(a: Scaled, b: Scaled) -> Tensor:
    """a @ b in fp32, both scales taken out again."""
    return (a[0].float() @ b[0].float()) / (a[1] * b[1])


class Fp8Product(torch.autograd.Function):
    """x [N, I] @ weight [O, I].T, forward and backward in fp8."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, of_rows: Scaled, of_columns: Scaled, scaling: Scaling) -> Tensor:
        """`of_rows` and `of_columns` are x in fp8, with its scales for either direction of the sum."""
        ctx.scaling, ctx.dtype = scaling, x.dtype
        ctx.save_for_backward(weight, *of_columns)
        turned = transposed(scaled(weight, E4M3, None if scaling == "tensor" else 1))
        return multiplied(of_rows, turned).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        weight, *of_columns = ctx.saved_tensors
        (grad,) = grad_outputs
        whole = ctx.scaling == "tensor"
        dtype = E5M2 if whole else E4M3
        by_row = scaled(grad, dtype, None if whole else 1)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = multiplied(by_row, scaled(weight, E4M3, None if whole else 0)).to(ctx.dtype)
        if ctx.needs_input_grad[1]:
            turned = transposed(by_row if whole else scaled(grad, dtype, 0))
            grad_weight = multiplied(turned, (of_columns[0], of_columns[1])).to(weight.dtype)
        return grad_x, grad_weight, None, None, None


# The input of several layers (queries, keys, values; gate, up) is rounded and kept once.
KNOWN: Any = WeakIdKeyDictionary()


def fp8_product(x: Tensor, weight: Tensor, scaling: Scaling) -> Tensor:
    """x [..., I] @ weight [O, I].T in fp8 by emulation, in the dtype of `x`."""
    known = KNOWN.get(x)
    if known is None or known[:2] != (scaling, x._version):
        with torch.no_grad():
            flat = x.reshape(-1, x.shape[-1])
            of_rows = scaled(flat, E4M3, None if scaling == "tensor" else 1)
            of_columns = of_rows if scaling == "tensor" else scaled(flat, E4M3, 0)
        known = (scaling, x._version, of_rows, of_columns)
        KNOWN[x] = known
    y = Fp8Product.apply(x.reshape(-1, x.shape[-1]), weight, *known[2:], scaling)
    return y.unflatten(0, x.shape[:-1])


def fits(layer: nn.Linear) -> bool:
    """Whether GPUs have an fp8 kernel for the layer's shape."""
    return layer.in_features % MULTIPLE == 0 and layer.out_features % MULTIPLE == 0


def torchao_twin(layer: nn.Linear, scaling: Scaling, emulate: bool = False) -> nn.Linear:
    """torchao's fp8 layer on the same weight, without bias; `emulate` is for devices without fp8 (slow, for tests)."""
    from dataclasses import replace

    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig.from_recipe_name("tensorwise" if scaling == "tensor" else "rowwise")
    with torch.device("meta"):
        bare = nn.Linear(layer.in_features, layer.out_features, bias=False)
    bare.weight = layer.weight
    return convert_to_float8_training(nn.Sequential(bare), config=replace(config, emulate=emulate))[0]
