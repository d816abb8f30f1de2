"""What a classifier is worth: metrics with intervals by part, group and source, beside the baselines. Numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.metrics import accuracy, bootstrap_interval, paired_bootstrap

MOST_SLICES = 50  # groups or sources in a report, the largest first

Codes = NDArray[np.int64]


def part_report(
    truth: Codes, predicted: Codes, positive: int | None, baselines: Mapping[str, Codes]
) -> dict[str, float | int]:
    """The headline metric of one part with its interval, and the paired difference to TF-IDF on the same rows."""
    ours = bootstrap_interval(truth, predicted, positive)
    report: dict[str, float | int] = {
        "rows": len(truth),
        "f1": ours.value,
        "f1_low": ours.low,
        "f1_high": ours.high,
        "accuracy": accuracy(truth, predicted),
    }
    for name, codes in baselines.items():
        report[f"{name}_f1"] = bootstrap_interval(truth, codes, positive).value
    if "tfidf" in baselines:
        paired = paired_bootstrap(truth, predicted, baselines["tfidf"], positive)
        report |= {"paired_diff": paired.value, "paired_low": paired.low, "paired_high": paired.high}
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in report.items()}


def slice_report(
    keys: Sequence[str | None], truth: Codes, predicted: Codes, positive: int | None
) -> dict[str, dict[str, Any]]:
    """F1 and accuracy with intervals for each value of a slice attribute; rows without a value are left out.

    F1 is null where a slice has no row of the positive label: it would say nothing.
    """
    names, counts = np.unique([key for key in keys if key is not None], return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")][:MOST_SLICES]
    report = {}
    for name in sorted(largest.tolist()):
        rows = np.array([key == name for key in keys])
        t, p = truth[rows], predicted[rows]
        share = bootstrap_interval(t, p, positive, metric="accuracy")
        entry: dict[str, Any] = {"rows": len(t), "f1": None, "f1_low": None, "f1_high": None}
        if positive is None or (t == positive).any():
            ours = bootstrap_interval(t, p, positive)
            entry |= {"f1": round(ours.value, 6), "f1_low": round(ours.low, 6), "f1_high": round(ours.high, 6)}
        entry |= {
            "accuracy": round(share.value, 6),
            "accuracy_low": round(share.low, 6),
            "accuracy_high": round(share.high, 6),
        }
        report[name] = entry
    return report
