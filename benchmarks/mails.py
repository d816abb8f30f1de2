"""The sample's mails as tokens, for measurements that want real text (`daymill sample spam` fetches them)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.tokens import Ids, TokenShard, encode, parse_tokenizer, train_tokenizer

FOLDER = Path("input/spam")
LEARNED_FROM = 2000  # mails


def mail_texts(chars: int = 4000) -> list[str]:
    """The first characters of every mail, in an order that is the same everywhere."""
    files = sorted(FOLDER.glob("*.jsonl"))
    if not files:
        raise SystemExit(f"{FOLDER}: no mails there; run `daymill sample spam` first")
    texts = [json.loads(line)["text"][:chars] for path in files for line in path.open(encoding="utf-8")]
    return [texts[at] for at in np.random.default_rng(0).permutation(len(texts))]


def mail_tokens(vocab: int, max_len: int = 1024, chars: int = 4000) -> list[Ids]:
    """Every mail's tokens, by a tokenizer that learned from some of them."""
    texts = mail_texts(chars)
    tokenizer = parse_tokenizer(train_tokenizer(texts[:LEARNED_FROM], vocab))
    return encode(tokenizer, texts, max_len, chars)


def mail_shards(vocab: int, max_len: int = 1024, chars: int = 4000) -> tuple[TokenShard, TokenShard]:
    """Train and validation tokens: every tenth mail is for validation."""
    ids = mail_tokens(vocab, max_len, chars)
    return joined([each for n, each in enumerate(ids) if n % 10]), joined(ids[::10])


def joined(documents: Sequence[NDArray[np.integer]]) -> TokenShard:
    bounds = np.concatenate([[0], np.cumsum([len(each) for each in documents])])
    return TokenShard(np.concatenate(documents).astype("<u2"), bounds)
