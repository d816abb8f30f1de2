"""Tokens to a language model: next-token pretraining with exact resume."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

from data.tokens import load_tokenizer, read_tokens
from tasks.params import Params
from tasks.stage import Context, Result, run
from training.checkpoint import Card, save_checkpoint
from training.config import ModelConfig
from training.curves import open_curves
from training.model import Transformer
from training.pretrain import PretrainConfig, check_finite, pretrain

TOKENS = Path("artifacts/tokenize")
CHECKPOINT = Path("artifacts/pretrain/checkpoint")
CURVES = Path("artifacts/pretrain/curves")
SWITCH = {"auto": None, "on": True, "off": False}


class Pretrain(Params):
    depth: int = Field(ge=1, le=48, description="Blocks; width and heads follow from it.")
    tokens: int = Field(ge=0, description="Tokens to train on; 0 leaves random weights.")
    length: int = Field(ge=2, description="Tokens of a packed row.")
    max_len: int = Field(ge=2, description="Longest input that the model will be asked for, tokens.")
    rows: int = Field(ge=1, description="Rows of a micro-batch.")
    accumulate: int = Field(ge=1, description="Micro-batches of one update.")
    lr: float = Field(gt=0)
    warmup: float = Field(ge=0, lt=1, description="Share of the steps.")
    floor: float = Field(ge=0, le=1, description="Last learning rate as a share of the peak.")
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)
    dropout: float = Field(ge=0, lt=1)
    bf16: Literal["auto", "on", "off"]
    attention: Literal["auto", "plain", "sdpa"]
    save_every_s: float = Field(ge=0)
    seed: int = Field(ge=0)


def main(params: Pretrain, ctx: Context) -> Result:
    tokenizer_json = (TOKENS / "tokenizer.json").read_text(encoding="utf-8")
    train, valid = read_tokens(TOKENS, "train"), read_tokens(TOKENS, "valid")
    vocab_size = load_tokenizer(TOKENS / "tokenizer.json").get_vocab_size()
    torch.manual_seed(params.seed)
    shape = ModelConfig.from_depth(
        params.depth, vocab_size, max_len=max(params.length, params.max_len), dropout=params.dropout
    )
    model = Transformer(shape)
    config = PretrainConfig(
        **params.model_dump(exclude={"depth", "max_len", "dropout", "bf16", "attention"}),
        bf16=SWITCH[params.bf16],
        attention=None if params.attention == "auto" else params.attention,
    )
    state = ctx.work / "pretrain.safetensors"
    with (
        ctx.out(CURVES) as folder,
        open_curves(folder) as curves,
        ctx.progress(config.places, unit="tokens") as bar,
    ):
        done = pretrain(model, train, valid, config, state=state, progress=bar, curves=curves)
    check_finite(model)
    with ctx.out(CHECKPOINT) as folder:
        save_checkpoint(folder, model, Card(model=shape, task="lm"), tokenizer_json)
    metrics = {
        "steps": done.step,
        "tokens": done.tokens,
        "tokens_per_s": round(done.tokens_per_s),
        "parameters": sum(p.numel() for p in model.parameters()),
        "valid_loss": done.last("valid/loss"),
        "train_loss": done.last("train/loss"),
        "computed_in": done.choice,
    }
    key = "random weights" if not done.step else f"loss {metrics['valid_loss']:.3f}, {done.tokens_per_s:,.0f} tokens/s"
    return Result(len(train), 1, key, metrics)


if __name__ == "__main__":
    run("pretrain", Pretrain, main)
