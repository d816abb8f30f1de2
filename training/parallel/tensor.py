"""Tensor parallelism: each rank has some heads, FFN channels and words of every layer, and all rows.

Attention and the feed-forward network read all tokens and write partial sums (column-, then row-parallel products,
arXiv:1909.08053); between them each rank has only its share of the tokens, so norms and the residual stream are split
too (sequence parallelism, arXiv:2205.05198). The vocabulary is split in the embedding and in the loss. Parts need not
be equal: 3 ranks can share 4 heads.

Shape suffixes: B rows, T all tokens, S a rank's tokens, D width, N places, V a rank's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from data.batching import IGNORE
from data.errors import DaymillError
from training.clock import waiting
from training.config import ModelConfig
from training.losses import CHUNK, real_places
from training.mixed import product
from training.model import Attention, FeedForward, Transformer, compute_dtype, rotate
from training.sparse import Skip


@dataclass(frozen=True)
class Piece:
    """What a rank has of a parameter: `start` to `end` of its axis `dim`, which has `full` entries."""

    dim: int
    start: int
    end: int
    full: int


def part_of(count: int, rank: int, ranks: int) -> tuple[int, int]:
    """Begin and end of a rank's part of `count` things; parts differ by one at most."""
    return count * rank // ranks, count * (rank + 1) // ranks


def pieces_of(config: ModelConfig, rank: int, ranks: int) -> dict[str, Piece]:
    """The split parameters of a Transformer by name; all others are whole on every rank.

    A rank has whole groups: key-value heads and the query heads that share them. Raises DaymillError where a layer has
    fewer groups or channels than there are ranks.
    """
    words = (*part_of(config.vocab_size, rank, ranks), config.vocab_size)
    found = {"embed.weight": Piece(0, *words)}
    if not config.tied:
        found["output.weight"] = Piece(0, *words)
    for number, shape in enumerate(config.layers):
        if min(shape.keys, shape.ffn) < ranks:
            shared = f" on {shape.keys} key-value heads" if shape.group > 1 else ""
            raise DaymillError(
                f"block {number} has {shape.heads} heads{shared} and {shape.ffn} channels; "
                f"{ranks} tensor-parallel ranks need at least {ranks} of {'all' if shared else 'both'}"
            )
        edges = (*part_of(shape.keys, rank, ranks), shape.keys)
        heads, keys = (tuple(edge * size * config.head_dim for edge in edges) for size in (shape.group, 1))
        channels = (*part_of(shape.ffn, rank, ranks), shape.ffn)
        at = f"blocks.{number}."
        for name, rows in (("q", heads), ("k", keys), ("v", keys)):
            found[f"{at}attn.{name}.weight"] = Piece(0, *rows)
            if config.bias:
                found[f"{at}attn.{name}.bias"] = Piece(0, *rows)
        found[f"{at}attn.o.weight"] = Piece(1, *heads)
        for name in ("gate", "up") if config.activation == "swiglu" else ("up",):
            found[f"{at}mlp.{name}.weight"] = Piece(0, *channels)
            if config.bias:
                found[f"{at}mlp.{name}.bias"] = Piece(0, *channels)
        found[f"{at}mlp.down.weight"] = Piece(1, *channels)
    return found


def split_tensors(model: Transformer, group: dist.ProcessGroup) -> dict[str, Piece]:
    """Leave each rank its part of a whole model, in place; the names of parameters stay. Returns what was split."""
    if model.config.norm_place != "pre":
        raise DaymillError("tensor parallelism is for models with norms before their layers (norm_place: pre)")
    pieces = pieces_of(model.config, dist.get_rank(group), dist.get_world_size(group))
    for name, piece in pieces.items():
        path, _, last = name.rpartition(".")
        owner = model.get_submodule(path)
        whole = getattr(owner, last)
        part = whole.detach().narrow(piece.dim, piece.start, piece.end - piece.start).clone()
        setattr(owner, last, nn.Parameter(part, requires_grad=whole.requires_grad))
    model.__class__ = SplitTransformer
    assert isinstance(model, SplitTransformer)
    model.tensor_group, model.first_word = group, pieces["embed.weight"].start
    for module in model.modules():
        if isinstance(module, Attention):
            module.__class__ = SplitAttention
        elif isinstance(module, FeedForward):
            module.__class__ = SplitFeedForward
        if isinstance(module, SplitAttention | SplitFeedForward):
            module.tensor_group = group
    return pieces


