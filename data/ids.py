"""Ids that were seen: 16 bytes each, so that the ids of a file larger than memory fit in it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

YOUNG = 1 << 18  # ids in a Python set (about 100 bytes each) before they are packed


class SeenIds:
    """A set of id digests (128-bit BLAKE2b: among a billion ids an accidental equality has a chance of 1e-21).

    New ones go to a Python set; full sets are packed into sorted arrays, which are merged so that few of them exist.
    """

    def __init__(self) -> None:
        self.young: set[bytes] = set()
        self.old: list[tuple[np.ndarray, np.ndarray]] = []  # sorted high halves, their low halves; large ones first

    def admit(self, ids: list[str]) -> list[bool]:
        """Whether each id is new, in order; a second one in the same list is not."""
        digests = [hashlib.blake2b(id_.encode(), digest_size=16).digest() for id_ in ids]
        packed = self.in_old(digests) if self.old else ()
        young = self.young
        answers = []
        for place, digest in enumerate(digests):
            new = place not in packed and digest not in young
            if new:
                young.add(digest)
            answers.append(new)
        if len(young) >= YOUNG:
            self.pack()
        return answers

    def __len__(self) -> int:
        return len(self.young) + sum(len(high) for high, _ in self.old)

    def in_old(self, digests: list[bytes]) -> set[int]:
        """Places in `digests` of those that are packed already."""
        import numpy as np

        high, low = halves(digests)
        found: set[int] = set()
        for old_high, old_low in self.old:
            left = np.searchsorted(old_high, high, "left")
            right = np.searchsorted(old_high, high, "right")
            for place in np.flatnonzero(right > left):  # nearly all of these are real: 64 bits are equal
                if low[place] in old_low[left[place] : right[place]]:
                    found.add(int(place))
        return found

    def pack(self) -> None:
        import numpy as np

        high, low = halves(sorted(self.young))
        self.young = set()
        while self.old and len(self.old[-1][0]) <= 2 * len(high):
            old_high, old_low = self.old.pop()
            high, low = np.concatenate([old_high, high]), np.concatenate([old_low, low])
        order = np.argsort(high, kind="stable")
        self.old.append((high[order], low[order]))


def halves(digests: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    pairs = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
