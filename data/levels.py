"""Levels 4 and 5 of cleaning upon what the first three kept: records are weighed, and dropped only where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.adapt.domain import AdaptConfig, adapt
from data.adapt.target import Target
from data.cleaning import Decisions, Dropped, Facts
from data.scoring import texts_at


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
        pool_labels=[facts.labels[row] for row in rows.tolist()],
    )
    for at in np.flatnonzero(~adapted.keep).tolist():
        found.dropped[int(rows[at])] = Dropped("domain", float(adapted.log_ratios[at]))
        found.relabelled.pop(int(rows[at]), None)
    weigh(found, rows, adapted.weights)
    return adapted.report


def weigh(found: Decisions, rows: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
    """Multiply the weights of some rows; those of the kept records have the mean 1 again afterwards."""
    whole = np.ones(found.rows, np.float32) if found.weights is None else found.weights.copy()
    whole[rows] *= weights
    keeps = found.keeps()
    whole[keeps] /= whole[keeps].mean(dtype=np.float64)
    found.weights = whole
