"""The transformer: one class for our own decoder and for encoders adopted from elsewhere.

Shape suffixes: B batch, T tokens, D width, H heads, K head dimension, C classes, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.errors import DaymillError
from training.config import LayerShape, ModelConfig
from training.losses import next_token_loss_sum
from training.sparse import LearnedThreshold, Skip, SkippingFeedForward, dsrelu

MASKED = -1e9  # finite, so that a row without any visible key gives numbers instead of NaN
FP16_MASKED = -3e4  # the same where -1e9 would be infinite; added to a score it stays finite


class Attention(nn.Module):
    """Multi-head attention whose number of heads may differ from width / head_dim after pruning.

    Neighboring query heads may share a head of keys and values (grouped queries, arXiv:2305.13245).
    """

    def __init__(self, config: ModelConfig, shape: LayerShape) -> None:
        super().__init__()
        inner, shared = shape.heads * config.head_dim, shape.keys * config.head_dim
        self.head_dim = config.head_dim
        self.kernel: Literal["plain", "sdpa"] = "plain"
        self.memory: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None  # see training/generate.py
        self.q = nn.Linear(config.width, inner, bias=config.bias)
        self.k = nn.Linear(config.width, shared, bias=config.bias)
        self.v = nn.Linear(config.width, shared, bias=config.bias)
        self.o = nn.Linear(inner, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor, bias: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        """`bias` broadcasts to [B, H, T, T]: 0 where a key is visible, MASKED elsewhere."""
        q, k, v = (self.split_heads(project(x_BTD)) for project in (self.q, self.k, self.v))
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        if self.memory is not None:
            k, v = self.memory(k, v)
        return self.o(self.join_heads(self.attend(q, k, v, bias)))

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def join_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Softmax attention: spelled out, or torch's fused kernel; which one is faster is a matter of the machine.

        Keys and values [B, G, T, K] may have fewer heads than queries [B, H, T, K].
        """
        k, v = (for_queries(x, q.shape[1]) for x in (k, v))
        if self.kernel == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        # The bias joins in place: the product is not needed again, and [B, H, T, T] is the largest tensor around.
        scores = torch.matmul(q * (1 / math.sqrt(self.head_dim)), k.transpose(-1, -2)).add_(bias)
        return softmax(scores) @ v


