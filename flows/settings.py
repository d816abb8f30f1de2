"""Where the project is, what its stages are called, and the environment that its child processes get."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, get_args

from data.errors import DaymillError

Until = Literal[
    "ingest",
    "score",
    "clean",
    "split",
    "tokenize",
    "pretrain",
    "finetune",
    "prune",
    "quantize",
    "export",
    "benchmark",
    "bundle",
    "release",
]
STAGES: tuple[str, ...] = get_args(Until)[:-1]
LAST = "release"  # not a DVC stage: what is served is never a DVC out

WORK = Path("artifacts/.work")
METRICS = Path("artifacts/metrics")
SUMMARY = Path("artifacts/summary.json")
BUNDLE = Path("artifacts/bundle")
RELEASES = Path("releases")
UI_PORT = 4200
RUNNER_PID = "DAYMILL_RUNNER_PID"  # set by `daymill up` for the runs that it starts

# dvclive brings the old pynvml, and torch complains about it at every import.
PYNVML = "ignore:The pynvml package is deprecated"

# A shell's own Prefect settings would send our runs to another server, or crash them
# (PREFECT_CLIENT_METRICS_ENABLED lets the children fight for one port).
FOREIGN = (
    "PREFECT_API_",
    "PREFECT_CLIENT_METRICS_ENABLED",
    "PREFECT_CLOUD_",
    "PREFECT_PROFILE",
    "PREFECT_SERVER_API_",
    "PREFECT_SERVER_DATABASE_",
)


def find_root(start: Path | None = None) -> Path:
    """The checkout that a folder is in: the nearest one upward with a dvc.yaml. Raises DaymillError."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file():
            return folder
    raise DaymillError(f"no dvc.yaml in {here} or above it: run this from inside a Daymill checkout")


def stages_until(until: str) -> tuple[str, ...]:
    """The DVC stages that a run up to and including `until` goes through."""
    return STAGES if until == LAST else STAGES[: STAGES.index(until) + 1]


def child_environment(base: dict[str, str] | None = None) -> dict[str, str]:
    """For every child: our interpreter first on the PATH, loopback past any proxy, nobody phoned."""
    env = dict(os.environ if base is None else base)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env["NO_PROXY"] = env["no_proxy"] = ",".join(filter(None, [env.get("NO_PROXY"), "127.0.0.1,localhost"]))
    env["PYTHONWARNINGS"] = ",".join(filter(None, [env.get("PYTHONWARNINGS"), PYNVML]))
    return env | {"DVC_NO_ANALYTICS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}


def prefect_environment(root: Path, api_url: str) -> dict[str, str]:
    """What makes Prefect embedded: its own home in the project, a loopback server, no telemetry, no browser beacons.

    The default UI (V2) lets the browser call an analytics host; V1 does not.
    """
    return {
        "PREFECT_HOME": str(root / ".prefect"),
        "PREFECT_API_URL": api_url,
        "PREFECT_UI_URL": api_url.removesuffix("/api"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        "PREFECT_LOGGING_FORMATTERS_STANDARD_FORMAT": "%(asctime)s  %(message)s",
        "PREFECT_LOGGING_FORMATTERS_STANDARD_FLOW_RUN_FMT": "%(asctime)s  %(message)s",
        "PREFECT_LOGGING_FORMATTERS_STANDARD_TASK_RUN_FMT": "%(asctime)s  %(message)s",
    }


def enter_environment(values: dict[str, str]) -> None:
    """Set this process up for the embedded server; before Prefect is imported, which reads it once."""
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ.update(child_environment())
    os.environ.update(values)
