"""The figures of a cleaning, as plain values: what the page draws and report.json holds. No text is in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.cleaning import Decisions, Facts, largest_clusters
from data.ledger import read_ledger
from data.quality.rules import AtLeast, OneOf, Rule

BINS = 40
TAIL = 0.995  # of the values: a histogram ends here, and its last bar holds the rest
FAR, BEYOND = 10, 0.1
STEPS = 200
REDUNDANCY = ("exact_duplicate", "near_duplicate", "label_conflict")
REVIEW = ("reviewed",)
DOMAIN = ("domain",)


def levels(ingest_ledger: Path, decisions: Decisions, more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Records in and kept by each level, with what it dropped by rule and, from its own report, why it did what it did.

    Bias drops no record: it is among the levels where it ran, since it weighs them.
    """
    table = read_ledger(ingest_ledger, ["verdict", "rule"])
    refused = table.filter(pc.equal(table["verdict"], "quarantined"))
    rules = Counter(refused["rule"].to_pylist())
    dropped = Counter(gone.rule for gone in decisions.dropped.values())
    steps = [("format", rules)]
    quality = {rule: n for rule, n in dropped.items() if rule not in (*REDUNDANCY, *DOMAIN)}
    steps.append(("quality", Counter(quality)))
    steps.append(("redundancy", Counter({rule: n for rule, n in dropped.items() if rule in REDUNDANCY})))
    if more.get("bias"):
        steps.append(("bias", Counter()))
    steps.append(("domain", Counter({rule: n for rule, n in dropped.items() if rule in DOMAIN})))
    found, left = [], table.num_rows
    for name, gone in steps:
        kept = left - gone.total()
        found.append(
            {
                "name": name,
                "in": left,
                "kept": kept,
                "dropped_by_rule": dict(sorted(gone.items())),
                "note": str((more.get(name) or {}).get("reason") or ""),
            }
        )
        left = kept
    return found


def sources(of: Sequence[str], keeps: NDArray[np.bool_]) -> dict[str, dict[str, int]]:
    """Records in and kept by source file."""
    came, stayed = Counter(of), Counter(name for name, keep in zip(of, keeps.tolist(), strict=True) if keep)
    return {name: {"in": came[name], "kept": stayed[name]} for name in sorted(came)}


def histograms(measures: pa.Table, rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """How each measure that a rule looks at is spread, with its threshold."""
    found = []
    for rule in rules:
        if isinstance(rule, OneOf):
            continue
        values = measures[rule.measure].drop_null().to_numpy().astype(np.float64)
        if not len(values):
            continue
        threshold = float(rule.threshold)
        low, high = min(float(values.min()), threshold), float(np.quantile(values, TAIL))
        if threshold < FAR * max(high, 1.0):  # a threshold far out would leave one bar at the other end
            high = max(high, threshold + (BEYOND * (threshold - low) if values.max() > threshold else 0.0))
        edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        found.append(
            {
                "measure": rule.measure,
                "edges": [round(float(edge), 6) for edge in edges],
                "counts": counts.tolist(),
                "threshold": threshold,
                "direction": "min" if isinstance(rule, AtLeast) else "max",
                "rule": rule.rule,
            }
        )
    return found


def groups(facts: Facts, of: Sequence[str | None], keeps: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Each group's records, how many stay, and its labels among those that stay."""
    rows: dict[str, list[int]] = {}
    for row, group in enumerate(of):
        if group is not None:
            rows.setdefault(group, []).append(row)
    found = []
    for group in sorted(rows):
        kept = [row for row in rows[group] if keeps[row]]
        labels = Counter(label for label in (facts.labels[row] for row in kept) if label is not None)
        total = labels.total() or 1
        found.append(
            {
                "group": group,
                "records": len(rows[group]),
                "kept": len(kept),
                "label_shares": {label: round(count / total, 4) for label, count in sorted(labels.items())},
            }
        )
    return found


def noise(quality: pa.ChunkedArray, keeps: NDArray[np.bool_], bad_share: float | None) -> dict[str, Any] | None:
    """The share of noise before and after, as the learned model sees it; None without a model
    and where every text that is kept is too short for it.

    Its probabilities hold for the mix of its examples, `bad_share` of which were bad; the share in other records
    follows from theirs by expectation maximization (Saerens et al. 2002).
    """
    bad = 1 - quality.to_numpy().astype(np.float64)
    judged = ~np.isnan(bad)
    if bad_share is None or not (judged & keeps).any():
        return None
    return {
        "before": round(prevalence(bad[judged], bad_share), 4),
        "after": round(prevalence(bad[judged & keeps], bad_share), 4),
        "how": "by the learned model, its probabilities corrected for the share of noise in its examples; it knows "
        "kinds of noise, not wrong labels",
    }


def prevalence(bad: NDArray[np.float64], bad_share: float) -> float:
    """The share of bad records, from probabilities that hold where `bad_share` are bad."""
    share = bad_share
    for _ in range(STEPS):
        likely = share / bad_share * bad
        found = float((likely / (likely + (1 - share) / (1 - bad_share) * (1 - bad) + 1e-300)).mean())
        if abs(found - share) < 1e-7:
            break
        share = found
    return share


def redundancy(pairs: pa.Table, decisions: Decisions) -> dict[str, Any]:
    return {
        "verified": pairs.num_rows,
        "merged": sum(gone.rule == "near_duplicate" for gone in decisions.dropped.values()),
        "vetoed": dict(sorted(decisions.vetoed.items())),
    }


def figures(
    facts: Facts,
    measures: pa.Table,
    pairs: pa.Table,
    rules: Sequence[Rule],
    decisions: Decisions,
    ingest_ledger: Path,
    source: Sequence[str],
    group: Sequence[str | None],
    bad_share: float | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """All of it, as `data.clean_report.page` wants it; `more` has the levels' own reports."""
    keeps = decisions.keeps()
    return {
        "levels": levels(ingest_ledger, decisions, more),
        "sources": sources(source, keeps),
        "histograms": histograms(measures, rules),
        "clusters": largest_clusters(facts, decisions),
        "pairs": redundancy(pairs, decisions),
        "groups": groups(facts, group, keeps),
        "noise": noise(measures["quality"], keeps, bad_share),
        **more,
    }