class FeedForward(nn.Module):
    """SwiGLU (gate, up, down), or GELU, squared ReLU (arXiv:2109.08668) or D-SReLU between up and down."""

    def __init__(self, config: ModelConfig, shape: LayerShape) -> None:
        super().__init__()
        self.activation = config.activation
        self.theta = self.final_theta = shape.theta  # what holds now: a schedule may still raise it
        self.skip: Skip | None = None  # what training leaves out of its backward pass
        self.log_theta: nn.Parameter | None = None
        if config.learned_theta:  # as a logarithm it stays above 0; [1], since sharding wants an axis
            self.log_theta = nn.Parameter(torch.tensor([math.log(shape.theta)]))
        if config.activation == "swiglu":
            self.gate: nn.Linear | None = nn.Linear(config.width, shape.ffn, bias=config.bias)
        else:
            self.gate = None
        self.up = nn.Linear(config.width, shape.ffn, bias=config.bias)
        self.down = nn.Linear(shape.ffn, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.skip is not None and self.training and torch.is_grad_enabled():
            return self.skipping(x_BTD, self.skip)
        return self.down(self.inner(x_BTD))

    def inner(self, x_BTD: Tensor) -> Tensor:
        """Channels [B, T, ffn] before the down projection: what FFN pruning ranks."""
        gate = None if self.gate is None else self.gate(x_BTD)
        return self.activated(self.up(x_BTD), gate)

    def activated(self, up: Tensor, gate: Tensor | None) -> Tensor:
        """What the activation makes of the products [B, T, ffn]."""
        if gate is not None:
            return F.silu(gate) * up
        if self.activation == "relu2":
            return F.relu(up).square()
        if self.activation == "dsrelu":
            if self.log_theta is not None and self.training:
                return LearnedThreshold.apply(up, self.log_theta.exp().squeeze())
            return dsrelu(up, self.threshold)
        return F.gelu(up)

    @property
    def threshold(self) -> float:
        """D-SReLU's theta as it is now."""
        return self.theta if self.log_theta is None else float(self.log_theta.detach().exp())

    def skipping(self, x_BTD: Tensor, skip: Skip) -> Tensor:
        theta = torch.tensor(self.theta) if self.log_theta is None else self.log_theta.exp().squeeze()
        x = x_BTD.to(compute_dtype(x_BTD))
        with torch.autocast(x.device.type, enabled=False):  # the function chooses its own dtypes
            y = SkippingFeedForward.apply(x, self.up.weight, self.up.bias, self.down.weight, theta, skip)
        return y if self.down.bias is None else y + self.down.bias.to(y.dtype)


class Block(nn.Module):
    def __init__(self, config: ModelConfig, shape: LayerShape) -> None:
        super().__init__()
        self.pre = config.norm_place == "pre"
        self.norm1 = make_norm(config)
        self.attn = Attention(config, shape)
        self.norm2 = make_norm(config)
        self.mlp = FeedForward(config, shape)
        self.drop = Dropout(config.dropout)

    def forward(self, x: Tensor, bias: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        if self.pre:
            x = x + self.drop(self.attn(self.norm1(x), bias, rotary))
            return x + self.drop(self.mlp(self.norm2(x)))
        x = self.norm1(x + self.drop(self.attn(x, bias, rotary)))
        return self.norm2(x + self.drop(self.mlp(x)))


class Transformer(nn.Module):
    """Token ids to hidden states; the output embedding is the input embedding, unless it was adopted untied."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.position = nn.Embedding(config.max_len, config.width) if config.position == "learned" else None
        self.embed_norm = make_norm(config) if config.norm_place == "post" else nn.Identity()
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, shape) for shape in config.layers)
        self.norm = make_norm(config) if config.norm_place == "pre" else nn.Identity()
        self.output = None if config.tied else nn.Embedding(config.vocab_size, config.width)
        self.smoothing = 0.0  # of the targets, while training
        self.reset()

    def reset(self) -> None:
        """Normal(0, 0.02); projections into the residual stream are scaled by 1/sqrt(2 x layers) (GPT-2)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
        for name, weight in self.named_parameters():
            if name.endswith(("attn.o.weight", "mlp.down.weight")):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * len(self.blocks)))

    def set_attention(self, kernel: Literal["plain", "sdpa"]) -> None:
        """Choose how attention is computed; the result is the same within rounding."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.kernel = kernel

    def set_theta(self, share: float) -> None:
        """D-SReLU's scheduled thresholds as a share of those of the config; learned ones know better."""
        for module in self.modules():
            if isinstance(module, FeedForward):
                module.theta = share * module.final_theta

    @property
    def rising(self) -> bool:
        """Whether D-SReLU's thresholds follow a schedule."""
        return self.config.activation == "dsrelu" and not self.config.learned_theta

    def set_skip(self, skip: Skip | None) -> None:
        """Leave a share of the feed-forward networks out of backward passes in training (training/sparse.py).

        Raises DaymillError for other activations, and for layers that multiply in modes of their own (fp8, emulation).
        """
        if skip is not None and self.config.activation != "dsrelu":
            raise DaymillError(f"skipping is for the activation dsrelu; this model has {self.config.activation}")
        for module in self.modules():
            if isinstance(module, FeedForward):
                if skip is not None and type(module.up) is not nn.Linear:
                    raise DaymillError(
                        "skipping parts of backward passes goes with the precisions fp32, bf16 and fp16, computed as "
                        "they are; fp8, adaptive and emulated ones change the products that it leaves out"
                    )
                module.skip = skip

    def hidden(
        self,
        ids_BT: Tensor,
        mask_BT: Tensor | None = None,
        docs_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [B, T, D].

        `mask` is 1 for real tokens (keys elsewhere are invisible); `docs` numbers the documents of a packed row, and
        no token sees another document; `positions` restart with each document where given, else count from 0.
        """
        if positions_BT is None:
            positions_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device)[None]
        x = self.embedded(ids_BT, positions_BT)
        surroundings = self.surroundings(ids_BT, mask_BT, docs_BT, positions_BT, x.dtype)
        for block in self.blocks:
            x = block(x, *surroundings)
        return self.norm(x)

    def embedded(self, ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """What the first block reads [B, T, D]."""
        x = self.embed(ids_BT)
        if self.position is not None:
            x = x + self.position(positions_BT)
        return self.drop(self.embed_norm(x).to(compute_dtype(x)))

    def surroundings(
        self,
        ids_BT: Tensor,
        mask_BT: Tensor | None,
        docs_BT: Tensor | None,
        positions_BT: Tensor,
        dtype: torch.dtype,
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """What every block needs besides x: the attention bias, and the rotary tables where positions are rotary."""
        rotary = None
        if self.config.position == "rotary":
            rotary = rotary_tables(positions_BT, self.config.head_dim, self.config.rope_theta, dtype)
        bias = attention_bias(ids_BT.shape[1], self.config.causal, mask_BT, docs_BT, ids_BT.device)
        if dtype == torch.float16:
            bias = bias.clamp(min=FP16_MASKED)
        bias = bias.to(dtype)
        return bias, rotary

    def forward(self, ids_BT: Tensor, targets_BT: Tensor, docs_BT: Tensor | None = None) -> Tensor:
        """Summed next-token loss of packed rows; documents do not see each other."""
        return self.project(self.hidden(ids_BT, None, docs_BT), targets_BT)

    def project(self, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """Summed cross-entropy of hidden states through the output embedding; smoothed in training alone."""
        smoothing = self.smoothing if self.training else 0.0
        return next_token_loss_sum(hidden_BTD, self.output_weight, targets_BT, smoothing)

    def lm_logits(self, hidden_BTD: Tensor) -> Tensor:
        """Next-token logits [B, T, V] through the output embedding."""
        return F.linear(hidden_BTD, self.output_weight)

    @property
    def output_weight(self) -> Tensor:
        """The output embedding [V, D]."""
        return self.embed.weight if self.output is None else self.output.weight


class Classifier(nn.Module):
    """A backbone, the mean of its hidden states over real tokens, and a linear head."""

    def __init__(self, backbone: Transformer, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.drop = Dropout(backbone.config.dropout)
        self.head = nn.Linear(backbone.config.width, classes)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Logits [B, C]; `mask` is 1 for real tokens."""
        return self.head(self.drop(mean_pool(self.backbone.hidden(ids_BT, mask_BT), mask_BT)))


def mean_pool(hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean [B, D] over real tokens; a row without any gives zeros."""
    weight = mask_BT.to(hidden_BTD.dtype).unsqueeze(-1)
    return (hidden_BTD * weight).sum(1) / weight.sum(1).clamp(min=1)


def make_norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms":
        return RMSNorm(config.width, eps=config.norm_eps)
    return LayerNorm(config.width, eps=config.norm_eps)


class Dropout(nn.Dropout):
    """Drops a channel for all tokens of a row at once (Gal and Ghahramani, arXiv:1512.05287).

    Drawing a number for every element took a sixth of a training step on CPUs; this takes none of it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x [B, D] or [B, T, D]."""
        if not self.training or not self.p:
            return x
        shape = x.shape if x.ndim < 3 else (x.shape[0], 1, x.shape[2])
        return x * F.dropout(torch.ones(shape, dtype=x.dtype, device=x.device), self.p)


class RMSNorm(nn.RMSNorm):
    """Statistics in fp32, result in the dtype of the input, so that a bf16 residual stream stays bf16."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class LayerNorm(nn.LayerNorm):
    """As nn.LayerNorm; under autocast the result keeps the dtype of the input."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            assert self.bias is not None
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of activations: autocast's where it is on, so that nothing is cast back and forth."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis in the dtype of `scores` (the kernel sums in fp32; autocast would copy to fp32)."""
    with torch.autocast(scores.device.type, enabled=False):
        return scores.softmax(dim=-1)


def for_queries(x: Tensor, heads: int) -> Tensor:
    """Keys or values [B, G, T, K] once for each of the `heads` query heads [B, H, T, K]: neighbors share."""
    groups = x.shape[1]
    return x if groups == heads else x.unsqueeze(2).expand(-1, -1, heads // groups, -1, -1).flatten(1, 2)


def rotary_tables(positions_BT: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B or 1, 1, T, K/2] of the rotary angles (RoFormer, arXiv:2104.09864)."""
    steps = torch.arange(0, head_dim, 2, device=positions_BT.device, dtype=torch.float32)
    angles = positions_BT[:, None, :, None].float() * theta ** (-steps / head_dim)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate halves: element i pairs with element i + K/2 (the non-interleaved layout)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attention_bias(
    length: int, causal: bool, mask_BT: Tensor | None, docs_BT: Tensor | None, device: torch.device
) -> Tensor:
    """Additive bias that broadcasts to [B, H, T, T]: 0 where query t may see key s."""
    visible = torch.ones(1, 1, length, length, dtype=torch.bool, device=device)
    if causal:
        visible = visible.tril()
    if mask_BT is not None:
        visible = visible & mask_BT[:, None, None, :].bool()
    if docs_BT is not None:
        visible = visible & (docs_BT[:, None, :, None] == docs_BT[:, None, None, :])
    return torch.zeros_like(visible, dtype=torch.float32).masked_fill(~visible, MASKED)
