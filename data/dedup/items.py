"""Reads protected items from normalized text: a token pattern, a memo of words, and a walk over what matters.

Most words of a text are no items, and most are words seen before: the memo answers for them at the price of a
dictionary's look-up, and only the few that may be items are looked at with their neighbors.
"""

from __future__ import annotations

import re

from data.dedup import vocabulary as v
from data.dedup.classify import (
    BEFORE,
    CURRENCY,
    DESIGNATOR,
    HAN_NUMBER,
    ITEM,
    MONTH,
    NEGATION,
    NUMBER,
    SIGN,
    WEEKDAY,
    Code,
    classify,
)
from data.dedup.drugs import HAN_STEMS
from data.dedup.quantities import HYPHENS, Item, beside_number, designator, han_number, month, number
from data.quality.rules import UNSPACED

KINDS = ("number", "date", "negation", "laterality", "drug", "episode")

SIGNS = r"(?<!\w)[-+](?=[.\d$])|(?<![\w.])\.(?=\d)|[<>]=?(?=\s?\d)"
ASCII_TOKEN = re.compile(rf"\w+(?:(?<=\d)[.,:/-](?=\d)\w+|'t\b)*|[$%]|{SIGNS}")
WORD = rf"[^\W{UNSPACED}]+"
WIDE_TOKEN = re.compile(
    rf"{WORD}(?:(?<=\d)[.,:/⁄{HYPHENS}](?=\d){WORD}|['’]t\b)*"
    rf"|[$%‰°€£¥₹₽₩©]|(?<!\w)−(?=[.\d$€])|[≤≥](?=\s?\d)|{SIGNS}"
)
UNSPACED_TOKEN = re.compile(
    "|".join(
        [
            *v.HAN_PLAIN,
            *v.KANA_NEGATION,
            *(word for table in (v.WEEKDAYS, v.RELATIVE_DAYS, v.SIDES) for word in table if v.is_unspaced(word)),
            rf"[\u4e00-\u9fff]{{0,2}}(?:{'|'.join(HAN_STEMS)})",
            *v.HAN_UNITS,
            rf"第?[{v.HAN_NUMERALS}]+",
            rf"[{UNSPACED}]",
            WIDE_TOKEN.pattern,
        ]
    )
)
HAS_UNSPACED = re.compile(f"[{UNSPACED}]")
# Longer tokens are no words: they are looked at, and not remembered.
LONG = 40
REMEMBERED = 1 << 16


class Memo(dict[str, Code | None]):
    """What each word may be, remembered up to a bound."""

    def __missing__(self, token: str) -> Code | None:
        code = classify(token)
        if len(token) <= LONG:
            if len(self) >= REMEMBERED:
                self.clear()
            self[token] = code
        return code


class Reader:
    """Items of the given kinds; with `footers` also the negations and years of mail footers count."""

    def __init__(self, kinds: frozenset[str], footers: bool = False) -> None:
        self.kinds = kinds
        self.footers = footers
        self._memo = Memo()

    def read(self, text: str) -> list[Item]:
        """Kind and canonical value of every item of a normalized text, in its order."""
        if text.isascii():
            tokens = ASCII_TOKEN.findall(text)
        elif HAS_UNSPACED.search(text):
            tokens = UNSPACED_TOKEN.findall(text)
        else:
            tokens = WIDE_TOKEN.findall(text)
        codes = list(map(self._memo.__getitem__, tokens))
        if not any(codes):
            return []
        items: list[Item] = []
        position = 0
        for place, code in enumerate(codes):
            if code is not None and place >= position:
                position = self._item(tokens, codes, place, code, items)
        return items if len(self.kinds) == len(KINDS) else [item for item in items if item[0] in self.kinds]

    def _item(self, tokens: list[str], codes: list[Code | None], place: int, code: Code, items: list[Item]) -> int:
        """Append what stands at a place; return the place after it."""
        role, kind, value = code
        if role == ITEM:
            items.append((kind, value))
        elif role == NEGATION:
            if self.footers or not is_footer(tokens, place, value):
                items.append((kind, value))
        elif role in (NUMBER, SIGN, CURRENCY):
            return number(tokens, codes, place, items, self.footers)
        elif role == MONTH:
            return month(tokens, place, items)
        elif role == WEEKDAY:
            if beside_number(codes, place):
                items.append((kind, value))
        elif role == BEFORE:
            if place + 1 < len(tokens) and follows(kind, tokens[place + 1]):
                items.append((CONDITIONS[kind][0], value))
        elif role == DESIGNATOR:
            return designator(tokens, place, items)
        elif role == HAN_NUMBER:
            return han_number(tokens, place, items)
        return place + 1


# A word that is an item only before certain others: condition -> kind of the item, the words that may follow.
CONDITIONS: dict[str, tuple[str, frozenset[str]]] = {
    "counted": ("number", v.AFTER_COUNTED),
    "one": ("number", frozenset(v.UNITS)),
    "side": ("laterality", v.BODY),
    "eye": ("laterality", v.EYE_WORDS),
    "episode": ("episode", v.AFTER_EPISODE),
}


def follows(condition: str, token: str) -> bool:
    return token in CONDITIONS[condition][1] or (condition == "eye" and token[0].isdigit())


def is_footer(tokens: list[str], place: int, negation: str) -> bool:
    """Whether a negation belongs to a mail's footer, by the words behind it."""
    phrases = v.FOOTER_NEGATIONS.get(negation)
    if phrases is None:
        return False
    after = tokens[place + 1 : place + 1 + v.FOOTER_WORDS]
    return any(after[: len(phrase)] == phrase for phrase in phrases)
