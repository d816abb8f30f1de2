"""What a sweep of learning rates and a ladder of sizes look like, as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.ladder import Rung, fit
from training.range_test import Advice, Sweep

INK, LINE, QUIET = "#1f2933", "#2f7fc1", "#b8bfc8"


def axes(title: str) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=130, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    plot = figure.subplots()
    plot.set_title(title, fontsize=10, color=INK, loc="left")
    plot.spines[["top", "right"]].set_visible(False)
    return figure, plot


def draw_sweep(found: Sweep, advice: Advice, path: Path) -> None:
    figure, plot = axes("Loss while the learning rate rises")
    plot.plot(found.rates, found.losses, color=QUIET, linewidth=1, label="loss of a step")
    plot.plot(found.rates, found.smoothed, color=LINE, linewidth=2, label="smoothed")
    marks = {"falls fastest": advice.steepest, "least": advice.least, "rises": advice.rises}
    for (name, rate), style in zip(marks.items(), ("-", ":", "--"), strict=True):
        if rate is not None:
            plot.axvline(rate, color=INK, linewidth=1, linestyle=style, label=f"{name}: {rate:.1e}")
    plot.set_xscale("log")
    plot.set_ylim(0.95 * min(found.smoothed), 1.1 * found.losses[0])
    plot.set_xlabel("learning rate")
    plot.set_ylabel("loss")
    plot.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def draw_ladder(rungs: Sequence[Rung], predicted: Sequence[float | None], path: Path) -> None:
    figure, plot = axes("Loss by compute, the same recipe at growing size")
    compute = [rung.compute for rung in rungs]
    if len(rungs) > 2:
        curve = fit(rungs[:-1])
        along = np.geomspace(compute[0], compute[-1], 100)
        plot.plot(along, [curve.at(c) for c in along], color=QUIET, label="curve through all rungs but the last")
    plot.plot(compute, [rung.loss for rung in rungs], "o", color=LINE, label="measured")
    told = [(c, p) for c, p in zip(compute, predicted, strict=True) if p is not None]
    if told:
        plot.plot(*zip(*told, strict=True), "x", color=INK, label="predicted by the rungs below")
    for rung in rungs:
        plot.annotate(f"depth {rung.depth}", (rung.compute, rung.loss), xytext=(6, 6), textcoords="offset points")
    plot.set_xscale("log")
    plot.set_xlabel("floating-point operations")
    plot.set_ylabel("validation loss")
    plot.legend(frameon=False, fontsize=8)
    figure.savefig(path)
