"""Pictures of a training run as inline SVG: lines over steps, shares of time, a map of blocks over steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate, pairwise

from data.charts import short

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 460, 150  # plot of a line chart
MOST_POINTS = 240  # of a drawn line; more are averaged
MOST_COLUMNS = 48  # of a map
CELL = 13  # height of a map's row
HUES = ("#4b7fdc", "#d9775f", "#3f9b76", "#b07cc6", "#c99a2e", "#6c8a9b", "#a9a9a9")

CURVE_STYLE = """
.lines, .map { width: 100%; } .lines text, .map text { font-size: 11px; }
.lines .axis { stroke: var(--line); fill: none; } .lines .grid { stroke: var(--soft); fill: none; }
.lines path.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(21rem, 1fr)); gap: 1.2rem 2rem; }
.pair figure { margin: 0; } .pair figcaption { font-size: .95em; font-weight: 600; margin-bottom: .2rem; }
.pair figcaption small { font-weight: 400; opacity: .75; display: block; }
.stack { display: flex; height: 1.6rem; border-radius: 3px; overflow: hidden; margin: .6rem 0; }
.stack span { display: block; min-width: 1px; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .92em; }
.legend i { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .4em; }
"""


def lines(series: Mapping[str, Points]) -> str:
    """One line a name over steps; values that are not finite are left out, a single value is a dot."""
    drawn = {name: thinned(finite(points)) for name, points in series.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return ""
    every = [point for points in drawn.values() for point in points]
    low_x, high_x = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    if high - low <= 1e-9 * max(abs(high), 1e-30):
        low, high = min(low, 0.0), max(high, 0.0) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        return across * WIDTH, HEIGHT * (1 - (y - low) / (high - low)) + 8

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT * (1 - share) + 8
        parts.append(f'<path class="grid" d="M0 {y:.1f}H{WIDTH}"/>')
        parts.append(f'<text x="{WIDTH + 6}" y="{y + 4:.1f}">{escape(short(low + share * (high - low)))}</text>')
    for hue, (name, points) in zip(HUES, drawn.items()):
        places = [place(x, y) for x, y in points]
        if len(places) < 8:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{hue}"/>' for x, y in places]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        last = escape(f"{name}: {short(points[-1][1])} at the end")
        parts.append(f'<path class="curve" stroke="{hue}" d="{path}"><title>{last}</title></path>')
    parts.append(f'<text x="0" y="{HEIGHT + 24}">step {low_x:,.0f}</text>')
    parts.append(f'<text x="{WIDTH}" y="{HEIGHT + 24}" text-anchor="end">{high_x:,.0f}</text>')
    legend = keys(dict(zip(drawn, HUES))) if len(drawn) > 1 else ""
    box = f'viewBox="-4 0 {WIDTH + 64} {HEIGHT + 30}"'
    return f'<svg class="lines" {box} role="img">{"".join(parts)}</svg>{legend}'


def shares(parts: Mapping[str, float]) -> str:
    """Shares of a whole as one bar with its legend; those of almost nothing are left out, colors stay."""
    shown = [(name, value, hue) for hue, (name, value) in zip(HUES, parts.items()) if value >= 5e-5]
    bars = "".join(
        f'<span style="width:{100 * value:.3f}%;background:{hue}" title="{escape(name)} {value:.2%}"></span>'
        for name, value, hue in shown
    )
    return f'<div class="stack">{bars}</div>' + keys({f"{name} {value:.1%}": hue for name, value, hue in shown})


def keys(hues: Mapping[str, str]) -> str:
    entries = (f'<span><i style="background:{hue}"></i>{escape(name)}</span>' for name, hue in hues.items())
    return f'<div class="legend">{"".join(entries)}</div>'


def heat(rows: Mapping[str, Points], logarithmic: bool = False) -> str:
    """A row a name, the first one lowest, stronger where a value is larger (from 0, or by its logarithm from the
    smallest); what is not finite is red."""
    if not rows or not any(rows.values()):
        return ""
    columned = {name: columns(points) for name, points in rows.items()}
    every = [value for cells in columned.values() for _, value in cells if math.isfinite(value)]
    every = [value for value in every if not logarithmic or value > 0]
    high = max(every, default=0.0)
    low = min(every, default=0.0) if logarithmic else 0.0

    def depth(value: float) -> float:
        if high <= low:
            return 0.0
        if logarithmic:
            return math.log(max(value, low) / low) / math.log(high / low)
        return max(value, 0.0) / high

    count = max(len(cells) for cells in columned.values())
    wide = WIDTH / count
    parts, height = [], CELL * len(columned)
    for place, (name, cells) in enumerate(columned.items()):
        y = height - CELL * (place + 1)
        parts.append(f'<text x="-8" y="{y + 10}" text-anchor="end">{escape(name)}</text>')
        for at, (step, value) in enumerate(cells):
            fill = f'fill-opacity="{0.06 + 0.94 * depth(value):.3f}"' if every and math.isfinite(value) else ""
            kind = "keeps" if fill else "drops"
            told = escape(f"{name}, step {step:,.0f}: {short(value)}")
            parts.append(
                f'<rect class="{kind}" {fill} x="{at * wide:.1f}" y="{y}" width="{wide + 0.1:.1f}" '
                f'height="{CELL - 1}"><title>{told}</title></rect>'
            )
    scale = f"faint {short(low)}, strong {short(high)}" + (", logarithmic" if logarithmic else "")
    parts.append(f'<text x="0" y="{height + 14}">{escape(scale)}</text>')
    box = f'viewBox="-44 -2 {WIDTH + 48} {height + 20}"'
    return f'<svg class="map" {box} role="img">{"".join(parts)}</svg>'


def finite(points: Points) -> Points:
    return [(x, y) for x, y in points if math.isfinite(y)]


def thinned(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points: means of runs of neighbors."""
    if len(points) <= most:
        return list(points)
    edges = [round(at * len(points) / most) for at in range(most + 1)]
    runs = (points[begin:end] for begin, end in pairwise(edges))
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def columns(points: Points, most: int = MOST_COLUMNS) -> list[tuple[float, float]]:
    """At most so many points, evenly picked: a mean would hide a spike, so each has the largest of its neighbors."""
    if len(points) <= most:
        return list(points)
    sizes = [(at + 1) * len(points) // most - at * len(points) // most for at in range(most)]
    ends = list(accumulate(sizes))
    runs = (points[end - size : end] for end, size in zip(ends, sizes))
    return [max(run, key=lambda point: point[1] if math.isfinite(point[1]) else math.inf) for run in runs]
