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
from data.shards import read_table
from data.tokens import Ids, encode


@dataclass(frozen=True)
class Rows:
    """Encoded rows; `labels` index into `names`, IGNORE where a row has no label."""

    ids: list[str]
    tokens: list[Ids]
    labels: NDArray[np.int64]
    names: list[str]
    groups: list[str | None]
    sources: list[str]

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
        )

    def labelled(self) -> Rows:
        """Only the rows that have a label."""
        return self.take(np.flatnonzero(self.labels != IGNORE))


def load_rows(
    folder: Path, tokenizer: Tokenizer, preprocess: dict[str, Any], names: Sequence[str] | None = None
) -> Rows:
    """Encode a split's records as a checkpoint's `preprocess` says (the keywords of data.tokens.encode).

    Without `names` the labels are those of this split, sorted. Raises DaymillError for a label outside `names`.
    """
    table = read_table(folder, columns=["id", "text", "label", "group", "source"])
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
    )
