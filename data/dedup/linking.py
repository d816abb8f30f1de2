"""Links: similar texts that a protected difference keeps apart, so few of them that ten thousand siblings stay cheap.

They never merge, but share a cluster, which no split separates.
"""

from __future__ import annotations

import numpy as np

from data.dedup.candidates import buckets, spanning_forest, star_pairs
from data.dedup.config import FindConfig
from data.dedup.meet import Signed
from data.dedup.verify import Pile, Sets, Verified, joined


def linking(
    signed: Signed, rows: np.ndarray, sets: Sets, proposed: np.ndarray, merges: Verified, config: FindConfig
) -> tuple[Verified, int]:
    """The pairs of places in order of content, and how many candidates were verified.

    Candidates are the best record of each bucket with all of another fingerprint in it. Of those similar enough those
    stay that connect, at their similarity, what `merges` and stronger links leave apart.
    """
    pile = Pile(sets, config.floor, forest=True)
    pile.add(*proposed[sets.prints[proposed[:, 0]] != sets.prints[proposed[:, 1]]].T)
    for band in range(config.bands.count):
        for a, b in star_pairs(buckets(signed.band(band, rows))):
            differ = sets.prints[a] != sets.prints[b]
            pile.add(a[differ], b[differ])
    links = pile.verified()
    both = joined(merges, links)
    # the sort is stable, so that of equally similar pairs those that may merge come first
    needed = spanning_forest(len(rows), both.a, both.b, np.argsort(-both.similarity, kind="stable"))
    return links.only(needed[len(merges.a) :]), pile.seen
