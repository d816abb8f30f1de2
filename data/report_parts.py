"""Pieces of HTML that pages of reports are made of: tables that fold what is long, ids, shares and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from data.charts import short

SHOWN_ROWS = 12  # of a long table before the rest is folded away
LONG_ID = 72


def table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int] = (),
    ids: Sequence[int] = (),
    shown: int = SHOWN_ROWS,
) -> str:
    """Rows of ready HTML; those after the first `shown` are folded away."""

    def kind(place: int) -> str:
        return ' class="number"' if place in numbers else ' class="id"' if place in ids else ""

    def body(some: Sequence[Sequence[str]]) -> str:
        return "".join(f"<tr>{''.join(f'<td{kind(p)}>{cell}</td>' for p, cell in enumerate(row))}</tr>" for row in some)

    head = "".join(f"<th{kind(place)}>{escape(name)}</th>" for place, name in enumerate(names))
    head = f"<tr>{head}</tr>" if any(names) else ""
    first = f'<div class="wide"><table>{head}{body(rows[:shown])}</table></div>'
    hidden = rows[shown:]
    if not hidden:
        return first
    rest = f'<div class="wide"><table>{head}{body(hidden)}</table></div>'
    return f"{first}<details><summary>{len(hidden):,} more</summary>{rest}</details>"


def identifier(value: str) -> str:
    """An id or a path; of a very long one its two ends, and all of it where a mouse rests."""
    if len(value) <= LONG_ID:
        return f"<code>{escape(value)}</code>"
    return f'<code title="{escape(value)}">{escape(value[: LONG_ID - 20])}…{escape(value[-19:])}</code>'


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "–"


def percent(share: Any) -> str:
    return f"{float(share):.2%}" if isinstance(share, int | float) else "–"


def counted(value: Any) -> str:
    return f"{int(value):,}" if isinstance(value, int | float) else "–"


def facts(told: Mapping[str, Any], folded: bool = True) -> str:
    """Any nested figures as a table of two columns."""
    if not told:
        return ""
    rows = [[escape(name), escape(value)] for name, value in flat(told)]
    return f'<div class="facts">{table(["", ""], rows, ids=(0, 1), shown=SHOWN_ROWS if folded else len(rows))}</div>'


def flat(told: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in told.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            found += flat(value, f"{name} · ")
        elif isinstance(value, list | tuple):
            found.append((name, ", ".join(short(item) for item in value)))
        else:
            found.append((name, ("yes" if value else "no") if isinstance(value, bool) else short(value)))
    return found
