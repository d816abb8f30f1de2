"""Answers token by token: greedy or drawn, each token computed once (keys and values are kept), at most so many.

Shape suffixes: B rows, T tokens of a pass, S tokens so far, H heads, K head dimension, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.tokens import END_ID, PAD_ID, Ids
from training.model import MASKED, Attention, Transformer, rotary_tables


@dataclass(frozen=True)
class Decoding:
    """How the next token is chosen, and how many there are at most."""

    tokens: int
    temperature: float = 0.0  # 0: the likeliest token; 1: as the model believes; higher: more even
    top_p: float = 1.0  # only the likeliest tokens that together have this probability are drawn from
    seed: int = 0


class Memory:
    """Keys and values [B, H, S, K] of one attention layer, in room for `length` tokens."""

    def __init__(self, length: int) -> None:
        self.length, self.used = length, 0
        self.kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take in those of a pass; returns those of all tokens so far."""
        if self.kept is None:
            shapes = ((*x.shape[:2], self.length, x.shape[3]) for x in (k, v))
            first, second = (k.new_empty(shape) for shape in shapes)
            self.kept = first, second
        begin, self.used = self.used, self.used + k.shape[2]
        for room, new in zip(self.kept, (k, v), strict=True):
            room[:, :, begin : self.used] = new
        return self.kept[0][:, :, : self.used], self.kept[1][:, :, : self.used]


@contextmanager
def remembering(model: Transformer, length: int) -> Iterator[None]:
    """Attention layers keep keys and values of earlier passes, at most `length` tokens."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    try:
        for layer in layers:
            layer.memory = Memory(length)
        yield
    finally:
        for layer in layers:
            layer.memory = None


def generate(
    model: Transformer,
    prompts: Sequence[Ids],
    decoding: Decoding,
    *,
    banned: Sequence[int] = (),
    rows: int = 32,
    cache: bool = True,
    on_rows: Callable[[int], object] | None = None,
) -> list[list[int]]:
    """The tokens that follow each prompt, without END, which ends an answer; at most `decoding.tokens` of them.

    Prompts of similar length share a pass of `rows`. What is drawn for a prompt depends on the seed and its number
    alone, not on its company. `cache=False` computes all tokens anew at each one: the control. Raises ValueError for an
    empty prompt, where prompt and answer are longer than the model's `max_len`, and for a model that is not causal.
    """
    if not model.config.causal:
        raise ValueError("the model sees what comes after a token; only a causal one can continue a text")
    lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
    if len(lengths) and not lengths.min():
        raise ValueError(f"prompt {int(lengths.argmin())} is empty")
    if len(lengths) and lengths.max() + decoding.tokens > model.config.max_len:
        raise ValueError(f"{lengths.max()} + {decoding.tokens} tokens; the model is for {model.config.max_len}")
    answers: list[list[int]] = [[] for _ in prompts]
    order = np.argsort(lengths, kind="stable")
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(order), rows):
            chosen = order[start : start + rows]
            draws = np.stack([np.random.default_rng((decoding.seed, int(i))).random(decoding.tokens) for i in chosen])
            found = continued(model, [prompts[i] for i in chosen], decoding, draws, banned, cache)
            for i, answer in zip(chosen, found, strict=True):
                answers[i] = answer
            if on_rows is not None:
                on_rows(len(chosen))
    model.train(was_training)
    return answers


def continued(
    model: Transformer,
    prompts: Sequence[Ids],
    decoding: Decoding,
    draws: NDArray[np.float64],
    banned: Sequence[int],
    cache: bool,
) -> list[list[int]]:
    """Answers to the prompts of one pass; `draws` [B, tokens] are what chance says."""
    ids_BS, real_BS = padded_before(prompts)
    answers: list[list[int]] = [[] for _ in prompts]
    running = np.ones(len(prompts), dtype=np.bool_)
    with remembering(model, ids_BS.shape[1] + decoding.tokens) if cache else nothing():
        new = ids_BS.shape[1]  # tokens that the model has not seen
        for step in range(decoding.tokens):
            logits_BV = last_logits(model, ids_BS, real_BS, new if cache else ids_BS.shape[1])
            logits_BV[:, list(banned)] = -torch.inf
            tokens_B = next_tokens(logits_BV, decoding, draws[:, step])
            running &= tokens_B != END_ID
            if not running.any():
                break
            for row in np.flatnonzero(running):
                answers[row].append(int(tokens_B[row]))
            ids_BS = torch.cat([ids_BS, torch.from_numpy(tokens_B)[:, None]], dim=1)
            real_BS = torch.cat([real_BS, torch.ones_like(real_BS[:, :1])], dim=1)
            new = 1
    return answers


@contextmanager
def nothing() -> Iterator[None]:
    yield


def padded_before(prompts: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Ids [B, S] of prompts that all end at the last place, and which of them are real."""
    longest = max(len(prompt) for prompt in prompts)
    ids = np.full((len(prompts), longest), PAD_ID, dtype=np.int64)
    real = np.zeros((len(prompts), longest), dtype=np.bool_)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        real[row, longest - len(prompt) :] = True
    return torch.from_numpy(ids), torch.from_numpy(real)


def last_logits(model: Transformer, ids_BS: Tensor, real_BS: Tensor, new: int) -> Tensor:
    """Logits [B, V] behind the last token, from a pass over the last `new` ones; attention knows the others."""
    positions_BS = (real_BS.cumsum(1) - 1).clamp(min=0)
    positions_BT = positions_BS[:, -new:]
    x = model.embedded(ids_BS[:, -new:], positions_BT)
    seen = torch.ones(new, ids_BS.shape[1], dtype=torch.bool).tril(ids_BS.shape[1] - new) & real_BS[:, None, None, :]
    bias = torch.zeros(seen.shape, dtype=x.dtype).masked_fill(~seen, MASKED)
    rotary = None
    if model.config.position == "rotary":
        rotary = rotary_tables(positions_BT, model.config.head_dim, model.config.rope_theta, x.dtype)
    for block in model.blocks:
        x = block(x, bias, rotary)
    return model.lm_logits(model.norm(x[:, -1]))


def next_tokens(logits_BV: Tensor, decoding: Decoding, draws_B: NDArray[np.float64]) -> NDArray[np.int64]:
    """The next token of each row: the likeliest, or the one at which the probability so far reaches what was drawn."""
    if not decoding.temperature:
        return logits_BV.argmax(-1).numpy()
    p, order = (logits_BV.double() / decoding.temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = p.cumsum(-1) - p
    p = p.masked_fill(before >= decoding.top_p, 0)
    reached = p.cumsum(-1)
    wanted = torch.from_numpy(draws_B)[:, None] * reached[:, -1:]
    place = (reached <= wanted).sum(-1, keepdim=True)
    place = place.minimum((p > 0).sum(-1, keepdim=True) - 1)  # rounding never reaches a token that may not be drawn
    return order.gather(1, place).squeeze(1).numpy()
