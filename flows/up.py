"""`daymill up`: the Prefect server and UI, with the pipeline's form, until Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from flows import locks
from flows.embedded import correct_lost_runs, embedded_server
from flows.settings import RUNNER_PID, find_root

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

DEPLOYMENT = "daymill"


def serve_form(port: int) -> int:
    """Serve the deployment `pipeline/daymill`. Raises DaymillError when the port or the project's server is taken."""
    root = find_root()
    os.chdir(root)
    with embedded_server(root, port) as server:
        print(f"starting the Prefect server at {server.url}", file=sys.stderr, flush=True)
        os.environ[RUNNER_PID] = str(os.getpid())
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [code_folder(), os.environ.get("PYTHONPATH")]))
        form = deployment()
        server.wait()
        if locks.holder(locks.pipeline_lock(root)) is None:
            correct_lost_runs(server.url)
        from prefect import serve

        made = form.apply()
        print(f"UI    {server.url}\nform  {server.url}/deployments/deployment/{made} (Run, Custom run)")
        print("Ctrl-C ends it, and what runs in it.", flush=True)
        # A restart must not leave schedules paused (prefect#16363).
        serve(form, pause_on_shutdown=False, print_starting_message=False)
    return 0


def deployment() -> RunnerDeployment:
    """The pipeline with its form. A second run while one runs is cancelled at once, and says so."""
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.flows import EntrypointType

    from flows.pipeline import pipeline

    made = pipeline.to_deployment(
        name=DEPLOYMENT,
        description=(pipeline.__doc__ or "").partition("\n")[0],
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    assert not isinstance(made, Coroutine)  # only inside an event loop
    return made


def code_folder() -> str:
    return str(Path(__file__).parents[1])
