"""The user's own protected words and patterns: checked when they are given, so that none can stall a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as sre  # type: ignore[attr-defined]
from typing import Any

from data.errors import DaymillError
from data.text import normalize

Compiled = tuple[str, re.Pattern[str]]
# A repeat of up to this often is taken as bounded.
FEW = 16


def compile_words(words: Sequence[str]) -> list[Compiled]:
    """One pattern for all words and phrases, longest first; whole words only, save in scripts without spaces."""
    plain = [normalize(word) for word in words]
    for position, word in enumerate(plain):
        if not word:
            raise DaymillError(f"protect.words[{position}] is empty; give a word or remove the entry")
    if not plain:
        return []
    bounded = [
        rf"{_edge(word[0], '<')}{re.escape(word)}{_edge(word[-1], '')}"
        for word in sorted(set(plain), key=lambda word: (-len(word), word))
    ]
    return [("word", re.compile("|".join(bounded)))]


def compile_patterns(patterns: Sequence[str]) -> list[Compiled]:
    """The patterns, compiled. Raises DaymillError naming the entry and the column of what is wrong with it."""
    return [("pattern", _checked(position, pattern)) for position, pattern in enumerate(patterns)]


def _edge(char: str, behind: str) -> str:
    spaced = char.isalnum() and ord(char) < 0x0E00
    return rf"(?{behind}!\w)" if spaced else ""


def _checked(position: int, pattern: str) -> re.Pattern[str]:
    place = f"protect.patterns[{position}]"
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
        tree = sre.parse(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        column = getattr(error, "pos", None)
        where = "" if column is None else f" at column {column + 1}"
        said = getattr(error, "msg", None) or str(error) or type(error).__name__
        raise DaymillError(f"{place}: no regular expression: {said}{where}") from None
    if compiled.match("") or compiled.search(" "):
        raise DaymillError(f"{place}: matches the empty text or white space, so every text would have it everywhere")
    if _explodes(tree, inside=False):
        raise DaymillError(
            f"{place}: has an unbounded repeat inside an unbounded repeat, which can take exponential time on some "
            "texts; make the inner one possessive (`++`, `*+`) or bounded (`{1,9}`)"
        )
    return compiled


def _explodes(tree: Any, inside: bool) -> bool:
    """Whether a repeat without a small bound holds another, or an alternation, that can give back what it took."""
    for op, argument in tree:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            _, most, body = argument
            unbounded = most > FEW
            if unbounded and inside:
                return True
            if _explodes(body, inside or unbounded):
                return True
        elif op is ops.POSSESSIVE_REPEAT:
            if _explodes(argument[2], False):
                return True
        elif op is ops.ATOMIC_GROUP:
            if _explodes(argument, False):
                return True
        elif op is ops.SUBPATTERN:
            if _explodes(argument[-1], inside):
                return True
        elif op is ops.BRANCH:
            if inside and _overlap(argument[1]):
                return True
            if any(_explodes(branch, inside) for branch in argument[1]):
                return True
        elif op in (ops.ASSERT, ops.ASSERT_NOT):
            if _explodes(argument[1], False):
                return True
        elif op is ops.GROUPREF_EXISTS:
            if any(_explodes(branch, inside) for branch in argument[1:] if branch is not None):
                return True
    return False


def _overlap(branches: Sequence[Any]) -> bool:
    """Whether two alternatives may begin alike: all but distinct literal first characters count as that."""
    firsts = [branch[0] if len(branch) else None for branch in branches]
    if any(first is None or first[0] is not ops.LITERAL for first in firsts):
        return True
    return len({first[1] for first in firsts if first is not None}) < len(firsts)
