"""Dialogues and pairs inside records: `messages`, or `prompt` and `completion`, checked and as one list of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from data.strict_json import Refused

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = (SYSTEM, USER, ASSISTANT)
MESSAGES, PROMPT, COMPLETION = "messages", "prompt", "completion"
BETWEEN = "\n\n"  # messages in the text of a record


class Message(NamedTuple):
    """What one side of a dialogue says."""

    role: str
    content: str


def messages_of(fields: Mapping[str, Any]) -> list[Message] | None:
    """The messages of a record's fields; None where it holds neither a dialogue nor a pair.

    A prompt and its completion are a user's message and the assistant's. Other keys of a message are passed over.
    Raises Refused by the rules `messages` (no list of objects), `role` (none of ours; a system message behind the
    first place), `content` (no string, or nothing but space), `answer` (no assistant's message that answers another),
    `prompt` and `completion` (missing, no string, or nothing but space).
    """
    if fields.get(MESSAGES) is not None:
        return checked(fields[MESSAGES])
    if fields.get(PROMPT) is None and fields.get(COMPLETION) is None:
        return None
    return [Message(USER, words(fields, PROMPT)), Message(ASSISTANT, words(fields, COMPLETION))]


def checked(values: Any) -> list[Message]:
    if type(values) is not list or not values:
        raise Refused(MESSAGES, "messages are a list of objects with role and content, at least one")
    found = []
    for number, value in enumerate(values, start=1):
        if type(value) is not dict:
            raise Refused(MESSAGES, f"message {number} is no object")
        role = value.get("role")
        if role not in ROLES:
            raise Refused("role", f"message {number} has no role that is {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        if role == SYSTEM and number > 1:
            raise Refused("role", f"message {number} is the system's; only the first one may be")
        found.append(Message(role, words(value, "content", f" of message {number}")))
    if not any(message.role == ASSISTANT for message in found[1:]):
        raise Refused("answer", "no message of the assistant answers another one; there is nothing to learn")
    return found


def words(value: Mapping[str, Any], key: str, where: str = "") -> str:
    """A string with something in it; the rule that it breaks has the name of its key."""
    found = value.get(key)
    if type(found) is not str:
        raise Refused(key, f"the {key}{where} is {'missing' if found is None else 'no string'}")
    if not found or found.isspace():
        raise Refused(key, f"the {key}{where} is empty")
    return found


def text_of(messages: list[Message]) -> str:
    """What cleaning and deduplication look at: everything that is said, roles left out."""
    return BETWEEN.join(message.content for message in messages)


def dialogue_in(extra: str) -> list[Message] | None:
    """The messages of a stored record, from its `extra`; None where it has none. Raises Refused."""
    return messages_of(orjson.loads(extra))
