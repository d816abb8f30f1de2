"""Whether two texts say the same sentences in another order, so that the order of their items states nothing.

"Rent is 500 euro. The deposit is 900 euro." may be told the other way round. Values that change places between
sentences are found, since the sentences are then others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from data.quality.scripts import TOKEN

END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])\s*")
# A shorter one may lean on its neighbors: "Bisoprolol. 5 mg daily. Ramipril. 10 mg daily."
SELF_CONTAINED = 6


def reordered(a: str, b: str, states: Callable[[str], bool]) -> bool:
    """Whether the sentences that state something protected are word for word the same in two normalized texts, and
    those out of place are long enough to stand for themselves."""
    left, right = (_stating(text, states) for text in (a, b))
    if Counter(left) != Counter(right):
        return False
    return all(len(TOKEN.findall(sentence)) >= SELF_CONTAINED for sentence in _out_of_place(left, right))


def _stating(text: str, states: Callable[[str], bool]) -> list[str]:
    return [sentence.rstrip(".!?;。！？； ") for sentence in END.split(text) if states(sentence)]


def _out_of_place(a: Sequence[str], b: Sequence[str]) -> Sequence[str]:
    """Of two orders of the same sentences, all between the first and the last place in which they differ."""
    places = [place for place, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    return a[places[0] : places[-1] + 1] if places else []
