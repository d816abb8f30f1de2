"""`daymill run` and `daymill plan`: one run in this process, its server started beside it."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from data.errors import DaymillError
from flows import locks, staleness, terminal
from flows.embedded import Server, correct_lost_runs, embedded_server
from flows.presets import UsageError, configure
from flows.settings import LAST, find_root, stages_until


def run_pipeline(data: str, until: str, preset: str) -> int:
    """Run the pipeline and print its summary; the exit code. Raises DaymillError for what the user can mend."""
    root = find_root()
    if data:
        data = str(Path(data).absolute())  # as seen from where the user stands, not from the root
    with locks.hold(locks.pipeline_lock(root), "the pipeline"):
        for change in configure(root, data, preset):
            say(f"params.yaml  {change}")
        with embedded_server(root) as server:
            return run_beside(server, root, data, until, preset)


def run_beside(server: Server, root: Path, data: str, until: str, preset: str) -> int:
    say(f"starting the Prefect server at {server.url}" if server.own else f"Prefect server: {server.url}")
    from flows.pipeline import pipeline  # three seconds of import, while the server starts
    from flows.steps import WRONG_USAGE

    quiet_console()
    say(f"Prefect server ready after {server.wait():.0f} s")
    correct_lost_runs(server.url)
    state = pipeline(data=data, until=until, preset=preset, return_state=True)
    if not state.is_completed():
        error = UsageError if state.name == WRONG_USAGE else DaymillError
        raise error(str(state.message or state.name))
    terminal.show_summary(root)
    return 0


def quiet_console() -> None:
    """Leave Prefect's own talk to the UI: here each stage speaks for itself, and failures are printed at the end."""
    talk = ("Beginning flow run", "Finished in state", "Task run failed with state", "View at")

    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: not record.getMessage().startswith(talk))


def show_plan(until: str = LAST) -> int:
    """Print each stage with the reason to run it; what DVC would do, without doing it."""
    root = find_root()
    busy = locks.holder(locks.pipeline_lock(root))
    if busy is not None:
        raise locks.AlreadyRunning(f"the pipeline is already running {locks.describe(busy)}; plan when it has ended")
    plan = staleness.ask(root)
    terminal.show_plan({name: plan.why(name) for name in stages_until(until) if name in plan.parents})
    return 0


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)
