"""`daymill status`: what is served, what was, what ran last, what runs now. Takes no lock: it works during a run."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from rich import box

from data.errors import DaymillError
from flows import locks
from flows.report import headline
from flows.settings import RELEASES, SUMMARY, WORK, find_root, stages_until
from flows.terminal import VERDICT_STYLE, console, stage_table, titled

SHOWN_ENTRIES = 8


def show_status() -> int:
    root = find_root()
    out = console()
    out.print(served(root), markup=False, highlight=False)
    running = running_now(root)
    out.print(running or "runs now   nothing", markup=False, highlight=False)
    path = root / SUMMARY
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        ended = datetime.fromtimestamp(found["run"]["started"] + found["run"]["seconds"])
        out.print(f"last run   {ended:%Y-%m-%d %H:%M:%S}: {headline(found)}", markup=False, highlight=False)
        out.print(stage_table(found["stages"]))
    else:
        out.print("last run   none finished yet: daymill run")
    show_history(root)
    return 0


def show_served_at(text: str) -> int:
    """Print the version that served at a time. Raises DaymillError where the time cannot be read."""
    from serving import releases

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "2026-11-29, 2026-11-29T18:00 or 2026-11-29T18:00+02:00"
        raise DaymillError(f"--at is {text!r}; expected a time such as {expected}") from None
    print(releases.served_at(find_root() / RELEASES, moment) or "nothing")
    return 0


def served(root: Path) -> str:
    from serving import releases

    champion = releases.champion(root / RELEASES)
    if champion is None:
        return "serves     nothing yet: daymill run"
    return (
        f"serves     {champion.version} since {local(champion.since)} ({champion.entry.action}: {champion.entry.why})"
    )


def running_now(root: Path) -> str | None:
    """The run that holds the pipeline's lock, with the stage whose command has begun and not ended."""
    holder = locks.holder(locks.pipeline_lock(root))
    if holder is None:
        return None
    at = [name for name in stages_until("bundle") if begun(root, name)]
    return f"runs now   {', '.join(at) or 'between stages'}, {locks.describe(holder)}"


def begun(root: Path, name: str) -> bool:
    path = root / WORK / name / "last_run.json"
    if not path.exists():
        return False
    marker = json.loads(path.read_text(encoding="utf-8"))
    return marker["ended"] is None and locks.alive(marker["pid"])


def show_history(root: Path) -> None:
    """The last lines of the release log, newest first."""
    from serving import releases

    entries = releases.history(root / RELEASES)
    if not entries:
        return
    table = titled("Releases", box=box.SIMPLE_HEAD)
    for name in ("when", "who", "what", "version", "why"):
        table.add_column(name, no_wrap=name != "why", overflow="fold")
    for entry in entries[: -SHOWN_ENTRIES - 1 : -1]:
        style = VERDICT_STYLE.get(entry.action.upper(), "")
        table.add_row(local(entry.when), entry.who, entry.action, entry.version or "", entry.why, style=style)
    console().print(table)


def local(when: str) -> str:
    return f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M:%S}"
