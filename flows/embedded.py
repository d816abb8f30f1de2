"""An embedded Prefect server: SQLite and its own home in the project, loopback, gone with whoever started it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from flows import children, locks
from flows.settings import child_environment, enter_environment, prefect_environment

HOST = "127.0.0.1"
READY_WITHIN_S = 120.0  # a first start on a busy disk makes the database's tables
LOOK_EVERY_S = 0.1
LOG_LINES = 15
BUSY, BUSY_TRIES = 503, 10


class Server:
    """Where the project's Prefect server is or will be in some seconds."""

    def __init__(self, url: str, own: subprocess.Popen[bytes] | None, log: Path) -> None:
        self.url, self.own, self.log = url, own, log
        self.started = time.monotonic()

    def wait(self) -> float:
        """Return the seconds since the start when the server answers. Raises DaymillError with the end of its log."""
        for _ in range(int(READY_WITHIN_S / LOOK_EVERY_S)):  # looks, not the clock: a laptop may sleep in between
            if answers(self.url):
                return time.monotonic() - self.started
            ended = self.own.poll() if self.own else None
            if ended is not None:
                raise self.failure(f"ended with exit code {ended}")
            time.sleep(LOOK_EVERY_S)
        raise self.failure(f"did not answer in {READY_WITHIN_S:.0f} s")

    def failure(self, how: str) -> DaymillError:
        return DaymillError(f"the Prefect server {how}; the end of {self.log}:\n{tail(self.log)}")


@contextmanager
def embedded_server(root: Path, port: int = 0) -> Iterator[Server]:
    """Start the project's one Prefect server (call `.wait()`), or find the one that `daymill up` already runs.

    Enters its environment in this process, so call it before Prefect is imported. A fixed port asks for a server of
    our own: raises AlreadyRunning when the project has one, DaymillError when the port is taken.
    """
    lock, log = root / ".prefect" / "server.lock", root / ".prefect" / "server.log"
    there = locks.holder(lock)
    if there and not port:
        enter_environment(prefect_environment(root, f"{there['url']}/api"))
        yield Server(there["url"], None, log)
        return
    url = f"http://{HOST}:{port or free_port()}"
    with locks.hold(lock, "a Prefect server of this project", url=url):
        if port and not is_free(port):
            raise DaymillError(f"port {port} is taken by another program: `daymill up --port {port + 1}`")
        enter_environment(prefect_environment(root, f"{url}/api"))
        env = child_environment() | {"PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-m", "flows.embedded", url.rpartition(":")[2]]
        with log.open("wb") as output, children.guarded(command, root, env, output) as process:
            try:
                yield Server(url, process, log)
            finally:
                drain()


def serve(port: int) -> None:
    """The child's part. `prefect server start` does the same three seconds slower."""
    import uvicorn
    from prefect.server.api.server import create_app

    uvicorn.run(create_app(final=True), host=HOST, port=port, log_level="warning", timeout_keep_alive=15)


def drain() -> None:
    """Let log lines and task states on their way reach the server before it ends: at exit they would wait for it."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=5)


def correct_lost_runs(url: str) -> int:
    """Runs that the database still has as running, though whoever ran them was killed, become Crashed; how many.

    Call it while holding the pipeline's lock: then nobody else can be running one.
    """
    lost = 0
    for kind in ("flow_runs", "task_runs"):
        asked = {kind: {"state": {"type": {"any_": ["RUNNING", "CANCELLING"]}}}}
        for run in request(f"{url}/api/{kind}/filter", asked):
            state = {"type": "CRASHED", "message": "its process was gone when the next run began"}
            request(f"{url}/api/{kind}/{run['id']}/set_state", {"state": state, "force": True})
            lost += kind == "flow_runs"
    return lost


def request(url: str, body: object = None) -> Any:
    """POST a body, GET without one; the JSON of the answer. Asks again while SQLite is locked by another writer."""
    data = None if body is None else json.dumps(body).encode()
    for tries_left in reversed(range(BUSY_TRIES)):
        asked = urllib.request.Request(url, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=20) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code != BUSY or not tries_left:
                raise
            time.sleep(0.5)
    return None


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/health", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def tail(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-LOG_LINES:])


if __name__ == "__main__":
    os.environ.setdefault("PREFECT_SERVER_API_HOST", HOST)
    serve(int(sys.argv[1]))
