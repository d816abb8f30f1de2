"""The records that debiasing can compare, in an order that follows from their content alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.debias.config import DebiasConfig
from data.debias.features import digests
from data.errors import DaymillError

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

CHECK_PERCENT = 15
LEAST = 5  # records of a group or label in each part, for a model to learn it or a rate to be told
NONE = -1  # the code of a missing label or group, and of one with too few records


@dataclass(frozen=True)
class Cases:
    """N records by content: `order` says where each one was given; codes index into the names, NONE is outside them.

    `learn` are the records that models may learn from, `held` those that only judge; `fold` cuts the former.
    """

    order: Codes
    labels: Codes
    groups: Codes
    label_names: list[str]
    group_names: list[str]
    learn: Codes
    held: Codes
    fold: Codes  # of each record in `learn`
    check: Flags  # of each record in `learn`: a part to choose by, where folds would cost too much
    reason: str  # why nothing can be compared; "" where it can
    counts: dict[str, int]
    group_report: dict[str, dict[str, Any]]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.group_names), len(self.label_names)


def cases_of(
    texts: Sequence[str],
    labels: Sequence[str | None],
    groups: Sequence[str | None],
    config: DebiasConfig,
) -> Cases:
    """Sort records out. Raises DaymillError where the three do not have the same length."""
    if not len(texts) == len(labels) == len(groups):
        raise DaymillError(
            f"debiasing needs a label and a group, or None, for each text; {len(texts)} texts, {len(labels)} labels "
            f"and {len(groups)} groups given"
        )
    digest = digests(texts, config.seed)
    order = np.array(
        sorted(range(len(texts)), key=lambda i: (int(digest[i]), labels[i] or "", groups[i] or "")), dtype=np.int64
    )
    digest = digest[order]
    ordered_labels, ordered_groups = [labels[i] for i in order], [groups[i] for i in order]

    both = [(a, b) for a, b in zip(ordered_labels, ordered_groups, strict=True) if a is not None and b is not None]
    group_counts = Counter(group for _, group in both)
    group_names = sorted(name for name, count in group_counts.items() if count >= config.min_group)
    label_counts = Counter(label for label, group in both if group_counts[group] >= config.min_group)
    label_names = sorted(name for name, count in label_counts.items() if count >= config.min_group)

    label_codes, group_codes = _codes(ordered_labels, label_names), _codes(ordered_groups, group_names)
    used = np.flatnonzero((label_codes != NONE) & (group_codes != NONE))[: config.max_records]
    # A few bits each of the digest: equal texts always fall into the same part.
    held = digest[used] % 10_000 < config.held_out * 10_000
    learn = used[~held]
    fold = ((digest[learn] // 10_000) % config.folds).astype(np.int64)
    check = (digest[learn] // 1_000_000) % 100 < CHECK_PERCENT
    parts = [used[held], learn[check], learn[~check], *(learn[fold == k] for k in range(config.folds))]
    counts = {
        "given": len(texts),
        "labelled": sum(label is not None for label in labels),
        "without_group": sum(group is None for group in groups),
        "in_small_groups": sum(count for name, count in group_counts.items() if name not in group_names),
        "in_rare_labels": sum(count for name, count in label_counts.items() if name not in label_names),
        "learned_from": len(learn),
        "held_out": int(held.sum()),
    }
    return Cases(
        order=order,
        labels=label_codes,
        groups=group_codes,
        label_names=label_names,
        group_names=group_names,
        learn=learn,
        held=used[held],
        fold=fold,
        check=check,
        reason=_reason(group_counts, group_names, label_names, config) or _thin(label_codes, group_codes, parts),
        counts=counts,
        group_report={
            name: {
                "records": count,
                "compared": name in group_names,
                "labels": {
                    label: int(((label_codes == at) & (group_codes == group_names.index(name))).sum())
                    for at, label in enumerate(label_names)
                    if name in group_names
                },
            }
            for name, count in sorted(Counter(group for group in ordered_groups if group is not None).items())
        },
    )


def _reason(counts: Counter[Any], groups: list[str], labels: list[str], config: DebiasConfig) -> str:
    if not counts:
        return "no record has both a label and a group"
    if len(groups) < 2:
        return (
            f"fewer than two groups have {config.min_group} labelled records (groups found: {len(counts)}, "
            f"the largest with {max(counts.values())})"
        )
    if len(labels) < 2:
        return f"fewer than two labels have {config.min_group} records in these groups"
    return ""


def _thin(labels: Codes, groups: Codes, parts: list[Codes]) -> str:
    """Why the parts are too small to learn from or to judge by; "" where they are not."""
    for part in parts:
        for codes in (labels[part], groups[part]):
            if (np.bincount(codes) >= LEAST).sum() < 2:
                return f"too few records: a part of {len(part)} has not {LEAST} of two groups and of two labels"
    return ""


def _codes(values: Sequence[str | None], names: list[str]) -> Codes:
    code: dict[str | None, int] = {name: at for at, name in enumerate(names)}
    return np.array([code.get(value, NONE) for value in values], dtype=np.int64)
