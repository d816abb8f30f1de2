"""The user's own protected words and patterns: checked when they are given, so that none can stall a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as sre  # type: ignore[attr-defined]
from typing import Any

from data.errors import DaymillError

# A repeat of up to this often is taken as bounded.
FEW = 16


def checked_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words and phrases as given. Raises DaymillError for one in which there is nothing to look for."""
    for position, word in enumerate(words):
        if not any(map(str.isalnum, word)):
            raise DaymillError(f"protect.words[{position}] has no letters or digits; give a word or remove the entry")
    return tuple(words)


def compile_patterns(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """The patterns, compiled. Raises DaymillError naming the entry and the column of what is wrong with it."""
    return [_checked(position, pattern) for position, pattern in enumerate(patterns)]


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
    return any(_gives_back(op, argument, inside) for op, argument in tree)


def _gives_back(op: Any, argument: Any, inside: bool) -> bool:
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        unbounded = argument[1] > FEW
        return (unbounded and inside) or _explodes(argument[2], inside or unbounded)
    if op is ops.POSSESSIVE_REPEAT:
        return _explodes(argument[2], False)
    if op is ops.ATOMIC_GROUP:
        return _explodes(argument, False)
    if op is ops.SUBPATTERN:
        return _explodes(argument[-1], inside)
    if op is ops.BRANCH:
        return (inside and _overlap(argument[1])) or any(_explodes(branch, inside) for branch in argument[1])
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return _explodes(argument[1], False)
    if op is ops.GROUPREF_EXISTS:
        return any(_explodes(branch, inside) for branch in argument[1:] if branch is not None)
    return False


def _overlap(branches: Sequence[Any]) -> bool:
    """Whether two alternatives may begin alike: all but distinct literal first characters count as that."""
    firsts = [branch[0] if len(branch) else None for branch in branches]
    if any(first is None or first[0] is not ops.LITERAL for first in firsts):
        return True
    return len({first[1] for first in firsts if first is not None}) < len(firsts)
