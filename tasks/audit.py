"""The audit of the training engine on the checkout's own params.yaml; no stage: it writes nothing that lasts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data.tokens import TokenShard, read_tokens
from tasks.params import load
from tasks.pretrain import TOKENS, Pretrain
from training.audit import Check, Subject, audit

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
    with tempfile.TemporaryDirectory() as work:
        subject = Subject(params.shape(vocab), params.run(), tokens)
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
