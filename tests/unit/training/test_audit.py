"""The audit holds for a sound engine, and each of its checks fails where what it looks at is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from data.batching import PackedRows, pack_documents
from data.tokens import TokenShard
from training import audit, ranks, step
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.loader import TokenBatch
from training.model import Transformer
from training.precision import Precision
from training.ranks import token_loss_sum

CONFIG = PretrainConfig(tokens=40 * 4 * 24, length=24, rows=4, precision="fp32", attention="plain")


@pytest.fixture(scope="module")
def subject() -> audit.Subject:
    rng = np.random.default_rng(0)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(2, 40, 60))])
    tokens = TokenShard(rng.integers(0, 50, int(bounds[-1])).astype(np.uint16), bounds)
    return audit.Subject(ModelConfig.from_depth(1, 50, max_len=24, dropout=0.1), CONFIG, tokens)


def test_everything_holds_for_a_sound_engine(subject: audit.Subject, tmp_path: Path) -> None:
    told: list[audit.Check] = []
    found = audit.audit(subject, tmp_path, told.append)
    assert [check.held for check in found] == [True] * len(audit.CHECKS), [audit.line(check) for check in found]
    assert told == found and "all 10 checks held" in audit.verdict(found)


def mean_loss(model: Transformer, batch: TokenBatch, precision: Precision = "fp32") -> Tensor:
    return token_loss_sum(model, batch, precision) / max(1, batch.tokens)


def leaky(*given: Any) -> Tensor:
    length: int = given[0]
    return torch.zeros(1, 1, length, length)


def losing(shard: TokenShard, capacity: int, seed: int | None) -> PackedRows:
    packed = pack_documents(shard, capacity, seed)
    return PackedRows(packed.ids[:-1], packed.targets[:-1], packed.docs[:-1])


def forgetful(model: Any, optimizer: Any, tensors: Any) -> None:
    model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model/")})


def all_decay(model: Any) -> tuple[list[str], list[str]]:
    return [name for name, _ in model.named_parameters()], []


@pytest.mark.parametrize(
    ("name", "where", "attribute", "broken"),
    [
        ("micro-batches", audit, "token_loss_sum", mean_loss),
        ("packing leaks", __import__("training.model", fromlist=["x"]), "attention_bias", leaky),
        ("packing", audit, "pack_documents", losing),
        ("schedule", audit, "rate_of", lambda *_: 1e-3),
        ("weight decay", audit, "decay_groups", all_decay),
        ("non-finite", step.math, "isfinite", lambda _: True),
        ("resume", ranks, "restore_training", forgetful),
    ],
)
def test_a_check_fails_where_its_matter_is_broken(
    name: str,
    where: Any,
    attribute: str,
    broken: Callable[..., Any],
    subject: audit.Subject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, attribute, broken)
    held, _ = audit.CHECKS[name](subject, tmp_path)
    assert not held


def test_it_holds_for_thresholds_and_skipped_backward_passes_too(subject: audit.Subject, tmp_path: Path) -> None:
    shape = ModelConfig.from_depth(1, 50, max_len=24, activation="dsrelu", theta=0.1, kv_heads=1)
    run = replace(CONFIG, skip="neurons", smoothing=0.1)
    found = audit.audit(audit.Subject(shape, run, subject.tokens), tmp_path)
    assert all(check.held for check in found), [audit.line(check) for check in found]
