"""Protected differences: what makes two texts different statements however alike their words are.

"Take 5 mg" and "take 50 mg" are one edit apart. A text is read as the ordered sequence of its protected items: numbers
with units, dates, negation, sides, episodes, drug names, and the user's own words and patterns. Texts whose sequences
differ do not merge, unless whole sentences only changed places; the 64-bit hash of the sequence lets a million texts be
compared by buckets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from data.dedup.chunks import HAS_UNSPACED
from data.dedup.items import KINDS, Item, Reader
from data.dedup.patterns import checked_words, compile_patterns
from data.dedup.sentences import reordered
from data.dedup.substitution import other_words, substituted
from data.errors import DaymillError
from data.text import normalize

# To be raised when other items are read of the same text: fingerprints of two versions are never compared.
SCHEME = 1


@dataclass(frozen=True)
class ProtectConfig:
    """What must not differ between texts that merge. Raises DaymillError for unknown kinds and bad patterns.

    `words` and `patterns` (regular expressions) are the user's own; both are matched without regard to case, on the
    text as `data.text.normalize` leaves it. `substitution: strict` also protects every replaced content word, and
    `exact` every added and removed one too.

    Some numbers and negations state nothing, so by default they keep no copies apart: `addresses` (URLs, mail addresses
    and message ids: what differs there is a tracking id, and two copies of one newsletter are copies), `markup` (HTML
    tags: sizes and colors), `footers` (the negations of mail footers, "please do not reply to this mail", and copyright
    years). `codes` (ten and more letters and digits in turns) are protected by default, since most name an order or a
    payment; ignore them where they are what spam adds to look new.
    """

    kinds: tuple[str, ...] = KINDS
    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    substitution: Literal["content", "strict", "exact"] = "content"
    markup: Literal["ignore", "protect"] = "ignore"
    addresses: Literal["ignore", "protect"] = "ignore"
    codes: Literal["ignore", "protect"] = "protect"
    footers: Literal["ignore", "protect"] = "ignore"

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise DaymillError(f"protect.kinds: {kind!r} is no kind; expected some of {', '.join(KINDS)}")
        choices = dict.fromkeys(("markup", "addresses", "codes", "footers"), ("ignore", "protect"))
        for name, allowed in {"substitution": ("content", "strict", "exact"), **choices}.items():
            if getattr(self, name) not in allowed:
                raise DaymillError(
                    f"protect.{name} is {getattr(self, name)!r}; expected {', '.join(allowed[:-1])} or {allowed[-1]}"
                )
        checked_words(self.words)
        compile_patterns(self.patterns)


def protect_config(knobs: Mapping[str, Any]) -> ProtectConfig:
    """What `score.near_duplicates` of params.yaml says about protection; its other knobs are passed over."""
    lists = {"protect": "kinds", "protect_words": "words", "protect_patterns": "patterns"}
    said: dict[str, Any] = {field: tuple(knobs[name]) for name, field in lists.items() if name in knobs}
    for name in ("substitution", "markup", "addresses", "codes", "footers"):
        if name in knobs:
            said[name] = knobs[name]
    return ProtectConfig(**said)


class Protector:
    """Reads protected items; cheap to pickle, since only its config travels."""

    def __init__(self, config: ProtectConfig | None = None) -> None:
        self.config = config or ProtectConfig()
        words = sorted(set(map(normalize, checked_words(self.config.words))))
        self._reader = Reader(
            frozenset(self.config.kinds),
            [word for word in words if not HAS_UNSPACED.search(word)],
            markup=self.config.markup == "protect",
            addresses=self.config.addresses == "protect",
            codes=self.config.codes == "protect",
            footers=self.config.footers == "protect",
        )
        # without spaces there are no whole words to look for
        parts = [re.escape(word) for word in sorted(words, key=len, reverse=True) if HAS_UNSPACED.search(word)]
        self._patterns = [("word", re.compile("|".join(parts)))] if parts else []
        self._patterns += [("pattern", pattern) for pattern in compile_patterns(self.config.patterns)]

    def __reduce__(self) -> tuple[Callable[[ProtectConfig], Protector], tuple[ProtectConfig]]:
        return type(self), (self.config,)

    @property
    def pairwise(self) -> bool:
        """Whether the fingerprint does not say everything, so that `veto` must be asked for each pair."""
        return self.config.substitution != "content"

    def items(self, text: str) -> list[Item]:
        """The protected items (kind, canonical value) in the order of the text; what patterns match comes behind."""
        items = self._reader.read(text)
        if self._patterns:
            normalized = normalize(text)
            items += [(kind, found[0]) for kind, pattern in self._patterns for found in pattern.finditer(normalized)]
        return items

    def fingerprint(self, text: str) -> int:
        """64 bits (unsigned) that two texts share when their protected items are the same in the same order."""
        return _digest(self.items(text))

    def veto(self, a: str, b: str) -> str | None:
        """The kind of the first protected difference of two texts, or None where they may merge.

        None too where the same sentences come in another order, though the fingerprints then differ.
        """
        left, right = self.items(a), self.items(b)
        kind = difference(left, right)
        if kind is not None and sorted(left) == sorted(right):
            kind = None if reordered(normalize(a), normalize(b), lambda text: bool(self.items(text))) else kind
        if kind is None and self.pairwise:
            differ = substituted if self.config.substitution == "strict" else other_words
            return "substitution" if differ(normalize(a), normalize(b)) else None
        return kind


def difference(a: Sequence[Item], b: Sequence[Item]) -> str | None:
    """The kind in which two item sequences differ first, None where they are equal.

    The first kind, in the order of the text, whose own items differ: an inserted "no" is named as a negation though
    it moves every item behind it. "order" where only the order across kinds differs.
    """
    if a == b:
        return None
    own: dict[str, tuple[list[str], list[str]]] = {}
    for side, items in enumerate((a, b)):
        for kind, value in items:
            own.setdefault(kind, ([], []))[side].append(value)
    differing = {kind for kind, (left, right) in own.items() if left != right}
    if not differing:
        return "order"
    for x, y in zip_longest(a, b):
        if x != y and (here := differing.intersection(item[0] for item in (x, y) if item is not None)):
            return min(here)
    return min(differing)


def _digest(items: Sequence[Item]) -> int:
    # joined by characters that normalized text cannot have, so that no two sequences read alike
    joined = "\n".join([f"{kind}\t{value}" for kind, value in items])
    return int.from_bytes(hashlib.blake2b(joined.encode("utf-8", "replace"), digest_size=8).digest(), "little")
