"""Numbers as bins: a value counts for the quantile of the examples in which it falls, so outliers do not outweigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Fine at both ends, where noise is.
QUANTILES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
BINS = len(QUANTILES) + 2  # the last is for what was not measured


@dataclass(frozen=True)
class Bins:
    """Upper edges of the bins of each number, [numbers, BINS - 2] float32, rising; equal edges leave bins empty."""

    edges: NDArray[np.float32]

    @staticmethod
    def of(numbers: NDArray[np.float32]) -> Bins:
        """Edges at the quantiles of each column; NaN does not count."""
        edges = np.full((numbers.shape[1], BINS - 2), np.inf, np.float32)
        for at, column in enumerate(numbers.T):
            known = column[~np.isnan(column)]
            if len(known):
                edges[at] = np.quantile(known, QUANTILES, method="lower")
        return Bins(edges)

    def places(self, numbers: NDArray[np.float32]) -> NDArray[np.int64]:
        """The bin of each number among all bins of all numbers, [texts, numbers]."""
        found = np.empty(numbers.shape, np.int64)
        for at, column in enumerate(numbers.T):
            bins = np.searchsorted(self.edges[at], column, side="left")
            found[:, at] = np.where(np.isnan(column), BINS - 1, bins) + at * BINS
        return found

    def one_hot(self, numbers: NDArray[np.float32]) -> Any:
        """The bins as a sparse matrix, [texts, numbers * BINS]."""
        from scipy.sparse import csr_matrix

        places = self.places(numbers)
        ends = np.arange(len(numbers) + 1) * numbers.shape[1]
        shape = (len(numbers), numbers.shape[1] * BINS)
        return csr_matrix((np.ones(places.size, np.float32), places.ravel(), ends), shape=shape)

    def add_up(self, numbers: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of the weights of each text's bins."""
        return weights[self.places(numbers)].sum(axis=1, dtype=np.float32)
