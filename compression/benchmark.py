"""How fast each engine answers with each graph, and which of them is to serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from compression.export import GRAPHS, OFFERS, Offer, file_hash
from compression.parity import ParityError
from compression.turns import Block, Cell, Contender, take_turns, workers
from data.errors import DaymillError

# Not for release, but what a reader compares with: the unpruned model, as it comes.
YARDSTICKS = (Offer("unpruned", "openvino", "fp32"), Offer("unpruned", "openvino", "bf16"))
BASELINE = ("eager", "fp32", "unpruned")
FILES = {graph.name: graph for graph in GRAPHS}


@dataclass(frozen=True)
class Plan:
    """What is measured, and what decides: speed at `decide` (all cells of the grid), size and parity."""

    batches: tuple[int, ...] = (1, 8, 32)
    seqs: tuple[int, ...] = (32, 128, 256)
    decide_batches: tuple[int, ...] = (1, 32)
    decide_seq: int = 128
    threads: int = 2
    block: Block = field(default_factory=Block)
    seconds: float = 35.0
    max_file_share: float = 0.2  # of the unpruned fp32 graph's file
    noise: float = 0.05  # engines closer than this are equally fast; then the portable one serves

    def cells(self, max_len: int) -> list[Cell]:
        """The grid; sequences that the model cannot take are left out."""
        return [Cell(batch, seq) for seq in self.seqs for batch in self.batches if seq <= max_len]

    def decisive(self, max_len: int) -> list[Cell]:
        return [Cell(batch, min(self.decide_seq, max_len)) for batch in self.decide_batches]


@dataclass(frozen=True)
class Row:
    """Latency of one contender at one shape: milliseconds over `calls` calls."""

    engine: str
    precision: str
    graph: str
    batch: int
    seq: int
    median_ms: float
    p90_ms: float
    calls: int


def line_up(checkpoint: Path, exported: Path, parity: Mapping[str, Any]) -> list[Contender]:
    """All that is timed: the unpruned checkpoint in eager torch, and every graph that could be loaded for parity."""
    team = [Contender("eager", precision, "unpruned", checkpoint) for precision in ("fp32", "bf16")]
    offers = [*OFFERS[:1], *YARDSTICKS, *OFFERS[1:]]
    for offer in offers:
        if offer in YARDSTICKS or parity[offer.key]["rows"]:
            team.append(Contender(offer.engine, offer.precision, offer.graph, exported / FILES[offer.graph].file))
    return team


def check_files(exported: Path, files: Mapping[str, Any]) -> None:
    """Raise ParityError where a graph is not the file whose answers were proven."""
    changed = [name for name, entry in files.items() if file_hash(exported / name) != entry["sha256"]]
    if changed:
        raise ParityError(
            f"{exported}: changed after parity was proven: {', '.join(changed)}; run the export stage again"
        )


def measure(
    contenders: Sequence[Contender],
    plan: Plan,
    vocab_size: int,
    max_len: int,
    on_block: Callable[[str], None] = lambda _: None,
) -> tuple[list[Row], dict[str, float]]:
    """Latency rows of all contenders over the grid, and the memory (MiB) of each by name, measured at the end."""
    times: dict[tuple[str, Cell], list[float]] = {}
    decisive = plan.decisive(max_len)
    cells = list(dict.fromkeys([*decisive, *plan.cells(max_len)]))
    with workers(contenders, plan.threads, vocab_size) as team:
        for name, cell, ms in take_turns(team, cells, decisive, plan.block, plan.seconds):
            times.setdefault((name, cell), []).extend(ms)
            on_block(name)
        memory = {worker.contender.name: worker.memory_mb() for worker in team}
    rows = [
        Row(
            c.engine,
            c.precision,
            c.graph,
            cell.batch,
            cell.seq,
            round(float(np.median(times[c.name, cell])), 4),
            round(float(np.percentile(times[c.name, cell], 90)), 4),
            len(times[c.name, cell]),
        )
        for c in contenders
        for cell in sorted(cells, key=lambda cell: (cell.seq, cell.batch))
    ]
    return rows, memory


def speedups(rows: Sequence[Row], cells: Sequence[Cell]) -> dict[tuple[str, str, str], list[float]]:
    """Baseline's median over the median of each (engine, precision, graph), cell by cell."""
    median = {(row.engine, row.precision, row.graph, Cell(row.batch, row.seq)): row.median_ms for row in rows}
    names = dict.fromkeys((row.engine, row.precision, row.graph) for row in rows)
    return {name: [median[(*BASELINE, cell)] / median[(*name, cell)] for cell in cells] for name in names}


