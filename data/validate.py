"""From their fields to ours: the mapping, and the rules that a record must pass to be one."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from data.dialogues import messages_of, text_of
from data.errors import DaymillError
from data.strict_json import Refused, as_json, dump

MISSING = object()
WHOLE_FLOAT = float(2**53)  # up to here a double holds every integer: pandas turns integers with gaps into doubles


@dataclass(frozen=True)
class FieldMap:
    """Where each of our fields is found in their records: a name, or names joined by dots for nested objects.

    Several `text` fields are joined by a blank line. None: that field is not taken. A key that holds the dots
    literally goes before a nested one.
    """

    id: str | None = "id"
    text: tuple[str, ...] = ("text",)
    label: str | None = "label"
    group: str | None = "group"
    entity: str | None = "entity"
    date: str | None = "date"

    def names(self) -> list[str]:
        """Every name that is looked for."""
        return [name for name in (self.id, *self.text, self.label, self.group, self.entity, self.date) if name]


def field_map(mapping: Mapping[str, str | Sequence[str] | None] | None = None) -> FieldMap:
    """A FieldMap from plain values; what is not named keeps its own name. Raises DaymillError where it is none."""
    given: dict[str, Any] = dict(mapping or {})
    ours = [field.name for field in fields(FieldMap)]
    for key, value in given.items():
        if key not in ours:
            raise DaymillError(f"fields: `{key}` is no field of ours{nearest(key, ours)} (ours: {', '.join(ours)})")
        if key == "text":
            given[key] = tuple(value) if isinstance(value, list | tuple) else (value,)
            expected, right = "the name of a field, or a list of names", given[key] and all(map(is_name, given[key]))
        else:
            expected, right = "the name of a field, or null for none", value is None or is_name(value)
        if not right:
            raise DaymillError(f"fields.{key}: got {value!r}; expected {expected}")
    taken = [name for value in given.values() for name in (value if isinstance(value, tuple) else (value,))]
    defaults = FieldMap()
    for key in ours:  # a name that was given to another field is no longer a default's
        if key not in given and key != "text" and getattr(defaults, key) in taken:
            given[key] = None
    result = FieldMap(**given)
    twice = sorted({name for name in result.names() if result.names().count(name) > 1})
    if twice:
        raise DaymillError(f"fields: {', '.join(twice)} is mapped to two of our fields; set one of them to null")
    return result


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


class Record(NamedTuple):
    """A record by our fields. `id` is empty where they have none; `repair` says what was not taken as it was."""

    id: str
    text: str
    label: str | None
    group: str | None
    entity: str | None
    date: str | None
    extra: str
    repair: str


class Mapper:
    """Turns their objects into records and remembers which names were ever found."""

    def __init__(self, names: FieldMap) -> None:
        self.names = names
        self.objects = 0
        self.matched: set[str] = set()
        self.nested = frozenset(name for name in names.names() if "." in name)
        self.scalars = [(getattr(names, field), field) for field in ("id", "label", "group", "entity")]

    def record(self, value: Any) -> Record:
        """The record of one parsed value, which is used up. Raises Refused.

        Where the text is missing, a dialogue or a pair (data.dialogues) gives it and stays whole in `extra`.
        Rules: `not-an-object`; `text` (missing, no string, or nothing but space: there is nothing to learn from), or
        those of data.dialogues;
        `id`, `label`, `group`, `entity` (of a type that has no one spelling as a string). Strings stay as they are;
        true and 1 become "true" and "1"; null and "" mean missing. A date that is not ISO 8601 is left in `extra`
        and the record is repaired: kept without a date.
        """
        if type(value) is not dict:
            raise Refused("not-an-object", f"a record is an object, this is {json_type(value)}")
        self.objects += 1
        names = self.names
        text = self.text(value)
        if not text or text.isspace():
            raise Refused("text", "the text is empty")
        id_, label, group, entity = [self.scalar(value, name, field) for name, field in self.scalars]
        date, repair = self.take(value, names.date), ""
        if date is MISSING or date is None or date == "":
            moment = None
        else:
            moment = iso_date(date)
            if moment is None:
                repair = "the date is not ISO 8601: kept in extra, the record has none"
                value[str(names.date)] = date
        return Record(id_ or "", text, label, group, entity, moment, dump(value) if value else "{}", repair)

    def scalar(self, value: dict[str, Any], name: str | None, field: str) -> str | None:
        found = self.take(value, name)
        return found if type(found) is str and found else as_string(found, field) if found is not MISSING else None

    def text(self, value: dict[str, Any]) -> str:
        names = self.names.text
        if len(names) == 1:
            text = self.take(value, names[0])
            if type(text) is not str:
                said = self.said(value) if text is MISSING or text is None else None
                if said is not None:
                    return said
                raise Refused("text", "the text is missing" if text is MISSING else f"the text is {json_type(text)}")
            return text
        parts = []
        for name in names:
            part = self.take(value, name)
            if type(part) is str:
                parts.append(part)
            elif part is not MISSING and part is not None:
                raise Refused("text", f"a part of the text is {json_type(part)}")
        said = None if parts else self.said(value)
        return "\n\n".join(part for part in parts if part) if said is None else said

    def said(self, value: dict[str, Any]) -> str | None:
        """The text of a record's dialogue or pair, which then stands for all text fields; None where it has none."""
        messages = messages_of(value)
        if messages is None:
            return None
        self.matched.update(self.names.text)
        return text_of(messages)

    def take(self, value: dict[str, Any], name: str | None) -> Any:
        """A field out of an object, so that what stays is `extra`."""
        if name is None:
            return MISSING
        found = value.pop(name, MISSING)
        if found is MISSING:
            if name not in self.nested:
                return MISSING
            found = take_nested(value, name.split("."))
            if found is MISSING:
                return MISSING
        self.matched.add(name)
        return found

    def unmatched(self) -> list[str]:
        """Names that no object had: those of text, and those that somebody mapped (not our own, which are optional)."""
        if not self.objects:
            return []
        defaults = FieldMap()
        others = [(field, getattr(self.names, field)) for field in ("id", "label", "group", "entity", "date")]
        needed = [*self.names.text, *(name for field, name in others if name and name != getattr(defaults, field))]
        return [name for name in needed if name not in self.matched]


