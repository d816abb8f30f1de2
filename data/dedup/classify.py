"""What a single token may be, whatever stands beside it: an item, or a role that its neighbors decide."""

from __future__ import annotations

import re
from collections.abc import Mapping

from data.dedup import han, units, vocabulary
from data.dedup.drugs import HAN_STEMS, is_drug

# Roles: an item as it stands; a negation, which a footer may void; the rest depend on the tokens around.
(ITEM, NEGATION, NUMBER, CURRENCY, SIGN, MONTH, WEEKDAY, BEFORE, DESIGNATOR, COPYRIGHT) = range(10)
(EYE, HAN_NUMBER, HAN_DRUG, PHRASE) = range(10, 14)
# role, kind (of a BEFORE: the condition), canonical value
Code = tuple[int, str, str]
HAN_NUMERAL = re.compile(rf"(第?)([{han.NUMERALS}]+)")


def classify(token: str) -> Code | None:
    """What a token of a normalized text may be; None for most."""
    if not token.isalpha() and any(map(str.isdecimal, token)):
        return (NUMBER, "number", token)
    code = CODES.get(token)
    if code is not None or ("\u3040" <= token[0] <= "\u9fff" and token[0] not in han.FIRST):
        return code
    if token.endswith(("n't", "n’t")):
        return (NEGATION, "negation", "not")
    if not token.isascii():
        if HAN_NUMERAL.fullmatch(token):
            return (HAN_NUMBER, "number", token)
        if any(map(token.__contains__, han.HANGUL_NEGATION)):
            return (ITEM, "negation", token)
    if token.startswith("non") and len(token) > 6 and token not in vocabulary.NO_NEGATION:
        return (ITEM, "negation", token)
    if is_drug(token):
        return (ITEM, "drug", token)
    return None


def _same(words: frozenset[str]) -> dict[str, str]:
    return {word: word for word in words}


def _standing_alone(measures: Mapping[str, str]) -> dict[str, str]:
    return {word: unit for word, unit in measures.items() if word.isalpha()}


ROLES: list[tuple[Mapping[str, str], int, str]] = [
    (vocabulary.NEGATION, NEGATION, "negation"),
    (vocabulary.SIDES, ITEM, "laterality"),
    (vocabulary.OUTCOMES, ITEM, "episode"),
    ({day: name for day, name in units.WEEKDAYS.items() if day not in units.SHORT_WEEKDAYS}, ITEM, "date"),
    ({day: units.WEEKDAYS[day] for day in units.SHORT_WEEKDAYS}, WEEKDAY, "date"),
    (units.RELATIVE_DAYS, ITEM, "date"),
    (_same(frozenset(units.MONTHS)), MONTH, "date"),
    (units.FREQUENCY, ITEM, "number"),
    (units.ORDINAL_WORDS, ITEM, "number"),
    (_same(units.ROMAN), ITEM, "number"),
    (units.NUMBER_WORDS, NUMBER, "number"),
    (units.CURRENCY, CURRENCY, "number"),
    (_standing_alone(units.MEASURES), ITEM, "number"),
    (units.COUNTED, BEFORE, "counted"),
    ({"one": "1"}, BEFORE, "one"),
    (vocabulary.SIDE_LETTERS, BEFORE, "side"),
    (vocabulary.EYES, EYE, "laterality"),
    (_same(frozenset(vocabulary.EPISODES)), BEFORE, "episode"),
    (_same(units.DESIGNATORS), DESIGNATOR, "number"),
    ({"-": "-", "−": "-", "+": "+", ".": ".", "<": "<", ">": ">", "<=": "≤", ">=": "≥", "≤": "≤", "≥": "≥"}, SIGN, ""),
    ({"©": "", "copyright": ""}, COPYRIGHT, ""),
    (han.NEGATION, ITEM, "negation"),
    (han.SIDES, ITEM, "laterality"),
    (han.DAYS, ITEM, "date"),
    (_same(HAN_STEMS), HAN_DRUG, "drug"),
]
# The first table that has a token decides.
CODES: dict[str, Code] = {
    token: (role, kind, value) for table, role, kind in reversed(ROLES) for token, value in table.items()
}
