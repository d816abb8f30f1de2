"""Numbers with their units, dates, and names by letter, read from tokens that stand together.

A number before a unit or beside a currency is a quantity: 1,5 mg, 1.50 mg and 1.5 milligram are one. A bare number is
kept as written, since 1.5 and 1.50 may be versions, and 7 and 007 ids. Where a separator may mean either (1,500 mg),
the number is kept as written too: at worst a copy stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from data.dedup import han
from data.dedup import units as u
from data.dedup.classify import CURRENCY, HAN_NUMERAL, MONTH, NUMBER, SIGN, Code

Item = tuple[str, str]
HYPHENS = "–—‐‑−-"
NUMERIC = re.compile(rf"(\d+(?:[.,:/⁄{HYPHENS}]\d+)*)([^\W\d_]*)")
ISO_DATE = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:t(\d.*))?")
# with points and two digits of a year it is a version as well
DAY_OR_MONTH_FIRST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|(?<!\.)\d{2})")
DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
YEAR = re.compile(r"[12]\d{3}")
YEARS = re.compile(rf"[12]\d{{3}}(?:[,{HYPHENS}]\d+)*")
RANGE = re.compile(f"[{HYPHENS}]")
UNITS_AT_MOST = 4


def number(tokens: list[str], codes: Sequence[Code | None], place: int, items: list[Item]) -> int:
    """Append the quantity, date or code at a place, with signs before and units behind; return the place after it."""
    sign = currency = ""
    first = place
    while (code := codes[place]) is not None and code[0] in (SIGN, CURRENCY):
        if code[0] == SIGN:
            sign += code[2]
        else:
            currency = code[2]
        place += 1
        if place == len(tokens):
            return place
    if code is None or code[0] != NUMBER:
        return max(place, first + 1)
    token = code[2]
    if not sign and not currency and (after := date(tokens, place, items)):
        return after
    parts = NUMERIC.fullmatch(token)
    if parts is None:
        items.append(("number", token))
        return place + 1
    if sign.count(">") > 1:
        sign = ""  # a mail quoted in a mail
    written, attached = parts[1], parts[2]
    place += 1
    if attached in u.ORDINAL_ENDINGS and attached:
        items.append(("number", f"{written}."))
        return place
    if attached and attached not in u.UNITS:
        items.append(("number", token))
        return place
    units = [u.UNITS[attached]] if attached else []
    kind = "date" if place < len(tokens) and tokens[place] in han.DATE_UNITS else "number"
    place = units_behind(tokens, place, units)
    if currency:
        units.append(currency)
    values = RANGE.split(written)
    if units:
        values = list(map(decimal, values))
    if sign.endswith("."):
        sign, values[0] = sign[:-1], f"0.{values[0]}"
    items += [("number", value) for value in values[:-1]]
    items.append((kind, " ".join([sign + values[-1], *units])))
    return place


def date(tokens: list[str], place: int, items: list[Item]) -> int:
    """Append a date in digits, or of a day before a month; return the place after it, 0 where there is none."""
    token = tokens[place]
    if found := ISO_DATE.fullmatch(token):
        year, month_, day, time = found[1], int(found[3]), int(found[4]), found[5]
        items.append(("date", f"{year}-{month_:02d}-{day:02d}" + (f"t{time}" if time else "")))
        return place + 1
    if found := DAY_OR_MONTH_FIRST.fullmatch(token):
        # 3/4/2024 is in March or in April: as written, without leading zeros
        items.append(("date", found[2].join((str(int(found[1])), str(int(found[3])), found[4]))))
        return place + 1
    if day_of := DAY.fullmatch(token):
        behind = place + 1
        if behind + 1 < len(tokens) and tokens[behind] in ("of", "de", "."):
            behind += 1
        if behind < len(tokens) and tokens[behind] in u.MONTHS and 1 <= int(day_of[1]) <= 31:
            year, after = year_at(tokens, behind + 1)
            items.append(("date", f"{year}-{u.MONTHS[tokens[behind]]:02d}-{int(day_of[1]):02d}"))
            return after
    return 0


def month(tokens: list[str], place: int, items: list[Item]) -> int:
    """Append the date that a month's name begins; a name that is also a word counts beside a number only."""
    name = tokens[place]
    value = f"{u.MONTHS[name]:02d}"
    behind = tokens[place + 1] if place + 1 < len(tokens) else ""
    if YEAR.fullmatch(behind):
        items.append(("date", f"{behind}-{value}"))
        return place + 2
    day = DAY.fullmatch(behind)
    if day and 1 <= int(day[1]) <= 31:
        year, after = year_at(tokens, place + 2)
        items.append(("date", f"{year}-{value}-{int(day[1]):02d}"))
        return after
    if behind[:1].isdigit() or name in u.PLAIN_MONTHS or (place and tokens[place - 1] in u.BEFORE_MONTH):
        items.append(("date", f"--{value}"))
    return place + 1


