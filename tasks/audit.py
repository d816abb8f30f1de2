"""The audit of the training engine on the checkout's own params.yaml; no stage: it writes nothing that lasts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data.tokens import TokenShard, read_tokens
from tasks.params import load
from tasks.pretrain import SWITCH, TOKENS, Pretrain
from training.audit import Check, Subject, audit
from training.config import ModelConfig
from training.pretrain import PretrainConfig

SHOWN_TOKENS = 200_000  # of the corpus that packing is checked on
MADE_UP = 400  # documents where there is no corpus yet
VOCAB = 512  # their tokens


def run_audit(root: Path, on_check: Callable[[Check], None]) -> tuple[list[Check], str]:
    """Every check, and what they were tried on."""
    params = load("pretrain", Pretrain, root / "params.yaml")
    folder = root / TOKENS
    if (folder / "train.idx.npy").exists():
        tokens, on = first_of(read_tokens(folder, "train")), "the tokenized train split"
    else:
        tokens, on = made_up(), "made-up documents: run the tokenize stage to audit with your own"
    vocab = max(2, int(tokens.tokens.max()) + 1)
    shape = ModelConfig.from_depth(
        params.depth, vocab, max_len=max(params.length, params.max_len), dropout=params.dropout
    )
    given = params.model_dump(
        exclude={"depth", "max_len", "dropout", "bf16", "attention", "parallel", "compile", "telemetry"}
    )
    config = PretrainConfig(
        **given,
        bf16=SWITCH[params.bf16],
        attention=None if params.attention == "auto" else params.attention,
    )
    with tempfile.TemporaryDirectory() as work:
        subject = Subject(shape, config, tokens)
        return audit(subject, Path(work), on_check), on


def first_of(shard: TokenShard) -> TokenShard:
    """The first documents of a shard."""
    count = max(1, int(np.searchsorted(shard.bounds, SHOWN_TOKENS)))
    count = min(count, len(shard))
    return TokenShard(np.asarray(shard.tokens[: shard.bounds[count]]), shard.bounds[: count + 1])


def made_up() -> TokenShard:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 300, MADE_UP)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    return TokenShard(rng.integers(0, VOCAB, int(bounds[-1])).astype(np.uint16), bounds)