def unmatched_error(mapper: Mapper, seen: Iterable[str]) -> DaymillError | None:
    """The error for a mapping that matches no record at all, naming the fields that are there."""
    missing = mapper.unmatched()
    if not missing:
        return None
    names = list(seen)
    listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    wrong = "; ".join(f"`{name}`{nearest(name, names)}" for name in missing)
    return DaymillError(
        f"ingest.fields: in none of {mapper.objects:,} records: {wrong} (fields seen: {listed}); "
        "map your names to ours in params.yaml, such as `text: body`"
    )


def take_nested(value: dict[str, Any], parts: list[str]) -> Any:
    inner = value.get(parts[0])
    if type(inner) is not dict:
        return MISSING
    found = inner.pop(parts[1], MISSING) if len(parts) == 2 else take_nested(inner, parts[1:])
    if found is not MISSING and not inner:
        del value[parts[0]]
    return found


def as_string(value: Any, field: str) -> str | None:
    """A scalar as the one string that stands for it; None where it is missing."""
    kind = type(value)
    if kind is str:
        return value or None
    if value is None:
        return None
    if kind is bool and field != "id":
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float and value.is_integer() and abs(value) <= WHOLE_FLOAT:
        return str(int(value))
    raise Refused(field, f"the {field} is {json_type(value)}")


def iso_date(value: Any) -> str | None:
    """An ISO 8601 date or time in its extended form, with an offset in UTC; None where it is none."""
    if type(value) is not str:
        return None
    try:
        moment = datetime.fromisoformat(value)
        if len(value) <= 10:
            return moment.date().isoformat()
        return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()
    except (ValueError, OverflowError):
        return None


def content_id(record: Record) -> str:
    """An id made of the record's content, whatever the order of its keys: equal content, equal id."""
    content = [
        record.text,
        record.label,
        record.group,
        record.entity,
        record.date,
        json.loads(record.extra),
    ]  # exact integers
    try:
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        text = json.dumps(content, sort_keys=True, default=as_json).encode()
    return "content-" + hashlib.blake2b(text, digest_size=16).hexdigest()


def json_type(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f", did you mean `{close[0]}`?" if close else ""
