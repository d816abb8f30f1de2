"""Levels 4 and 5 of cleaning upon what the first three kept: records are weighed, and dropped only where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.adapt.domain import AdaptConfig, adapt
from data.adapt.target import Target
from data.cleaning import Decisions, Dropped, Facts
from data.debias.config import DebiasConfig, DebiasRefused
from data.scoring import texts_at

REPRESENTATION = pa.schema([("id", pa.string()), ("features", pa.list_(pa.float32()))])


def adapt_domain(
    records: Path, facts: Facts, found: Decisions, target: Target | None, config: AdaptConfig
) -> dict[str, Any] | None:
    """Weigh the kept records by their nearness to the target, or drop the far ones; the level's report."""
    if target is None:
        return None
    rows = np.flatnonzero(found.keeps())
    adapted = adapt(
        texts_at(records, rows),
        target.texts,
        config,
        labels=target.labels,
        pool_labels=[label for label, keep in zip(found.labels_after(facts.labels), found.keeps()) if keep],
    )
    for at in np.flatnonzero(~adapted.keep).tolist():
        found.dropped[int(rows[at])] = Dropped("domain", float(adapted.log_ratios[at]))
        found.relabelled.pop(int(rows[at]), None)
    weigh(found, rows, adapted.weights)
    return adapted.report


def remove_bias(
    records: Path,
    facts: Facts,
    groups: Sequence[str | None],
    found: Decisions,
    config: DebiasConfig,
    on_collapse: Literal["refuse", "skip"],
) -> tuple[dict[str, Any], pa.Table]:
    """Weigh the kept records so that training learns less of their groups; the level's report, and the features of mode
    representation (id, features). Raises DebiasRefused where it does harm, unless `on_collapse` is skip."""
    from data.debias.debias import debias  # brings torch

    rows = np.flatnonzero(found.keeps())
    known = found.labels_after(facts.labels)
    labels, told = [known[row] for row in rows.tolist()], [groups[row] for row in rows.tolist()]
    features = None
    try:
        done = debias(texts_at(records, rows), labels, told, config)
        weigh(found, rows, done.weights)
        report, features = done.report, done.features
    except DebiasRefused as refused:
        if on_collapse == "refuse":
            raise
        report = {**refused.report, "verdict": "skipped", "reason": str(refused)}
    if features is None:
        return report, REPRESENTATION.empty_table()
    ids = pa.array([facts.ids[row] for row in rows.tolist()], pa.string())
    flat = pa.array(features.astype(np.float32).ravel())
    return report, pa.table([ids, pa.FixedSizeListArray.from_arrays(flat, features.shape[1])], names=["id", "features"])


def weigh(found: Decisions, rows: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
    """Multiply the weights of some rows; those of the kept records have the mean 1 again afterwards."""
    whole = np.ones(found.rows, np.float32) if found.weights is None else found.weights.copy()
    whole[rows] *= weights
    keeps = found.keeps()
    whole[keeps] /= whole[keeps].mean(dtype=np.float64)
    found.weights = whole
