"""A text's chunks between white space: how they are cut into tokens, and what is remembered of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, TypeVar

from data.dedup import han, units, vocabulary
from data.dedup.classify import (
    BEFORE,
    COPYRIGHT,
    DESIGNATOR,
    EYE,
    HAN_DRUG,
    HAN_NUMBER,
    MONTH,
    NEGATION,
    NUMBER,
    PHRASE,
    WEEKDAY,
    Code,
)
from data.dedup.lists import words
from data.dedup.quantities import HYPHENS, Item
from data.quality.scripts import UNSPACED
from data.text import MAIL, URL

SIGNS = r"(?<!\w)[-+](?=[.\d$€£])|(?<![\w.])\.(?=\d)|[<>]=?(?=\d|$)"
ASCII_TOKEN = re.compile(rf"\w+(?:(?<=\d)[.,:/-](?=\d)\w+|'t\b)*|[$%]|{SIGNS}")
WORD = rf"[^\W{UNSPACED}]+"
WIDE_TOKEN = re.compile(
    rf"{WORD}(?:(?<=\d)[.,:/⁄{HYPHENS}](?=\d){WORD}|['’]t\b)*|[$%‰°€£¥₹₽₩©]|(?<!\w)−(?=[.\d$€£])|[≤≥](?=\d|$)|{SIGNS}"
)
# runs in which there is nothing to look for, then what there may be, then words as elsewhere
UNSPACED_TOKEN = re.compile(
    rf"(?:(?![{han.FIRST}])[{UNSPACED}])+"
    rf"|{han.PERCENT}|第?[{han.NUMERALS}]+|{'|'.join(han.SPECIAL)}|[{UNSPACED}]"
    rf"|{WIDE_TOKEN.pattern}"
)
HAS_UNSPACED = re.compile(f"[{UNSPACED}]")
UNIT_ATTACHED = re.compile(r"\d[^\W\d_]+$")
# With a second point it may be a date.
PLAIN = re.compile(r"[0-9]+(?:,[0-9]+)*(?:\.[0-9]+)?(?:,[0-9]+)*")
ADDRESS = re.compile(rf"{URL}|<?(?<![\w.+-]){MAIL}>?")
# By their names, since a note may put anything else between angle brackets.
TAGS = words(
    "a abbr area b base big blockquote body br button center code col colgroup dd div dl dt em embed font form frame "
    "frameset h1 h2 h3 h4 h5 h6 head hr html i iframe img input label li link map meta noscript object ol option p "
    "param pre s script select small span strike strong style sub sup table tbody td textarea tfoot th thead title tr "
    "tt u ul"
)
MARKUP = re.compile(
    rf"<!--.{{0,2000}}?-->|<!doctype[^>]{{0,500}}>|</?(?:{'|'.join(sorted(TAGS))})(?:\s[^<>]{{0,2000}})?/?>", re.DOTALL
)
# Around a word these make no other token of it.
PUNCTUATION, OPENING = ".,;:!?()[]{}\"'*/|~`", "([{\"'"
# Characters of what is remembered; then all is forgotten. A chunk in full takes ten times as much as a yes or no.
REMEMBERED, REMEMBERED_IN_FULL = 1 << 22, 1 << 20

# A word that is an item only before certain others: condition -> kind of the item, the words that may follow.
CONDITIONS: dict[str, tuple[str, frozenset[str]]] = {
    "counted": ("number", units.AFTER_COUNTED),
    "side": ("laterality", vocabulary.BODY),
}
# Roles that neighbors may decide; those of the second kind only where a word behind them joins.
TAKE_A_LOOK = frozenset((MONTH, WEEKDAY, EYE, HAN_NUMBER, HAN_DRUG, PHRASE, COPYRIGHT))
GOES_ON = frozenset(units.UNITS) | frozenset(units.MONTHS) | units.PER | frozenset(("of", "de", "m"))
TO_NUMBER, TO_QUANTITY, TO_NEGATION, TO_DESIGNATOR, BEFORE_IT = 1, 2, 4, 8, 16
EVERYTHING = TO_NUMBER | TO_QUANTITY | TO_NEGATION | TO_DESIGNATOR | BEFORE_IT
WAITING = {NUMBER: TO_NUMBER, NEGATION: TO_NEGATION, DESIGNATOR: TO_DESIGNATOR, BEFORE: BEFORE_IT}
JOINS: dict[int, frozenset[str]] = {
    TO_NUMBER: GOES_ON - units.PER - {"m"},
    TO_QUANTITY: units.PER,
    TO_NEGATION: frozenset(phrase[0] for phrase in chain.from_iterable(vocabulary.FOOTER_NEGATIONS.values())),
    BEFORE_IT: frozenset().union(
        units.UNITS, *(nouns for _, nouns in CONDITIONS.values()), *vocabulary.EPISODES.values()
    ),
}
JOIN_BITS = {
    word: sum(bit for bit, firsts in JOINS.items() if word in firsts) for word in frozenset().union(*JOINS.values())
}

Found = TypeVar("Found")


class Memo(dict[str, Found]):
    """What was found out about a chunk, remembered up to a bound."""

    def __init__(self, find: Callable[[str], Found], bound: int) -> None:
        self._find = find
        self._bound = bound
        self._characters = 0

    def __missing__(self, chunk: str) -> Found:
        found = self._find(chunk)
        self._characters += len(chunk) + 16
        if self._characters > self._bound:
            self.clear()
            self._characters = 0
        # of long numbers there are too many, and they are read at once
        if len(chunk) < 8 or not chunk[0].isdigit():
            self[chunk] = found
        return found


class Chunk(NamedTuple):
    """A chunk's tokens and what each may be, and what it is to its neighbors."""

    tokens: list[str]
    codes: list[Code | None]
    # its items, where it says all by itself unless what comes behind joins what it ends with (a set of bits)
    says: list[Item] | None
    waits: int
    # what it is alone: a number to which a unit may be added, or a unit
    amount: str | None
    unit: str | None
    # what before it it may join; whether a quantity or date may go on behind it
    joins: int
    goes_on: bool


NOTHING = Chunk([], [], None, 0, None, None, 0, False)


def tokens_of(text: str) -> list[str]:
    """The tokens of a normalized text: words, numbers with what joins them, signs of currencies and of numbers."""
    if text.isascii():
        return ASCII_TOKEN.findall(text)
    return (UNSPACED_TOKEN if HAS_UNSPACED.search(text) else WIDE_TOKEN).findall(text)
