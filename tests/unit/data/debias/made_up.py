"""Records whose label is told by words of merit, and whose group by words that a fair classifier has no use for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Corpus(NamedTuple):
    texts: list[str]
    labels: list[str | None]
    groups: list[str | None]

    def take(self, index: list[int]) -> Corpus:
        return Corpus(*([column[i] for i in index] for column in self))


def corpus(count: int, seed: int = 0, shares: dict[str, float] | None = None, tells: bool = True) -> Corpus:
    """`shares`: the share of label yes in each group; `tells`: whether texts hold words of their group."""
    rng = np.random.default_rng(seed)
    shares = shares or {"a": 0.65, "b": 0.3}
    names = sorted(shares)
    texts, labels, groups = [], [], []
    for _ in range(count):
        group = names[int(rng.integers(len(names)))]
        label = bool(rng.random() < shares[group])
        merit = [f"{'good' if (rng.random() < 0.66) == label else 'poor'}{rng.integers(8)}" for _ in range(5)]
        told = group if tells else names[int(rng.integers(len(names)))]
        origin = [f"{told if rng.random() < 0.85 else rng.choice(names)}word{rng.integers(5)}" for _ in range(3)]
        filler = [f"filler{rng.integers(40)}" for _ in range(6)]
        texts.append(" ".join(rng.permutation([*merit, *origin, *filler])))
        labels.append("yes" if label else "no")
        groups.append(group)
    return Corpus(texts, labels, groups)
