"""Three numbers of a feed-forward network's backward pass, which are often taken for each other.

The share of zeros among the gradients of its activations says what might be saved, the floating-point operations of
its products what is saved on paper, and the seconds what is saved here. A mask of single elements raises the first and
leaves the others where they were.

Shape suffixes: B rows, T tokens, D width, F channels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from training.loader import TokenBatch
from training.model import FeedForward, Transformer
from training.sparse import dsrelu, kept_channels, kept_tokens

ROUNDS = 5


@dataclass(frozen=True)
class Backward:
    """One layer: share of zero gradients, counted operations (two a multiplication with addition), median seconds."""

    zeros: float
    flops: int
    seconds: float


def by_layer(model: Transformer, batch: TokenBatch, rounds: int = ROUNDS) -> list[Backward]:
    """The numbers of every block's feed-forward network with a batch like this one, in training and as it skips."""
    mlps = [module for module in model.modules() if isinstance(module, FeedForward)]
    was_training = model.training
    model.train()
    with watched(mlps) as seen:
        model(batch.ids, batch.targets, batch.docs).backward()
    found = []
    for mlp, (x, grad) in zip(mlps, seen, strict=True):
        times = [seconds(mlp, x, grad) for _ in range(rounds)]
        found.append(Backward(zero_share(mlp, x, grad), flops(mlp, x, grad), median(times)))
    model.zero_grad(set_to_none=True)
    model.train(was_training)
    return found


@contextmanager
def watched(mlps: list[FeedForward]) -> Iterator[list[list[Tensor]]]:
    """While open, a forward and backward pass fill in each network's input and the gradient of its output."""
    seen: list[list[Tensor]] = [[] for _ in mlps]

    def hook(into: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def keep(_module: nn.Module, args: tuple[Tensor, ...], y: Tensor) -> None:
            into.append(args[0].detach())
            y.register_hook(lambda grad: into.append(grad.detach()))

        return keep

    hooks = [mlp.register_forward_hook(hook(into)) for mlp, into in zip(mlps, seen)]
    try:
        yield seen
    finally:
        for each in hooks:
            each.remove()


def flops(mlp: FeedForward, x_BTD: Tensor, grad_BTD: Tensor) -> int:
    """Counted operations of the products of a backward pass."""
    y = mlp(x_BTD.detach().requires_grad_())
    with FlopCounterMode(display=False) as counter:
        y.backward(grad_BTD)
    return int(counter.get_total_flops())


def seconds(mlp: FeedForward, x_BTD: Tensor, grad_BTD: Tensor) -> float:
    y = mlp(x_BTD.detach().requires_grad_())
    begun = time.perf_counter()
    y.backward(grad_BTD)
    return time.perf_counter() - begun


def zero_share(mlp: FeedForward, x_BTD: Tensor, grad_BTD: Tensor) -> float:
    """Share of zeros among the gradients of what `up` gives; what is skipped counts as zero."""
    up = mlp.up(x_BTD).detach().requires_grad_()
    gate = None if mlp.gate is None else mlp.gate(x_BTD).detach()
    y = mlp.activated(up, gate)
    (grad_up,) = torch.autograd.grad(y, up, grad_BTD.to(y.dtype) @ mlp.down.weight.to(y.dtype))
    if mlp.skip is not None and mlp.training:
        y, kept = dsrelu(up.detach(), mlp.threshold), torch.zeros_like(grad_up)
        if mlp.skip.what == "neurons":
            about = kept_channels(y, mlp.down.weight, mlp.skip)
            kept.scatter_(2, about.unsqueeze(1).expand(-1, y.shape[1], -1), 1.0)
        else:
            about = kept_tokens(torch.linalg.vector_norm(y, dim=-1), grad_BTD, mlp.skip)
            kept.scatter_(1, about.unsqueeze(-1).expand(-1, -1, y.shape[2]), 1.0)
        grad_up = grad_up * kept
    return float((grad_up == 0).double().mean())
