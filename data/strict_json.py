"""JSON as RFC 8259 says and nothing more: a fast parser that is believed only where it can be proven strict.

Lenient parsers decide silently: the last of two equal keys wins, NaN is a number, 10254939386542155531111 becomes
1.0254939386542155e+22, half of a surrogate pair becomes a string that no file can hold. Each of these is a rule here.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

MAX_INTEGER_DIGITS = 4300  # Python's own guard: decimal conversion of more digits takes quadratic time
EXACT_FLOAT = 1e15  # beyond it a float may be an integer that lost digits; the strict parser tells them apart

SCALARS = frozenset({str, int, bool, type(None)})
# A whole string (also one that never ends) is skipped as one token, so that brackets inside do not count.
STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class Refused(Exception):
    """Why a record is not taken in: a rule's name, and a note for people that holds nothing of the record's text."""

    def __init__(self, rule: str, note: str) -> None:
        super().__init__(rule, note)
        self.rule, self.note = rule, note


def parse(raw: bytes, max_depth: int) -> Any:
    """The value of one JSON text (UTF-8, no byte order mark). Raises Refused.

    Rules: `encoding` (not UTF-8, or a lone surrogate), `depth` (more than `max_depth` containers inside each other),
    `number` (NaN, infinities, numbers beyond a double, integers of over 4300 digits), `duplicate-key` (in any object,
    escapes resolved), `syntax` (anything else). Integers keep all digits.
    """
    try:
        value = orjson.loads(raw)
        kind = type(value)
        if (kind is dict or kind is list) and exact(value, max_depth) and no_key_lost(raw, value):
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass  # the strict parser says what is wrong, or that the fast one was too narrow
    return parse_strictly(raw, max_depth)


def exact(node: Any, room: int) -> bool:
    """Whether a parsed container is within the depth and holds no float that may have been an integer."""
    if room == 0:
        return False
    items = node.values() if type(node) is dict else node
    if SCALARS.issuperset(map(type, items)):
        return True
    for item in items:
        if type(item) is float:
            if not -EXACT_FLOAT < item < EXACT_FLOAT:
                return False
        elif type(item) not in SCALARS and not exact(item, room - 1):
            return False
    return True


def no_key_lost(raw: bytes, value: Any) -> bool:
    """Whether no duplicate key was swallowed, by counting colons.

    Colons in `raw` = keys + colons inside strings. Writing the value again has the colons of the keys and strings that
    survived. A swallowed pair only lowers the second count, so equal counts prove that nothing was swallowed, provided
    that no colon hides in an escape.
    """
    if b"\\u003" in raw and (b"\\u003a" in raw or b"\\u003A" in raw):
        return False
    return raw.count(b":") == orjson.dumps(value).count(b":")


def parse_strictly(raw: bytes, max_depth: int) -> Any:
    """As `parse`, by the standard library's parser with every leniency closed."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            "encoding", f"not UTF-8: byte {raw[error.start]:#04x} at {error.start} ({error.reason})"
        ) from None
    if text.count("[") + text.count("{") > max_depth:
        check_depth(text, max_depth)
    try:
        value = json.loads(
            text,
            parse_constant=refuse_constant,
            parse_float=finite_float,
            parse_int=bounded_int,
            object_pairs_hook=unique_keys,
        )
    except json.JSONDecodeError as error:
        raise Refused("syntax", f"{error.msg} at character {error.pos}") from None
    if SURROGATE_ESCAPE.search(text):
        check_surrogates(value)
    return value


def check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for token in STRUCTURE.finditer(text):
        mark = text[token.start()]
        if mark in "[{":
            depth += 1
            if depth > max_depth:
                raise Refused("depth", f"nested deeper than {max_depth} levels at character {token.start()}")
        elif mark in "]}":
            depth -= 1


def check_surrogates(node: Any) -> None:
    if isinstance(node, str):
        try:
            node.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused("encoding", "an escape is half of a surrogate pair: no character") from None
    elif isinstance(node, dict):
        for key, value in node.items():
            check_surrogates(key)
            check_surrogates(value)
    elif isinstance(node, list):
        for value in node:
            check_surrogates(value)


def refuse_constant(name: str) -> NoReturn:
    raise Refused("number", f"{name} is not a JSON number")


def finite_float(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise Refused("number", "a number is beyond the range of a double")
    return value


def bounded_int(literal: str) -> int:
    if len(literal) > MAX_INTEGER_DIGITS:
        raise Refused("number", f"an integer has {len(literal)} digits, more than {MAX_INTEGER_DIGITS}")
    return int(literal)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Refused("duplicate-key", f"an object of {len(pairs)} keys has {len(value)} distinct ones")
    return value


def dump(value: Any) -> str:
    """Compact JSON text of a parsed value, keys in their order; integers of any size."""
    try:
        return orjson.dumps(value, default=as_json).decode()
    except orjson.JSONEncodeError:  # an integer over 64 bits
        return json.dumps(value, default=as_json, ensure_ascii=False, separators=(",", ":"))


def as_json(value: Any) -> str:
    """Bytes that are no text, which only Parquet holds, as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} is no JSON value")
