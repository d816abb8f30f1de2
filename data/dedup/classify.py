"""What a single token may be, whatever stands beside it: an item, or a role that its neighbors decide."""

from __future__ import annotations

import re

from data.dedup import vocabulary as v
from data.dedup.drugs import HAN_STEMS, is_drug

# Roles: an item as it stands; a negation, which a footer may void; the rest depend on the tokens around.
(ITEM, NEGATION, NUMBER, CURRENCY, SIGN, MONTH, WEEKDAY, BEFORE, DESIGNATOR, HAN_NUMBER) = range(10)
# role, kind (of a BEFORE: its condition), canonical value
Code = tuple[int, str, str]
HAN_NUMERAL = re.compile(rf"(第?)([{v.HAN_NUMERALS}]+)")


def classify(token: str) -> Code | None:
    """What a token may be, whatever stands beside it; None for most."""
    if any(map(str.isdigit, token)):
        return (NUMBER, "number", token)
    if token in v.NEGATION:
        return (NEGATION, "negation", v.NEGATION[token])
    if token.endswith(("n't", "n’t")):
        return (NEGATION, "negation", "not")
    for table, kind in WORDS:
        if token in table:
            return (ITEM, kind, table[token])
    for table, role, kind in ROLES:
        if token in table:
            return (role, kind, table[token])
    if token in SIGN_VALUES:
        return (SIGN, "number", SIGN_VALUES[token])
    if token[0] >= "\u0e00":
        return classify_han(token)
    if token.startswith("non") and len(token) > 6 and token not in v.NON_EXCEPTIONS:
        return (ITEM, "negation", token)
    if is_drug(token):
        return (ITEM, "drug", token)
    return None


def classify_han(token: str) -> Code | None:
    if token in v.HAN_PLAIN:
        return None
    if token in v.KANA_NEGATION:
        return (ITEM, "negation", "ない")
    if token in v.HAN_NEGATION:
        return (ITEM, "negation", token)
    if HAN_NUMERAL.fullmatch(token):
        return (HAN_NUMBER, "number", token)
    if any(map(token.__contains__, v.HANGUL_NEGATION)):
        return (ITEM, "negation", token)
    if any(map(token.__contains__, HAN_STEMS)):
        return (ITEM, "drug", token)
    return None


SHORT_MONTHS = {name: str(month) for name, month in v.MONTHS.items()}
WORDS: list[tuple[dict[str, str], str]] = [
    (v.SIDES, "laterality"),
    ({day: name for day, name in v.WEEKDAYS.items() if day not in v.SHORT_WEEKDAYS}, "date"),
    (v.RELATIVE_DAYS, "date"),
    (v.FREQUENCY, "number"),
    (v.ORDINAL_WORDS, "number"),
    ({word: word for word in v.ROMAN}, "number"),
    ({word: unit for word, unit in v.MEASURES.items() if word.isalpha()}, "number"),
    ({"sequela": "sequela", "sequelae": "sequela"}, "episode"),
]
ROLES: list[tuple[dict[str, str], int, str]] = [
    (SHORT_MONTHS, MONTH, "date"),
    ({day: v.WEEKDAYS[day] for day in v.SHORT_WEEKDAYS}, WEEKDAY, "date"),
    (v.NUMBER_WORDS, NUMBER, "number"),
    (v.CURRENCY, CURRENCY, "number"),
    (v.COUNTED, BEFORE, "counted"),
    ({"one": "1"}, BEFORE, "one"),
    (v.SIDE_LETTERS, BEFORE, "side"),
    ({"both": "bilateral"}, BEFORE, "side"),
    (v.EYES, BEFORE, "eye"),
    (v.EPISODES, BEFORE, "episode"),
    ({word: word for word in v.DESIGNATORS}, DESIGNATOR, "number"),
]
SIGN_VALUES = {"-": "-", "−": "-", "+": "+", ".": ".", "<": "<", ">": ">", "<=": "≤", ">=": "≥", "≤": "≤", "≥": "≥"}