def designator(tokens: list[str], place: int, items: list[Item]) -> int:
    """Append a name by letter ("hepatitis b", "stage i"); numbers and longer numerals stand for themselves."""
    behind = tokens[place + 1] if place + 1 < len(tokens) else ""
    if len(behind) == 1 and behind.isalpha() and behind < "\u0e00":
        items.append(("number", f"{tokens[place]} {behind}"))
        return place + 2
    return place + 1


def han_number(tokens: list[str], place: int, items: list[Item]) -> int:
    """Append a number in Chinese numerals where it counts something; "一个" is an article."""
    parts = HAN_NUMERAL.fullmatch(tokens[place])
    if parts is None:
        return place + 1
    ordinal, numerals = parts[1], parts[2]
    value = han.DIGITS.get(numerals, numerals)
    if ordinal:
        items.append(("number", f"{value}."))
        return place + 1
    behind = tokens[place + 1] if place + 1 < len(tokens) else ""
    percent = place > 0 and tokens[place - 1] == han.PERCENT
    counts = behind in u.UNITS and not (numerals == "一" and behind in han.ARTICLES)
    if not counts and not percent and len(numerals) == 1:
        return place + 1
    units = ["%"] if percent else []
    place = units_behind(tokens, place + 1, units)
    items.append(("date" if behind in han.DATE_UNITS else "number", " ".join([value, *units])))
    return place


def one(tokens: list[str], place: int, items: list[Item]) -> int:
    """Append the number one where it counts something, else it is a pronoun; return the place after it."""
    units: list[str] = []
    after = units_behind(tokens, place + 1, units)
    if units:
        items.append(("number", " ".join(["1", *units])))
    return after


def units_behind(tokens: list[str], place: int, units: list[str]) -> int:
    """Collect the units from a place on ("mg per kg", "million dollars", "a.m."); return the place after them."""
    while place < len(tokens) and len(units) < UNITS_AT_MOST:
        token = tokens[place]
        if token in u.CURRENCY and tokens[place + 1 : place + 2] and tokens[place + 1][:1].isdigit():
            break  # of the next number
        if token in u.UNITS:
            units.append(u.UNITS[token])
        elif token in ("a", "p") and tokens[place + 1 : place + 2] == ["m"]:
            units.append(f"{token}m")
            place += 1
        elif not (units and token in u.PER and place + 1 < len(tokens) and tokens[place + 1] in u.UNITS):
            break
        place += 1
    return place


def decimal(written: str) -> str:
    """A number with a unit: decimal point, no thousands, no needless zeros; as written where it may be read twice."""
    commas, points = written.count(","), written.count(".")
    if not set(written) <= set("0123456789,."):
        return written
    if commas and points:
        last = max(written.rfind(","), written.rfind("."))
        whole, fraction = written[:last], written[last + 1 :]
        if written.count(written[last]) > 1 or not grouped(whole):
            return written
        whole = whole.replace(",", "").replace(".", "")
    elif commas > 1 or points > 1:
        return re.sub("[.,]", "", written) if grouped(written) else written
    elif commas or points:
        whole, fraction = re.split("[.,]", written)
        if len(fraction) == 3 and len(whole) <= 3 and whole != "0":
            return written
    else:
        whole, fraction = written, ""
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def grouped(written: str) -> bool:
    """Whether all groups behind the first have three digits."""
    head, *groups = re.split("[.,]", written)
    return 1 <= len(head) <= 3 and all(len(group) == 3 for group in groups)


def year_at(tokens: list[str], place: int) -> tuple[str, int]:
    """The year at a place and the place after it, or "-" and the place itself."""
    if place < len(tokens) and YEAR.fullmatch(tokens[place]):
        return tokens[place], place + 1
    return "-", place


def behind_copyright(tokens: Sequence[str], place: int) -> int:
    """The place after a copyright sign and its years: the same letter of another year is the same letter."""
    place += 1
    while place < len(tokens) and tokens[place] in ("c", "©"):
        place += 1
    while place < len(tokens) and YEARS.fullmatch(tokens[place]):
        place += 1
    return place


def beside_number(codes: Sequence[Code | None], place: int) -> bool:
    around = [*codes[max(0, place - 1) : place], *codes[place + 1 : place + 2]]
    return any(code is not None and code[0] in (NUMBER, MONTH) for code in around)
