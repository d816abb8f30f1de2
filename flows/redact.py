"""Secrets out of logs and artifacts: values of keys and environment variables that are named like one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
SHORTEST = 6  # a shorter value would blank ordinary words

# `token` only as a whole last word: tokens_per_batch and tokenizer are no secrets.
NAME = re.compile(
    r"(?:^|[_.\-])(?:password|passwd|passphrase|secret|credentials?|api[_-]?key|access_?key(?:_id)?|secret[_-]?key|private[_-]?key"
    r"|auth_?string|connection_?string|token)$|secret|password",
    re.IGNORECASE,
)
USERINFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.\-]*://)[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)


def is_secret(name: str) -> bool:
    return bool(NAME.search(name))


def hide(node: Any, name: str = "") -> Any:
    """A copy of nested values with those under secret names hidden, and the userinfo of URLs."""
    if isinstance(node, Mapping):
        return {key: hide(value, str(key)) for key, value in node.items()}
    if isinstance(node, list):
        return [hide(value, name) for value in node]
    if is_secret(name) and node not in (None, ""):
        return HIDDEN
    return USERINFO.sub(rf"\g<scheme>{HIDDEN}@", node) if isinstance(node, str) else node


def secrets_in(node: Any, name: str = "") -> set[str]:
    """Values under secret names, long enough to be looked for in a text."""
    if isinstance(node, Mapping):
        return {secret for key, value in node.items() for secret in secrets_in(value, str(key))}
    if isinstance(node, list):
        return {secret for value in node for secret in secrets_in(value, name)}
    return {str(node)} if is_secret(name) and len(str(node)) >= SHORTEST else set()


class Redactor:
    """Hides known secret values wherever they appear in a line."""

    def __init__(self, params: Any, environment: Mapping[str, str] | None = None) -> None:
        known = secrets_in(params) | secrets_in(dict(os.environ if environment is None else environment))
        longest_first = sorted(known, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def __call__(self, line: str) -> str:
        line = USERINFO.sub(rf"\g<scheme>{HIDDEN}@", line)
        return self.pattern.sub(HIDDEN, line) if self.pattern else line