def choose(
    rows: Sequence[Row], parity: Mapping[str, Any], files: Mapping[str, Any], plan: Plan, max_len: int
) -> dict[str, Any]:
    """The engine that serves: the fastest (geometric mean over the decisive cells) that passes parity and is small.

    Raises DaymillError with the reason of each when none does.
    """
    decisive = plan.decisive(max_len)
    faster = speedups(rows, decisive)
    whole = files[FILES["unpruned"].file]["bytes"]
    fit: list[tuple[float, Offer]] = []
    refused = []
    for offer in OFFERS:
        graph = FILES[offer.graph]
        verdict, share = parity[offer.key], files[graph.file]["bytes"] / whole
        if graph.source == "unpruned":
            continue
        if not verdict["passed"]:
            refused.append(f"{offer.key}: {verdict['reason']}")
        elif share > plan.max_file_share:
            refused.append(f"{offer.key}: its file is {share:.0%} of the unpruned one, bar {plan.max_file_share:.0%}")
        else:
            fit.append((_mean(faster[offer.engine, offer.precision, offer.graph]), offer))
    if not fit:
        raise DaymillError(f"no engine may serve ({'; '.join(refused)})")
    speed, best = prefer_portable(fit, plan.noise)
    graph = FILES[best.graph]
    gains = faster[best.engine, best.precision, best.graph]
    return {
        "engine": best.engine,
        "precision": best.precision,
        "graph": graph.file,
        **{f"speedup_b{cell.batch}": round(gain, 3) for cell, gain in zip(decisive, gains)},
        "file_share": round(files[graph.file]["bytes"] / whole, 4),
        "released_flip_share": parity[best.key]["flip_share"],
        "reason": f"{reason(fit, best, speed, plan)}; {len(fit)} of {len(fit) + len(refused)} pass parity and size",
        "refused": refused,
    }


def prefer_portable(fit: Sequence[tuple[float, Offer]], noise: float) -> tuple[float, Offer]:
    """The fastest; ONNX Runtime where it is as fast within `noise`."""
    fastest = max(fit, key=lambda pair: pair[0])
    portable = [pair for pair in fit if pair[1].engine == "onnxruntime" and pair[0] * (1 + noise) >= fastest[0]]
    return max(portable, key=lambda pair: pair[0]) if portable else fastest


def reason(fit: Sequence[tuple[float, Offer]], best: Offer, speed: float, plan: Plan) -> str:
    batches = " and ".join(map(str, plan.decide_batches))
    text = f"{speed:.1f}x eager fp32 unpruned (geometric mean, batch {batches}, sequence {plan.decide_seq})"
    others = [pair for pair in fit if pair[1] != best]
    if not others:
        return text
    rival_speed, rival = max(others, key=lambda pair: pair[0])
    return f"{text}, next {rival.key} {rival_speed:.1f}x"


def markdown(
    rows: Sequence[Row], memory: Mapping[str, float], files: Mapping[str, Any], machine: Mapping[str, Any]
) -> str:
    """The grid as a table: median milliseconds, then memory and file size."""
    cells = sorted({(row.seq, row.batch) for row in rows})
    head = ["engine", "precision", "graph", *(f"b{batch} x {seq}" for seq, batch in cells), "memory MiB", "file MB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * 3 + "---:|" * (len(head) - 3)]
    for name in dict.fromkeys((row.engine, row.precision, row.graph) for row in rows):
        found = {(row.seq, row.batch): row for row in rows if (row.engine, row.precision, row.graph) == name}
        size = "" if name[0] == "eager" else f"{files[FILES[name[2]].file]['bytes'] / 1e6:.1f}"
        figures = [f"{found[cell].median_ms:.2f}" for cell in cells]
        lines.append("| " + " | ".join([*name, *figures, f"{memory[' '.join(name)]:.0f}", size]) + " |")
    where = f"{machine['cpu']}, {machine['threads']} threads, {', '.join(machine['features'])}"
    return f"Median milliseconds a call (batch x tokens), engines taking turns. {where}.\n\n" + "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> float:
    return float(prod(values) ** (1 / len(values)))
