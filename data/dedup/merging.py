"""Pairs that may merge: the same protected fingerprint, and similar enough.

Bands, caps and leaders leave pairs out. Where all partners of a record go to somebody that it was never compared with,
it would stay, maybe as a near duplicate of what stays. So what pairs connect is compared once more, as a group.
"""

from __future__ import annotations

import numpy as np

from data.dedup.candidates import Buckets, all_pairs, buckets, connected
from data.dedup.config import FindConfig
from data.dedup.leaders import Leaders
from data.dedup.meet import Signed
from data.dedup.verify import Pile, Sets, Verified

ENOUGH = 4  # leaders over all bands: one decides, others matter where the threshold is raised later
ODD = np.uint64(0x9E3779B97F4A7C15)


def merging(
    signed: Signed, rows: np.ndarray, sets: Sets, proposed: np.ndarray, config: FindConfig
) -> tuple[Verified, int]:
    """The pairs of places in order of content, and how many candidates were verified.

    `rows` [n] by place; `proposed` [m, 2] are places that did not meet in a band but elsewhere.
    """
    pile = Pile(sets, config.floor)
    pile.add(*proposed[sets.prints[proposed[:, 0]] == sets.prints[proposed[:, 1]]].T)
    leaders = Leaders(sets, config.floor, config.jaccard, ENOUGH)
    for band in range(config.bands.count):
        found = buckets(signed.band(band, rows) ^ (sets.prints * ODD))
        _compare(found, pile, leaders, config.max_bucket, rounds=config.max_bucket)
    pairs = pile.verified()
    near = pairs.similarity >= config.jaccard
    groups = buckets(connected(len(rows), pairs.a[near], pairs.b[near]))
    leaders = Leaders(sets, config.floor, config.jaccard, enough=1)
    _compare(groups.only(groups.sizes > 2), pile, leaders, config.max_bucket, rounds=len(rows))
    return pile.verified(), pile.seen


def _compare(groups: Buckets, pile: Pile, leaders: Leaders, cap: int, rounds: int) -> None:
    """All with all in groups of up to `cap`, with leaders in larger ones."""
    large = groups.sizes > cap
    for a, b in all_pairs(groups.only(~large)):
        alike = pile.sets.prints[a] == pile.sets.prints[b]  # two fingerprints in one bucket are an accident of hashing
        pile.add(a[alike], b[alike])
    for group in np.flatnonzero(large).tolist():
        pile.take(leaders.follow(groups, group, rounds))
