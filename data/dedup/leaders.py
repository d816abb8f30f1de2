"""Many records that may all be near each other: the best one leads, those near it follow, then the best of the others.

That is how clusters are decided later, so that few pairs say all that matters: of a hundred thousand mails of one
campaign a few for each mail, not billions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from data.dedup.candidates import PAIRS, Buckets
from data.dedup.jaccard import overlap
from data.dedup.verify import Sets, Verified


@dataclass
class Leaders:
    """How many leaders each record was found near to so far, in all groups that were gone through."""

    sets: Sets
    floor: float  # similarity from which a pair is told
    near: float  # ... and from which a record follows
    enough: int  # leaders to follow before a record leaves; as many pairs below `near` are told
    strong: np.ndarray = field(init=False)  # uint8, pairs at `near` or above, by the later place
    weak: np.ndarray = field(init=False)  # ... and below

    def __post_init__(self) -> None:
        self.strong, self.weak = (np.zeros(len(self.sets.begins), np.uint8) for _ in range(2))

    def follow(self, groups: Buckets, group: int, rounds: int = PAIRS) -> Verified:
        """Verified pairs (leader, follower) of one group, of the same protected fingerprint.

        At most `rounds` lead, fewer where that would be more than PAIRS comparisons.
        """
        start, size = int(groups.starts[group]), int(groups.sizes[group])
        members = groups.order[start : start + size].copy()
        rounds = max(1, min(rounds, PAIRS // size))
        most = size * min(rounds, 2 * self.enough)
        a, b, similarity = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
        sets, bars = self.sets, (self.floor, self.near, self.enough)
        where = (sets.values, sets.begins, sets.ends, sets.prints)
        count = _follow(where, members, rounds, bars, self.strong, self.weak, a, b, similarity)
        return Verified(a[:count].copy(), b[:count].copy(), similarity[:count].copy())


@njit(cache=True, nogil=True)
def _follow(where, members, rounds, bars, strong, weak, a, b, similarity):  # type: ignore[no-untyped-def]
    values, begins, ends, prints = where
    floor, near, enough = bars
    size = count = 0
    for member in members:
        if strong[member] < enough:
            members[size] = member
            size += 1
    for _ in range(rounds):
        if size < 2:
            break
        leader, left = members[0], 0
        for at in range(1, size):
            member = members[at]
            alike = 0.0
            if prints[member] == prints[leader]:  # two fingerprints in one bucket are an accident of hashing
                alike = overlap(values, begins[leader], ends[leader], begins[member], ends[member])
            if alike >= near or (alike >= floor and weak[member] < enough):
                a[count], b[count], similarity[count] = leader, member, alike
                count += 1
                if alike >= near:
                    strong[member] += 1
                else:
                    weak[member] += 1
            if strong[member] < enough:
                members[left] = member
                left += 1
        size = left
    return count
