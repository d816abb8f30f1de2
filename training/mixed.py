"""Layers of one model that compute in modes of their own, whatever is around them.

Only linear layers of blocks have a mode. Embedding and output share one matrix whose rounding goes straight into the
logits, norms and the residual stream cost little and add errors up over all blocks, attention's products have no
weights: they stay in the run's ambient dtype. Layers change their class in place, so names, parameters and
checkpoints stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.fp8 import fp8_product, torchao_twin
from training.model import compute_dtype
from training.precision import Choice, Scaling, native, tf32

Mode = Literal["fp32", "bf16", "fp16", "tf32", "fp8"]
MODES: tuple[Mode, ...] = get_args(Mode)
DTYPES: dict[Mode, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BLOCKS = ".blocks."

P = ParamSpec("P")
R = TypeVar("R")


class Watch(Protocol):
    """Looks at what goes through a layer."""

    def values(self, tensor: Tensor) -> None: ...

    def gradients(self, tensor: Tensor) -> None: ...


class MixedLinear(nn.Linear):
    """A linear layer with a mode; the result has the ambient dtype."""

    mode: Mode
    scaling: Scaling
    watch: Watch | None
    twin: nn.Linear | None  # torchao's layer where the device multiplies fp8

    def forward(self, x: Tensor) -> Tensor:
        y = self.product(x)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def product(self, x: Tensor) -> Tensor:
        """x @ weight.T, without the bias."""
        ambient = compute_dtype(x)
        with torch.autocast(x.device.type, enabled=False):
            y = self.multiplied(x, ambient).to(ambient)
        if self.watch is not None and y.requires_grad:
            self.watch.values(x)
            self.watch.values(y)
            y.register_hook(self.watch.gradients)
        return y

    def multiplied(self, x: Tensor, ambient: torch.dtype) -> Tensor:
        if self.mode == "fp8":
            x = x.to(ambient)  # itself where it has the dtype
            if not native("fp8", x.device):
                return fp8_product(x, self.weight, self.scaling)
            if self.twin is None:
                self.__dict__["twin"] = torchao_twin(self, self.scaling)  # no submodule: names stay
            twin = cast(nn.Linear, self.twin)
            twin.weight = cast(nn.Parameter, self.weight)  # FSDP2 exchanges it around every use
            return cast(Tensor, twin(x))
        if self.mode == "tf32":
            return Tf32Product.apply(x.float(), self.weight)
        dtype = DTYPES[self.mode]
        return F.linear(x.to(dtype), self.weight.to(dtype))


class Tf32Product(torch.autograd.Function):
    """x @ weight.T with every operand rounded to tf32, forward and backward: what a GPU computes, emulated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return rounded(x) @ rounded(weight).T

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = rounded(grad_outputs[0])
        return grad @ rounded(weight), grad.flatten(0, -2).T @ rounded(x).flatten(0, -2)


def rounded(x: Tensor) -> Tensor:
    """fp32 to the nearest value with tf32's 10 bits of mantissa, ties to even; infinities and NaN stay."""
    bits = x.contiguous().view(torch.int32)
    even = (bits >> 13) & 1
    return torch.where(torch.isfinite(x), ((bits + 0xFFF + even) & ~0x1FFF).view(torch.float32), x)


def product(layer: nn.Linear, x: Tensor) -> Tensor:
    """x @ weight.T without the layer's bias, in its mode where it has one."""
    return layer.product(x) if isinstance(layer, MixedLinear) else F.linear(x, layer.weight)


def layers_of(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers of blocks, by name."""
    for name, module in model.named_modules():
        if BLOCKS in f".{name}" and type(module) in (nn.Linear, MixedLinear):
            yield name, cast(nn.Linear, module)


def set_modes(model: nn.Module, choice: Choice) -> None:
    """Give each layer the mode that it begins with."""
    make_plain(model)
    device = next(model.parameters()).device
    own = choice.precision in ("fp8", "adaptive") or not native(choice.precision, device)
    if choice.precision == "tf32" and not own:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    for name, layer in layers_of(model):
        if name not in choice.layers and not own:
            continue
        mode = choice.layers[name][0] if name in choice.layers else choice.precision
        give_mode(layer, cast(Mode, mode), choice.scaling)


def give_mode(layer: nn.Linear, mode: Mode, scaling: Scaling) -> MixedLinear:
    """A linear layer with a mode, in place."""
    layer.__class__ = MixedLinear
    assert isinstance(layer, MixedLinear)
    layer.mode, layer.scaling, layer.watch = mode, scaling, None
    layer.__dict__["twin"] = None
    return layer


def make_plain(model: nn.Module) -> None:
    """Take all modes back."""
    for _, layer in layers_of(model):
        if isinstance(layer, MixedLinear):
            cast(Any, layer).__class__ = nn.Linear
            for name in ("mode", "scaling", "watch", "twin"):
                layer.__dict__.pop(name)


def leaves_plain(train: Callable[P, R]) -> Callable[P, R]:
    """For functions that train the model they are given first: however they end, it is an ordinary model again."""

    @wraps(train)
    def run(*args: P.args, **more: P.kwargs) -> R:
        with tf32(False):  # puts the flag back
            try:
                return train(*args, **more)
            finally:
                make_plain(cast(nn.Module, args[0] if args else more["model"]))

    return run
