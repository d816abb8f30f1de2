"""Pictures as inline SVG, colored by the page's own variables: a flow from raw to kept, histograms, two bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import isfinite
from typing import Any

WIDTH = 1000  # of the flow, in its own units; the page scales it
BAND = 150  # height of all records
TOP = 58  # above the band: names and counts of the levels
LEFT, RIGHT = 20, 110
SLOT = 36  # least height of a rule's two lines
REACH = 44  # from the band to a rule's words
SHOWN_RULES = 5  # of a level, in the picture; a table has them all
CHAR = 6.6  # width of one of a rule's name

HISTOGRAM = (300, 120)  # plot of a histogram: width and height

CHART_STYLE = """
:root { --keeps: #4b7fdc; --drops: #d9775f; --band: #4b7fdc66; --branch: #d9775f77; --soft: #8882; }
svg { display: block; font-family: inherit; } svg text { fill: currentColor; }
.flow { width: 100%; min-width: 46rem; } .flow .band { fill: var(--band); } .flow .node { fill: var(--keeps); }
.flow .drop { fill: var(--branch); stroke: var(--drops); stroke-width: .7; }
.flow .level { font-size: 15px; font-weight: 600; }
.flow .rule { font-size: 12.5px; } .flow .count { font-size: 11.5px; opacity: .75; }
.histogram { width: 100%; } .histogram .count, .histogram .mark { font-size: 11px; }
.keeps { fill: var(--keeps); background: var(--keeps); } .drops { fill: var(--drops); background: var(--drops); }
.histogram .threshold { stroke: currentColor; stroke-dasharray: 3 3; fill: none; }
.histogram .axis { stroke: var(--line); fill: none; } .histogram .mark { font-weight: 600; }
.meter { display: block; min-width: 6rem; height: .6em; margin-top: .5em; background: var(--soft); border-radius: 2px; }
.meter span { display: block; height: 100%; min-width: 1px; border-radius: 2px; }
"""


def flow(levels: Sequence[Mapping[str, Any]]) -> str:
    """A Sankey picture: a band as thick as the records that are left, and a branch for each rule that takes some.

    `levels` in order: {"name", "in", "kept", "dropped_by_rule": {rule: count}}. Thickness is in proportion to counts,
    1 at the least, so that a single record is seen beside millions.
    """
    most = max((int(level["in"]) for level in levels), default=0)
    if not most:
        return ""
    scale = BAND / most
    step = (WIDTH - LEFT - RIGHT) / len(levels)
    parts, bottom = [], float(TOP + BAND)
    for place, level in enumerate(levels):
        x = LEFT + place * step
        incoming, kept = int(level["in"]) * scale, int(level["kept"]) * scale
        parts.append(f'<rect class="band" x="{x:.1f}" y="{TOP}" width="{step:.1f}" height="{max(kept, 1):.1f}"/>')
        branches, end = _branches(level, x, TOP + kept, scale, int((step - REACH - 10) / CHAR))
        parts.append(branches)
        parts.append(_node(x, incoming, str(level["name"]), f"{int(level['in']):,} in"))
        bottom = max(bottom, end)
    last = int(levels[-1]["kept"])
    parts.append(_node(LEFT + len(levels) * step, last * scale, "kept", f"{last:,}", f"{last / most:.1%} of all"))
    height = bottom + 12
    title = f"From {most:,} records to {last:,} kept, by level and rule"
    return (
        f'<div class="wide"><svg class="flow" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg></div>'
    )


def _node(x: float, height: float, name: str, *lines: str) -> str:
    text = f'<text class="level" x="{x:.1f}" y="20">{escape(name)}</text>'
    text += "".join(
        f'<text class="count" x="{x:.1f}" y="{36 + 14 * place}">{escape(line)}</text>'
        for place, line in enumerate(lines)
    )
    return f'{text}<rect class="node" x="{x - 2:.1f}" y="{TOP}" width="4" height="{max(height, 1):.1f}"/>'


def _branches(level: Mapping[str, Any], x: float, y: float, scale: float, chars: int) -> tuple[str, float]:
    """The branches that leave the band's lower edge at (x, y), the largest uppermost; and where they end below."""
    rules = ranked(level.get("dropped_by_rule") or {})
    shown, rest = rules[:SHOWN_RULES], rules[SHOWN_RULES:]
    if len(rest) == 1:
        shown, rest = rules, []
    if rest:
        shown = [*shown, (f"{len(rest)} more rules", sum(count for _, count in rest))]
    parts, slot = [], TOP + BAND + 24.0
    for rule, count in shown:
        thick = max(count * scale, 1.0)
        middle = slot + max(thick, SLOT) / 2
        parts.append(_branch(x + 2, y, x + REACH, middle - thick / 2, thick))
        share = count / max(int(level["in"]), 1)
        parts.append(
            f"<g><title>{escape(rule)}: {count:,} records, {share:.2%} of those that came in</title>"
            f'<text class="rule" x="{x + REACH + 6:.1f}" y="{middle - 2:.1f}">{escape(shortened(rule, chars))}</text>'
            f'<text class="count" x="{x + REACH + 6:.1f}" y="{middle + 12:.1f}">{count:,} · {share:.2%}</text></g>'
        )
        y += count * scale
        slot += max(thick, SLOT) + 6
    return "".join(parts), slot


def _branch(x: float, y: float, to_x: float, to_y: float, thick: float) -> str:
    middle, low, to_low = (x + to_x) / 2, y + thick, to_y + thick
    there = f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    back = f"V{to_low:.1f}C{middle:.1f} {to_low:.1f} {middle:.1f} {low:.1f} {x:.1f} {low:.1f}Z"
    return f'<path class="drop" d="{there}{back}"/>'


def histogram(edges: Sequence[float], counts: Sequence[int], threshold: float | None, direction: str) -> str:
    """Bars of equal width whatever the bins, so that logarithmic ones read as well; what a threshold drops is marked.

    `direction` "min": what is below the threshold goes; "max": what is above. A bin that the threshold cuts is drawn
    in both colors.
    """
    if not counts or len(edges) != len(counts) + 1:
        return ""
    width, height = HISTOGRAM
    most, bar = max(counts) or 1, width / len(counts)
    line = None if threshold is None else place_of(threshold, edges) * bar
    parts = []
    for place, count in enumerate(counts):
        tall = max(height * count / most, 1.5) if count else 0
        for begin, end, kind in _pieces(place * bar, (place + 1) * bar, line, direction):
            gap = min(1.0, (end - begin) / 4)
            parts.append(
                f'<rect class="{kind}" x="{begin:.2f}" y="{height - tall + 14:.2f}" '
                f'width="{max(end - begin - gap, 0.2):.2f}" height="{tall:.2f}"/>'
            )
    if line is not None:
        anchor = "start" if line < width / 3 else "end" if line > 2 * width / 3 else "middle"
        mark = escape(short(threshold))
        parts.append(f'<path class="threshold" d="M{line:.2f} 12V{height + 18}"/>')
        parts.append(f'<text class="mark" x="{line:.2f}" y="9" text-anchor="{anchor}">{mark}</text>')
    ends = [(0, "start", edges[0]), (width, "end", edges[-1])]
    parts.append(f'<path class="axis" d="M0 {height + 14}H{width}"/>')
    parts += [
        f'<text class="count" x="{x}" y="{height + 30}" text-anchor="{anchor}">{escape(short(edge))}</text>'
        for x, anchor, edge in ends
    ]
    return f'<svg class="histogram" viewBox="-2 -2 {width + 4} {height + 36}" role="img">{"".join(parts)}</svg>'


def _pieces(begin: float, end: float, line: float | None, direction: str) -> list[tuple[float, float, str]]:
    if line is None:
        return [(begin, end, "keeps")]
    below, above = ("drops", "keeps") if direction == "min" else ("keeps", "drops")
    if end <= line:
        return [(begin, end, below)]
    if begin >= line:
        return [(begin, end, above)]
    return [(begin, line, below), (line, end, above)]


def place_of(value: float, edges: Sequence[float]) -> float:
    """Where a value stands among the bins, in bins from the left."""
    if value <= edges[0]:
        return 0.0
    for place, (low, high) in enumerate(pairwise(edges)):
        if value < high:
            wide = high - low
            return place + ((value - low) / wide if isfinite(wide) and wide > 0 else 0.5)
    return float(len(edges) - 1)


def meter(share: float, kind: str = "keeps") -> str:
    """A horizontal bar for a share from 0 to 1."""
    inside = min(max(share, 0.0), 1.0)
    return f'<span class="meter"><span class="{escape(kind)}" style="width:{100 * inside:.2f}%"></span></span>'


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Rules that took something, the busiest first."""
    found = [(str(rule), int(count)) for rule, count in counts.items() if int(count) > 0]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def shortened(name: str, chars: int) -> str:
    return name if len(name) <= chars else name[: max(chars - 1, 1)] + "…"


def short(value: Any) -> str:
    """A number in a few characters; a dash for none."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    if isinstance(value, float) and not isfinite(value):
        return "∞" if value > 0 else "–∞" if value < 0 else "–"
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.3g}"
