"""What the command prints: colors on a terminal, plain text of a fixed width in a pipe or a log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from data.errors import DaymillError
from flows.report import Found, count, headline, next_commands, seconds, sections
from flows.settings import SUMMARY, find_root

PLAIN_WIDTH = 100  # of a log or a pipe, which have no width of their own
STATE_STYLE = {"ran": "green", "cached": "bright_blue"}
VERDICT_STYLE = {"PROMOTE": "bold green", "HOLD": "yellow", "REJECT": "bold red"}


def show_summary(root: Path | None = None) -> int:
    """Print artifacts/summary.json. Raises DaymillError before the first run."""
    path = (root or find_root()) / SUMMARY
    if not path.exists():
        raise DaymillError(f"no {SUMMARY} yet: `daymill run` writes it at its end")
    render(json.loads(path.read_text(encoding="utf-8")), console())
    return 0


def render(found: Found, out: Console) -> None:
    """The whole summary; a part that the run did not reach is left out."""
    out.print()
    out.print(stage_table(found["stages"]))
    for title, rows in sections(found):
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
        )
        table.add_column(style="dim", no_wrap=True, min_width=24)
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, value)
        out.print(table)
        out.print()
    if found.get("gate"):
        print_verdict(found["gate"], out)
    if found.get("answers"):
        out.print(answer_table(found["answers"]))
    out.print(f"{headline(found)}", style="bold", highlight=False)
    out.print("\n".join(next_commands(found)), highlight=False, markup=False)


def stage_table(stages: Found) -> Table:
    table = titled("Stages", box=box.SIMPLE_HEAD)
    table.add_column("stage", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("seconds", "in", "out"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("key metric", overflow="fold", ratio=1)
    for name, entry in stages.items():
        state = Text(entry["state"], style=STATE_STYLE.get(entry["state"], ""))
        table.add_row(name, state, seconds(entry["seconds"]), count(entry["in"]), count(entry["out"]), entry["key"])
    return table


def titled(title: str, **look: Any) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", pad_edge=False, **look)


def answer_table(answers: Sequence[Found]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title="Three questions", title_justify="left", title_style="bold"
    )
    for name in ("a mail from", "answer", "score", "version", "ms"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("score", "ms") else "left")
    for answer in answers:
        score, took = f"{answer['score']:.3f}", f"{answer['milliseconds']:.1f}"
        table.add_row(answer["question"], answer["label"], score, answer["version"], took)
    return table


def print_verdict(gate: Found, out: Console) -> None:
    line = Text("Gate  ", style="bold").append(gate["verdict"], style=VERDICT_STYLE.get(gate["verdict"], ""))
    out.print(line)
    for reason in gate["reasons"]:
        out.print(f"  {reason}", markup=False, highlight=False)
    out.print(f"  serves: {gate['champion'] or 'nothing yet'}\n", markup=False, highlight=False)


def show_verdict(gate: Found) -> None:
    print_verdict(gate, console())


def show_plan(why: Mapping[str, tuple[str, ...]]) -> None:
    """Each stage and its reasons to run."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    table.add_column("would", no_wrap=True)
    table.add_column("because", overflow="fold")
    for name, reasons in why.items():
        table.add_row(name, "run" if reasons else "skip", "\n".join(reasons) or "up to date")
    out = console()
    out.print(table)
    stale = sum(bool(reasons) for reasons in why.values())
    out.print(f"{stale} of {len(why)} stages would run" + (": daymill run" if stale else ""))


def console() -> Console:
    probe = Console()
    return probe if probe.is_terminal else Console(width=PLAIN_WIDTH, no_color=True, highlight=False)
