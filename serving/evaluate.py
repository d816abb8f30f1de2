"""A bundle's own engine on labeled rows: the figures that the model card states and the gate compares."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.errors import DaymillError
from serving.engine import Engine
from training.metrics import Interval, bootstrap_interval, f1, macro_f1

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """Answers to N labeled rows, as codes into `labels`, with the headline F1 and its interval."""

    labels: tuple[str, ...]
    positive: int | None
    truth: Codes
    predicted: Codes
    f1: Interval
    majority_f1: float


def measure(engine: Engine, texts: Sequence[str], labels: Sequence[str], seed: int = 0, draws: int = 2000) -> Measured:
    """Answer every text and compare with its label. Raises DaymillError for a label that the model does not know."""
    manifest = engine.manifest
    truth = label_codes(labels, manifest.labels)
    positive = manifest.labels.index(manifest.positive) if manifest.binary and manifest.positive else None
    predicted = engine.predict(texts).chosen
    return Measured(
        manifest.labels,
        positive,
        truth,
        predicted,
        bootstrap_interval(truth, predicted, positive, draws=draws, seed=seed),
        majority_f1(truth, positive),
    )


def label_codes(labels: Sequence[str], known: Sequence[str]) -> Codes:
    """Index into `known` of each label [N]."""
    index = {label: code for code, label in enumerate(known)}
    unknown = [row for row, label in enumerate(labels) if label not in index]
    if unknown:
        raise DaymillError(
            f"{len(unknown)} of {len(labels)} rows have a label that the model does not know (rows {unknown[:5]}); "
            f"expected one of {list(known)}"
        )
    return np.array([index[label] for label in labels], dtype=np.int64)


def majority_f1(truth: Codes, positive: int | None) -> float:
    """Headline F1 of always giving the most frequent label."""
    if not len(truth):
        return 0.0
    constant = np.full_like(truth, np.bincount(truth).argmax())
    return f1(truth, constant, positive) if positive is not None else macro_f1(truth, constant)


def latency_ms(engine: Engine, texts: Sequence[str], calls: int = 50) -> float:
    """Median milliseconds from a text to its answer, one at a time, over up to `calls` texts after warming up."""
    chosen = [texts[at] for at in np.linspace(0, len(texts) - 1, min(calls, len(texts))).round().astype(int)]
    for text in chosen[:5]:
        engine.predict([text])
    times = []
    for text in chosen:
        start = time.perf_counter()
        engine.predict([text])
        times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e3) if times else 0.0