class SplitAttention(Attention):
    """Some heads of an attention: reads and writes a rank's tokens [B, S, D]."""

    tensor_group: dist.ProcessGroup

    def forward(self, x: Tensor, bias: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        x_BTD = all_tokens(x, self.tensor_group)
        q, k, v = (self.split_heads(project(x_BTD)) for project in (self.q, self.k, self.v))
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        partial = product(self.o, self.join_heads(self.attend(q, k, v, bias)))
        return with_bias(own_tokens(partial, self.tensor_group), self.o.bias)


class SplitFeedForward(FeedForward):
    """Some channels of a feed-forward network: reads and writes a rank's tokens [B, S, D]."""

    tensor_group: dist.ProcessGroup

    def forward(self, x: Tensor) -> Tensor:
        partial = product(self.down, self.inner(all_tokens(x, self.tensor_group)))
        return with_bias(own_tokens(partial, self.tensor_group), self.down.bias)


class SplitTransformer(Transformer):
    """A rank's part of a transformer; hidden states are of its own tokens."""

    tensor_group: dist.ProcessGroup
    first_word: int

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        """What the first block reads [B, S, D]."""
        rank, ranks = dist.get_rank(self.tensor_group), dist.get_world_size(self.tensor_group)
        if ids.shape[1] % ranks:
            raise DaymillError(f"rows of {ids.shape[1]} tokens do not divide by {ranks} tensor-parallel ranks")
        place = ids - self.first_word
        mine = (place >= 0) & (place < len(self.embed.weight))
        partial = F.embedding(place.where(mine, 0), self.embed.weight) * mine.unsqueeze(-1)
        x = own_tokens(partial, self.tensor_group)
        if self.position is not None:
            x = x + self.position(positions.expand(ids.shape[0], -1).chunk(ranks, 1)[rank])
        return self.drop(x.to(compute_dtype(x)))

    def set_skip(self, skip: Skip | None) -> None:
        if skip is not None:
            raise DaymillError(
                "skipping parts of backward passes is not for tensor-parallel ranks: each would choose among its own "
                "channels; train with parallel.tensor: 1 or without skipping"
            )

    def project(self, hidden: Tensor, targets_BT: Tensor) -> Tensor:
        """Summed cross-entropy of all tokens, the same on every rank of the group."""
        flat_hidden, flat_targets = real_places(all_tokens(hidden, self.tensor_group), targets_BT)
        with torch.autocast(hidden.device.type, enabled=False):
            return SplitCrossEntropy.apply(
                flat_hidden,
                self.output_weight,
                flat_targets - self.first_word,
                flat_targets == IGNORE,
                self.tensor_group,
                torch.is_grad_enabled(),
                self.smoothing if self.training else 0.0,
                self.config.vocab_size,
            )


class SplitCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of `hidden @ weight.T` where each rank has some rows of `weight`.

    Chunk by chunk, as training.losses.LinearCrossEntropy: ranks tell each other the largest logit, the sum of
    exponentials and the target's logit of each place, never the logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        place_N: Tensor,
        ignored_N: Tensor,
        group: dist.ProcessGroup,
        needs_grad: bool,
        smoothing: float,
        words: int,
    ) -> Tensor:
        """`place` is a target's row in this rank's part, outside of 0 ... V - 1 where another rank has it; all ranks
        have `words` rows together."""
        weight = weight_VD.to(hidden_ND.dtype)
        exact = torch.promote_types(torch.float32, hidden_ND.dtype)
        total = torch.zeros((), dtype=exact)
        grad_hidden = torch.empty_like(hidden_ND) if needs_grad else None
        grad_weight = torch.zeros_like(weight_VD) if needs_grad else None
        for start in range(0, len(hidden_ND), CHUNK):
            h, place, ignored = (x[start : start + CHUNK] for x in (hidden_ND, place_N, ignored_N))
            mine = (place >= 0) & (place < len(weight)) & ~ignored
            hit = place.where(mine, 0).unsqueeze(1)
            logits = (h @ weight.T).to(exact)
            largest = logits.max(1).values
            with waiting:
                dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
            logits -= largest.unsqueeze(1)
            wanted = logits.gather(1, hit).squeeze(1) * mine
            if smoothing:
                wanted = (1 - smoothing) * wanted + smoothing / words * logits.sum(1)
            told = torch.stack([torch.zeros_like(largest), wanted])
            p = logits.exp_()
            told[0] = p.sum(1)
            with waiting:
                dist.all_reduce(told, group=group)
            total += (told[0].log() - told[1]).masked_fill(ignored, 0).sum()
            if grad_hidden is not None and grad_weight is not None:
                p /= told[0].unsqueeze(1)
                p.scatter_add_(1, hit, (smoothing - 1) * mine.to(p.dtype).unsqueeze(1))
                if smoothing:
                    p -= smoothing / words
                p.masked_fill_(ignored.unsqueeze(1), 0)
                slope = p.to(h.dtype)
                torch.mm(slope, weight, out=grad_hidden[start : start + CHUNK])  # partial: all_tokens sums it
                grad_weight += slope.T @ h
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        (scale,) = grad_outputs
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale.to(grad_weight.dtype), *[None] * 6


class AllTokens(torch.autograd.Function):
    """[B, S, D] of every rank to [B, T, D]; gradients, of which each rank has a part, are summed and split again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return gathered(x, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None]:
        return summed_part(grad_outputs[0], ctx.group), None


class OwnTokens(torch.autograd.Function):
    """Partial sums [B, T, D] to the sums of a rank's tokens [B, S, D]; gradients are gathered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return summed_part(x, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None]:
        return gathered(grad_outputs[0], ctx.group), None


def all_tokens(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return AllTokens.apply(x, group)


def own_tokens(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return OwnTokens.apply(x, group)


def gathered(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[B, S, D] of each rank, behind each other: [B, T, D]."""
    ranks = dist.get_world_size(group)
    mine = x.transpose(0, 1).contiguous()  # collectives go along the first axis
    whole = mine.new_empty(ranks * mine.shape[0], *mine.shape[1:])
    with waiting:
        dist.all_gather_single(whole, mine, group=group)
    return whole.transpose(0, 1).contiguous()  # as what pipelines send must be


def summed_part(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over ranks of [B, T, D], of which a rank gets its tokens: [B, S, D]."""
    ranks = dist.get_world_size(group)
    whole = x.transpose(0, 1).contiguous()
    part = whole.new_empty(whole.shape[0] // ranks, *whole.shape[1:])
    with waiting:
        dist.reduce_scatter_single(part, whole, group=group)
    return part.transpose(0, 1).contiguous()


def with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias.to(x.dtype)
