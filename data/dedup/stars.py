"""Near duplicates become stars: every member is verified against the one record that stays, never through a chain.

A chain would merge what nobody compared: (1, 3) and (2, 4) verified among candidates (1, 2, 3, 4) are two clusters
(text-dedup#132). What stands near without being merged shares a cluster that no split may separate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Stars:
    """Rows that go, the row that each of them goes to, and their exact similarity; ordered by member."""

    members: Rows
    survivors: Rows
    similarity: NDArray[np.float64]


def stars(position: Rows, a: Rows, b: Rows, similarity: NDArray[np.float64]) -> Stars:
    """Survivors of verified pairs (a[i], b[i]).

    `position` [rows] is the order in which records survive, smallest first, each value once; it must follow from
    content, so that the order of rows and pairs changes nothing. Going through it, a record that no earlier survivor
    took survives itself and takes its neighbors that are still free.
    """
    first = np.where(position[a] < position[b], a, b)
    second = np.where(position[a] < position[b], b, a)
    order = np.lexsort((position[second], position[first]))
    taken: dict[int, tuple[int, float]] = {}
    for index in order.tolist():
        center, member = int(first[index]), int(second[index])
        if center not in taken and member not in taken:
            taken[member] = (center, float(similarity[index]))
    members = np.array(sorted(taken), dtype=np.int64)
    return Stars(
        members,
        np.array([taken[member][0] for member in members.tolist()], dtype=np.int64),
        np.array([taken[member][1] for member in members.tolist()], dtype=np.float64),
    )


def components(rows: int, position: Rows, a: Rows, b: Rows) -> Rows:
    """For each row the row with the smallest position that pairs connect it with; itself where it is alone."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(a), dtype=np.int8), (a, b)), shape=(rows, rows))
    _, labels = connected_components(graph, directed=False)
    order = np.argsort(position, kind="stable")
    _, first = np.unique(labels[order], return_index=True)
    return order[first][labels]
