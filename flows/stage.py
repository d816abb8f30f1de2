"""One DVC stage as one Prefect task: skipped when DVC says so, its tree ended with the flow, its log live.

Called directly, never submitted: a cancelled thread would let the stage live for another half minute.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import sys
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Failed

from flows import children
from flows.redact import Redactor
from flows.report import complaint
from flows.settings import METRICS, WORK, child_environment
from flows.staleness import Plan

TAIL_LINES = 40
CACHED = "Cached"

# DVC's own talk. The warnings about locks that a killed run left come once a path and bury the error.
NOISE = (
    "To track the changes with git, run:",
    "To enable auto staging, run:",
    "Use `dvc push` to send your updates",
    "\tgit add ",
    "\tdvc config core.autostage",
    "Updating lock file",
    "Generating lock file",
    "Running stage '",
    "> ",
)
STALE_LOCK = "had been killed. Auto removed it from the lock file."


class CancelAsked(Exception):
    """The flow run is Cancelling: someone pressed Cancel in the UI."""


@task(name="stage", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False, retries=0)
def run_stage(name: str, root: Path, plan: Plan | None, redact: Redactor) -> State[Any]:
    """Bring one stage up to date.

    `plan` is what DVC said while no stage has run yet; None once one really ran, since then only DVC knows again.
    Returns Completed, Completed named Cached when nothing had to run, Failed with stderr's last lines, or Cancelled.
    """
    logger = get_run_logger()
    if plan is not None:
        why = plan.why(name)
        if not why:
            logger.info("%-9s  up to date", name)
            return Completed(name=CACHED, message="up to date, says DVC")
        logger.info("%-9s  runs: %s", name, "; ".join(why))

    before = last_run(root, name)
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        code = children.run(
            [sys.executable, "-m", "dvc", "repro", "--single-item", name],
            root,
            child_environment(),
            on_line=log_to(logger, name, tail, redact),
            poll=raise_if_cancelling,
        )
    except CancelAsked:
        logger.warning("%-9s  cancelled; what it finished is kept for the next run", name)
        return Cancelled(message=f"{name} was cancelled and its processes are gone")
    if code:
        return Failed(message=complaint(name, code, tail))
    if last_run(root, name) == before:
        return Completed(name=CACHED, message="nothing had to run, says DVC")
    return Completed(message=key_metric(root, name))


def last_run(root: Path, name: str) -> dict[str, Any] | None:
    """The marker that a stage writes when its command really runs (a skipped or restored stage leaves it alone)."""
    path = root / WORK / name / "last_run.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def key_metric(root: Path, name: str) -> str:
    path = root / METRICS / f"{name}.json"
    return str(json.loads(path.read_text(encoding="utf-8")).get("key", "")) if path.exists() else ""


def log_to(
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger], name: str, tail: deque[str], redact: Redactor
) -> Callable[[str, bool], None]:
    """Lines of the stage into the run's log, DVC's talk left out, stderr's last lines into `tail`."""

    def on_line(line: str, from_stderr: bool) -> None:
        if line.startswith(NOISE) or STALE_LOCK in line or is_result(line):
            return
        line = redact(line)
        if from_stderr:
            tail.append(line)
        logger.info("%-9s  %s", name, line.removeprefix(f"{name}: "))

    return on_line


def is_result(line: str) -> bool:
    """The JSON line that ends a stage: its numbers are in artifacts/metrics already."""
    return line.startswith('{"stage": ')


def raise_if_cancelling() -> None:
    """Ask the server whether this flow run is to be cancelled.

    A flow that a runner started gets SIGTERM for that; one that `daymill run` holds itself has nobody to send it.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    url = f"{os.environ['PREFECT_API_URL']}/flow_runs/{context.flow_run.id}"
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            state = json.load(response)["state"]["type"]
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        get_run_logger().debug("the Prefect server does not answer: %s", error)
        return
    if state == "CANCELLING":
        raise CancelAsked
