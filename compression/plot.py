"""The benchmark as one picture: how much faster each step is, and how much smaller its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compression.benchmark import FILES, Plan, Row, speedups

LABELS = {
    "unpruned": "trained model, as exported",
    "unpruned-fused": "+ fused kernels",
    "pruned": "+ pruned",
    "pruned-fused": "+ fused, pruned",
    "int8": "+ pruned, quantized",
    "int8-fused": "+ fused, pruned, quantized",
}
ENGINES = {"eager": "PyTorch eager", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
INK, QUIET, GRID = "#1f2933", "#7b8794", "#e4e7eb"
SHADES = {"eager": ("#b8bfc8", "#8a94a0"), "onnxruntime": ("#8ec5f0", "#2f7fc1"), "openvino": ("#f5c08a", "#d9822b")}


def draw(
    rows: Sequence[Row],
    plan: Plan,
    max_len: int,
    files: Mapping[str, Any],
    machine: Mapping[str, Any],
    choice: Mapping[str, Any],
    path: Path,
) -> None:
    """Write a PNG: speed over eager fp32 at the decisive shapes, a bar a batch, and file sizes beside."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cells = plan.decisive(max_len)
    faster = speedups(rows, cells)
    names = sorted(faster, key=lambda name: list(ENGINES).index(name[0]))
    places = [-(at + 0.5 * list(ENGINES).index(name[0])) for at, name in enumerate(names)]
    figure = Figure(figsize=(11, 0.52 * len(names) + 2.2), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    speed, size = figure.subplots(1, 2, sharey=True, width_ratios=(3.2, 1))
    thick = 0.8 / len(cells)

    for name, place in zip(names, places):
        for at, gain in enumerate(faster[name]):
            shade = SHADES[name[0]][min(at, 1)]
            height = place + 0.4 - thick * (at + 0.5)
            speed.barh(height, gain, thick * 0.92, color=shade, zorder=2)
            speed.text(gain, height, f" {gain:.1f}x", va="center", ha="left", fontsize=8, color=INK)
        file = None if name[0] == "eager" else FILES[name[2]].file
        if file is not None:
            megabytes = files[file]["bytes"] / 1e6
            size.barh(place, megabytes, 0.55, color=SHADES[name[0]][1], alpha=0.75, zorder=2)
            size.text(megabytes, place, f" {megabytes:.1f}", va="center", ha="left", fontsize=8, color=INK)
        chosen = (name[0], name[1], file) == (choice["engine"], choice["precision"], choice["graph"])
        label = f"{LABELS[name[2]]} · {name[1]}" if name[0] != "eager" else f"trained model · {name[1]}"
        speed.text(
            -0.012,
            place,
            f"released  ▸  {label}" if chosen else label,
            transform=speed.get_yaxis_transform(),
            ha="right",
            va="center",
            fontsize=9,
            color=INK,
            fontweight="bold" if chosen else "normal",
        )
    for engine, title in ENGINES.items():
        tops = [place for name, place in zip(names, places) if name[0] == engine]
        if tops:
            speed.text(
                0.995,
                max(tops) + 0.45,
                title,
                transform=speed.get_yaxis_transform(),
                ha="right",
                va="top",
                fontsize=10,
                color=SHADES[engine][1],
                fontweight="bold",
            )
    for axes, title in ((speed, "times as fast as eager PyTorch fp32"), (size, "file, MB")):
        axes.set_title(title, fontsize=10, color=INK, loc="left")
        axes.set_yticks([])
        axes.tick_params(axis="x", colors=QUIET, labelsize=8, length=0)
        axes.grid(axis="x", color=GRID, zorder=0)
        axes.margins(x=0.1)
        for side in axes.spines.values():
            side.set_visible(False)
    speed.axvline(1, color=QUIET, linewidth=1, zorder=1)
    speed.set_ylim(min(places) - 0.55, 0.65)
    shapes = ", ".join(
        f"{'upper' if at == 0 else 'lower'} bar: batch {cell.batch}" for at, cell in enumerate(cells[:2])
    )
    figure.text(0.01, 0.985, "What compression gains", fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(
        0.01,
        0.985 - 0.33 / figure.get_figheight(),
        f"{shapes}, {cells[0].seq} tokens, {machine['threads']} threads · {machine['cpu']} "
        f"({', '.join(machine['features']) or 'features unknown'})",
        fontsize=8.5,
        color=QUIET,
        va="top",
    )
    figure.subplots_adjust(
        left=0.31, right=0.98, wspace=0.06, top=1 - 0.95 / figure.get_figheight(), bottom=0.35 / figure.get_figheight()
    )
    figure.savefig(path, format="png")
