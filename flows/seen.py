"""`daymill seen`: which of today's records were there before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from flows.settings import find_root
from flows.terminal import console
from tasks.seen import Look, Sum, look

SHOWN = 20  # rows of the table


def show_seen(files: Sequence[Path], index: Path | None, threshold: float | None, add: bool, as_json: bool) -> int:
    told = Sum()
    shown: list[Look] = []
    for found in look(find_root(), files, index, threshold, add, told):
        if as_json:
            print(json.dumps(found.as_dict(), ensure_ascii=False), flush=True)
        elif found.verdict != "new" and len(shown) < SHOWN:
            shown.append(found)
    if not as_json:
        render(shown, told, add)
    return 0


def render(shown: Sequence[Look], told: Sum, add: bool) -> None:
    out = console()
    if shown:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("record", "was", "earlier record"):
            table.add_column(name, overflow="fold")
        table.add_column("similarity", justify="right", no_wrap=True)
        table.add_column("differs in", no_wrap=True)
        for found in shown:
            # a changed record may be like nothing
            pair = next((one for one in found.pairs if found.verdict != "seen" or one["veto"] is None), None)
            like = (pair["earlier"], f"{pair['similarity']:.4f}", pair["veto"] or "") if pair else ("", "", "")
            table.add_row(found.id, found.verdict, *like)
        out.print(table)
    rest = sum(count for verdict, count in told.verdicts.items() if verdict != "new") - len(shown)
    if rest:
        out.print(f"and {rest:,} more (--json lists them)", highlight=False)
    counted = ", ".join(f"{count:,} {verdict}" for verdict, count in told.verdicts.items() if count)
    refused = f", {told.refused:,} refused (daymill check)" if told.refused else ""
    out.print(f"{counted}{refused}" + (f"; {told.added:,} added to the index" if add else ""), highlight=False)
