"""The page of a training run: what it learned, how fast, where the time went, and what happened in its layers.

Made of the points that a run's state keeps; no script, nothing from elsewhere, light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from data.charts import CHART_STYLE, short
from data.data_docs import STYLE
from data.report_parts import table
from training.clock import PARTS, WALL, breakdown
from training.curve_charts import CURVE_STYLE, Points, heat, lines, shares
from training.layers import REST

FIGURES_STYLE = """
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2.6rem; margin: 1.2rem 0; }
.figures div { display: flex; flex-direction: column; } .figures b { font-size: 1.55rem; font-weight: 600; }
.figures span { opacity: .75; font-size: .9em; } .wide { overflow-x: auto; }
"""
# caption, what it is, the curves by their name on the page
CHARTS = (
    ("Loss", "nats", {"train": "train/loss", "valid": "valid/loss"}),
    ("F1", "validation", {"valid": "valid/f1"}),
    ("Learning rate", "", {"rate": "train/lr"}),
    ("Gradient norm", "before clipping", {"norm": "train/grad_norm"}),
    ("Tokens a second", "since the run's begin", {"tokens/s": "train/tokens_per_s"}),
    ("Model FLOPs utilization", "of the peak, since the last look", {"MFU": "train/mfu"}),
    ("Loss scale", "fp16 only", {"scale": "train/loss_scale"}),
    ("Memory", "MiB", {"peak RSS": "memory/peak_rss_mib", "PSS": "memory/pss_mib", "GPU": "memory/gpu_peak_mib"}),
    ("Time", "shares since the last look", {part: f"time/{part}" for part in PARTS}),
)
# caption, what it is, statistic, logarithmic
MAPS = (
    (
        "Deviation of each block's output",
        "grows with depth; a jump between two looks is trouble",
        "out_std",
        True,
    ),
    ("Dead channels", "share of feed-forward channels that no token of the step used", "ffn_dead", False),
    ("Update over weight", "around 1e-3 learns; 1e-5 stands still, 1e-1 forgets", "update_ratio", True),
    ("Gradient norm", "before clipping", "grad_norm", True),
)
COLUMNS = {
    "out_mean": "output mean",
    "out_std": "output deviation",
    "ffn_mean": "FFN mean",
    "ffn_std": "FFN deviation",
    "ffn_dead": "FFN dead",
    "grad_norm": "gradient norm",
    "update_ratio": "update / weight",
}
MOST_DEAD, UPDATES = 0.5, (1e-5, 1e-1)  # what the table marks


def page(
    title: str, points: Sequence[tuple[int, Mapping[str, float]]], spent: Mapping[str, float], facts: Mapping[str, Any]
) -> str:
    """HTML of a run's curves [(step, values)], its seconds by part, and figures to head the page."""
    curves = by_name(points)
    sections = [
        ("Curves", charts(curves)),
        ("Where the time went", where_time_went(spent)),
        ("Layers over the run", maps(curves)),
        ("Layers at the last look", last_look(curves)),
    ]
    figures = "".join(
        f"<div><b>{escape(str(value))}</b><span>{escape(name)}</span></div>" for name, value in facts.items()
    )
    parts = [f'<h1>{escape(title)}</h1><div class="figures">{figures}</div>']
    parts += [f"<h2>{escape(name)}</h2>\n{body}" for name, body in sections if body]
    if not curves:
        parts.append("<p>No step was trained.</p>")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{CHART_STYLE}{CURVE_STYLE}{FIGURES_STYLE}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def by_name(points: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for step, values in points:
        for name, value in values.items():
            found.setdefault(name, []).append((step, value))
    return found


def figure(caption: str, note: str, picture: str) -> str:
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(caption)}{small}</figcaption>{picture}</figure>"


def charts(curves: Mapping[str, Points]) -> str:
    shown = []
    for caption, note, names in CHARTS:
        picture = lines({name: curves[key] for name, key in names.items() if key in curves})
        if picture:
            shown.append(figure(caption, note, picture))
    return f'<div class="pair">{"".join(shown)}</div>' if shown else ""


def where_time_went(spent: Mapping[str, float]) -> str:
    """The first rank's seconds of the whole run."""
    parts = breakdown(spent)
    return shares(parts) + f"<p>{spent[WALL]:,.1f} s in all.</p>" if parts else ""


def of_blocks(curves: Mapping[str, Points], statistic: str) -> dict[str, Points]:
    """A statistic's curves by block, the first one first, the parameters of no block last."""
    before = f"layers/{statistic}/"
    names = [name.removeprefix(before) for name in curves if name.startswith(before)]
    ordered = sorted(names, key=lambda name: (name == REST, int(name) if name.isdigit() else 0))
    return {name: curves[before + name] for name in ordered}


def maps(curves: Mapping[str, Points]) -> str:
    shown = []
    for caption, note, statistic, logarithmic in MAPS:
        picture = heat(of_blocks(curves, statistic), logarithmic)
        if picture:
            shown.append(figure(caption, note, picture))
    return f'<div class="pair">{"".join(shown)}</div>' if shown else ""


def last_look(curves: Mapping[str, Points]) -> str:
    found = {statistic: of_blocks(curves, statistic) for statistic in COLUMNS}
    blocks = list(found["grad_norm"])
    if not blocks:
        return ""
    rows = []
    for block in blocks:
        cells = [
            cell(statistic, of_block[block][-1][1] if block in of_block else None)
            for statistic, of_block in found.items()
        ]
        rows.append([escape(block), *cells])
    return table(["Block", *COLUMNS.values()], rows, numbers=range(1, len(COLUMNS) + 1), shown=48)


def cell(statistic: str, value: float | None) -> str:
    if value is None:
        return ""
    low, high = UPDATES
    bad = not math.isfinite(value)
    bad |= statistic == "ffn_dead" and value > MOST_DEAD
    bad |= statistic == "update_ratio" and not low <= value <= high
    text = f"{value:.1%}" if statistic == "ffn_dead" else short(value) if math.isfinite(value) else "not finite"
    return f'<span class="bad">{text}</span>' if bad else text
