"""Labelled records as encoded rows: what classification trains on and is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data.batching import IGNORE
from data.errors import DaymillError
from data.shards import opened, read_table, shard_files
from data.tokens import Ids, encode


@dataclass(frozen=True)
class Rows:
    """Encoded rows; `labels` index into `names`, IGNORE where a row has no label.

    `weights` [N] say how much a row counts in training; None where all count alike.
    """

    ids: list[str]
    tokens: list[Ids]
    labels: NDArray[np.int64]
    names: list[str]
    groups: list[str | None]
    sources: list[str]
    weights: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(row) for row in self.tokens], dtype=np.int64)

    def take(self, index: Sequence[int] | NDArray[np.integer]) -> Rows:
        """The rows at `index`, in that order."""
        where = [int(i) for i in index]
        return Rows(
            ids=[self.ids[i] for i in where],
            tokens=[self.tokens[i] for i in where],
            labels=self.labels[where],
            names=self.names,
            groups=[self.groups[i] for i in where],
            sources=[self.sources[i] for i in where],
            weights=None if self.weights is None else self.weights[where],
        )

    def labelled(self) -> Rows:
        """Only the rows that have a label."""
        return self.take(np.flatnonzero(self.labels != IGNORE))


def load_rows(
    folder: Path, tokenizer: Tokenizer, preprocess: dict[str, Any], names: Sequence[str] | None = None
) -> Rows:
    """Encode a split's records as a checkpoint's `preprocess` says (the keywords of data.tokens.encode).

    Without `names` the labels are those of this split, sorted. Raises DaymillError for a label outside `names`, and for
    a weight that is negative or not finite.
    """
    weighted = all(has_weights(path) for path in shard_files(folder))
    table = read_table(folder, columns=["id", "text", "label", "group", "source", *(["weight"] if weighted else [])])
    labels: list[str | None] = table["label"].to_pylist()
    known = sorted({label for label in labels if label is not None}) if names is None else list(names)
    code: dict[str | None, int] = {name: at for at, name in enumerate(known)} | {None: IGNORE}
    ids: list[str] = table["id"].to_pylist()
    if strange := [at for at, label in enumerate(labels) if label not in code]:
        raise DaymillError(
            f"{folder}: {len(strange)} rows have a label that the train split lacks (first ids: "
            f"{', '.join(ids[at] for at in strange[:5])}); expected only the {len(known)} labels of the train split"
        )
    return Rows(
        ids=ids,
        tokens=encode(tokenizer, table["text"].to_pylist(), **preprocess),
        labels=np.array([code[label] for label in labels], dtype=np.int64),
        names=known,
        groups=table["group"].to_pylist(),
        sources=table["source"].to_pylist(),
        weights=row_weights(table["weight"].to_pylist(), ids, folder) if weighted else None,
    )


def has_weights(path: Path) -> bool:
    with opened(path) as file:
        return "weight" in file.schema_arrow.names


def row_weights(weights: Sequence[float | None], ids: Sequence[str], folder: Path) -> NDArray[np.float32] | None:
    """Weights [N], 1 where there is none; None where every row weighs 1, so that nothing is multiplied."""
    found = np.array([1.0 if weight is None else weight for weight in weights], dtype=np.float32)
    if wrong := np.flatnonzero(~np.isfinite(found) | (found < 0)).tolist():
        raise DaymillError(
            f"{folder}: {len(wrong)} rows have a weight that is negative or not finite (first ids: "
            f"{', '.join(ids[at] for at in wrong[:5])}); expected 0 or more, 1 being a row like any other"
        )
    return None if (found == 1).all() else found
