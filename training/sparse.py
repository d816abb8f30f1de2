"""D-SReLU, an activation that is zero up to a threshold, and backward passes that skip what it leaves idle.

D-SReLU is x where |x| > theta, and 0 elsewhere; so is its slope, 1 or 0. A mask of single elements saves no work: dense
products multiply by the zeros. Work is saved where whole channels or whole tokens leave a product. Here they leave the
backward pass alone: the forward pass is the dense one, so that no output depends on what a batch or a later token makes
active, and a trained model computes for its users what it computed in training.

What is skipped counts as a constant of the step. The gradient is exactly that of the function with these constants,
and exactly that of the dense network where all that is skipped was idle. Channels and tokens are chosen row by row, so
that neither micro-batches nor data ranks change the choice.

Shape suffixes: B rows, T tokens, D width, F channels, K kept channels, N kept tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Skipped = Literal["neurons", "tokens"]
WINDOW = 0.5  # width, in thetas, of the window around theta whose elements tell a learned theta where to go


@dataclass(frozen=True)
class Skip:
    """Which share of a feed-forward network's backward pass is left out, by channels or by tokens of each row."""

    what: Skipped
    share: float

    def kept(self, count: int) -> int:
        """Of so many channels or tokens, those whose gradients are computed: one at least."""
        return max(1, math.ceil(count * (1 - self.share) - 1e-9))


def theta_at(step: int, steps: int, ramp: float) -> float:
    """Share of the final theta that holds at a step: from 0 at the first up to 1 after `ramp` of the steps."""
    rising = math.floor(ramp * (steps - 1))
    return 1.0 if step >= rising else step / rising


def dsrelu(x: Tensor, theta: float | Tensor) -> Tensor:
    """x where |x| > theta, else 0, element by element; NaN stays NaN. The slope is 1 or 0."""
    return x.masked_fill(idle(x, theta), 0.0)


def idle(x: Tensor, theta: float | Tensor) -> Tensor:
    return x.abs() <= theta


class LearnedThreshold(torch.autograd.Function):
    """D-SReLU whose theta (a tensor of one number) has a gradient.

    Raising theta by d sets the elements within d above it from x to 0, so the derivative of the sum is minus their
    values, which are +-theta, times their density. That density is estimated from a window of WINDOW x theta around
    theta (the rectangle kernel of JumpReLU, arXiv:2407.14435, on both sides of 0):

        d y / d theta = -sign(x) x theta / (WINDOW x theta) where ||x| - theta| < WINDOW x theta / 2, else 0
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor) -> Tensor:
        ctx.save_for_backward(x, theta)
        return dsrelu(x, theta)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, theta = ctx.saved_tensors
        return grads[0].masked_fill(idle(x, theta), 0.0), theta_gradient(grads[0], x, theta)


def theta_gradient(grad: Tensor, x: Tensor, theta: Tensor) -> Tensor:
    """The pull of all elements on theta."""
    near = (x.abs() - theta).abs() < WINDOW / 2 * theta
    pull = (grad * x.sign()).masked_fill(~near, 0.0)
    return (-pull.sum(dtype=torch.promote_types(torch.float32, x.dtype)) / WINDOW).to(theta.dtype)


class SkippingFeedForward(torch.autograd.Function):
    """down(dsrelu(up(x))) in full, with gradients of the kept channels or tokens alone.

    Kept are the channels with the largest sum of |activation| over a row's tokens times the norm of their column in
    `down`; or the tokens whose activations times the gradient that reaches them are largest, for the gradient of
    `down` is a sum of these products. The products run in the dtype of x.
    """

    @staticmethod
    def forward(
        ctx: Any, x_BTD: Tensor, up_FD: Tensor, up_bias: Tensor | None, down_DF: Tensor, theta: Tensor, skip: Skip
    ) -> Tensor:
        up, down = up_FD.to(x_BTD.dtype), down_DF.to(x_BTD.dtype)
        a = F.linear(x_BTD, up, None if up_bias is None else up_bias.to(x_BTD.dtype))
        y = dsrelu(a, theta)
        if skip.what == "neurons":
            about = kept_channels(y, down_DF, skip)
            a = a.gather(2, about.unsqueeze(1).expand(-1, a.shape[1], -1))  # all that the backward pass will ask for
        else:
            about = torch.linalg.vector_norm(y, dim=-1)
        ctx.save_for_backward(x_BTD, a, about, up_FD, down_DF, theta)
        ctx.skip, ctx.has_bias = skip, up_bias is not None
        return F.linear(y, down)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, a, about, up, down, theta = ctx.saved_tensors
        found = Gradients(
            torch.zeros_like(x),
            torch.zeros_like(up),
            up.new_zeros(len(up)) if ctx.has_bias else None,
            torch.zeros_like(down),
            torch.zeros_like(theta) if ctx.needs_input_grad[4] else None,
        )
        weights = (up.to(x.dtype), down.to(x.dtype), theta)
        if ctx.skip.what == "neurons":
            for row, at in enumerate(about):  # row after row, for their channels differ
                found.add((x[row], a[row], grads[0][row]), weights, (row,), at)
        else:
            tokens = kept_tokens(about, grads[0], ctx.skip)
            rows = torch.arange(len(tokens), device=tokens.device).unsqueeze(1)
            found.add((x[rows, tokens], a[rows, tokens], grads[0][rows, tokens]), weights, (rows, tokens), None)
        return found.x, found.up, found.up_bias, found.down, found.theta, None


@dataclass
class Gradients:
    """What a backward pass gives, begun as zeros; None where nobody asks for it."""

    x: Tensor
    up: Tensor
    up_bias: Tensor | None
    down: Tensor
    theta: Tensor | None

    def add(
        self,
        kept: tuple[Tensor, Tensor, Tensor],
        weights: tuple[Tensor, Tensor, Tensor],
        places: tuple[Any, ...],
        channels: Tensor | None,
    ) -> None:
        """Add the gradients of kept tokens (x, activations before theta, gradient of the output) at `places` of x;
        the activations are those of `channels`, or of all."""
        x, a, grad = (tensor.flatten(0, -2) for tensor in kept)
        up, down, theta = weights
        at: Any = slice(None) if channels is None else channels
        grad_y = grad @ down[:, at]
        grad_a = grad_y.masked_fill(idle(a, theta), 0.0)
        self.x[places] = (grad_a @ up[at]).view_as(kept[0])
        self.up[at] += grad_a.T @ x
        self.down[:, at] += grad.T @ dsrelu(a, theta)
        if self.up_bias is not None:
            self.up_bias[at] += grad_a.sum(0)
        if self.theta is not None:
            self.theta += theta_gradient(grad_y, a, theta)


def kept_channels(y_BTF: Tensor, down_DF: Tensor, skip: Skip) -> Tensor:
    """Of each row the channels that are kept, ascending [B, K]."""
    reach = torch.linalg.vector_norm(down_DF, dim=0)
    score = y_BTF.abs().sum(1, dtype=reach.dtype) * reach
    return score.topk(skip.kept(y_BTF.shape[-1]), dim=-1).indices.sort(dim=-1).values


def kept_tokens(size_BT: Tensor, grad_BTD: Tensor, skip: Skip) -> Tensor:
    """Of each row the tokens that are kept, ascending [B, N]; `size` are the norms of their activations."""
    score = size_BT * torch.linalg.vector_norm(grad_BTD, dim=-1)
    return score.topk(skip.kept(score.shape[1]), dim=-1).indices.sort(dim=-1).values
