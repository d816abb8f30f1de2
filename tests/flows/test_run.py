"""`daymill run` in a miniature project: one server, stages by DVC, a summary, and clear words when it cannot."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.embedded import request
from tests.flows.mini_project import MiniProject, wait_for

pytestmark = pytest.mark.slow

RETRYING = """
from flows import locks
from flows.embedded import embedded_server
from flows.settings import find_root

with embedded_server(find_root()) as server:
    from flows.pipeline import pipeline

    server.wait()
    state = pipeline.with_options(retries=1)(until="clean", return_state=True)
    print(state.type.value)
"""


SERVER = """
import sys
from pathlib import Path
from flows.embedded import embedded_server

with embedded_server(Path.cwd()) as server:
    server.wait()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Prefect home of a running server. A project that links to it finds the server, as beside `daymill up`."""
    home = tmp_path_factory.mktemp("server")
    environment = MiniProject.env()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=home,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield home / ".prefect"
    process.communicate()


@pytest.fixture
def project(tmp_path: Path, shared_home: Path) -> Iterator[MiniProject]:
    """A project beside a running server, which saves each test the seconds of its start."""
    made = MiniProject(tmp_path)
    (tmp_path / ".prefect").symlink_to(shared_home)
    yield made
    made.end()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[MiniProject]:
    """A project whose runs start a server of their own."""
    made = MiniProject(tmp_path)
    yield made
    made.end()


def summary(project: MiniProject) -> dict[str, Any]:
    return dict(json.loads((project.root / "artifacts/summary.json").read_text()))


def server_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"Prefect server(?: at|:) (http\S+)", line):
            return found.group(1)
    raise AssertionError("no server was started")


def test_a_run_then_the_same_again(project: MiniProject) -> None:
    first = project.daymill("run", "--until", "clean")
    assert first.returncode == 0, first.stderr
    assert project.runs() == ["ingest", "score", "clean"]
    assert "3 stages ran, 0 cached" in first.stdout
    assert {name: entry["state"] for name, entry in summary(project)["stages"].items()} == {
        "ingest": "ran",
        "score": "ran",
        "clean": "ran",
    }

    (project.root / "stage.py").write_text((project.root / "stage.py").read_text() + "# another code\n")
    again = project.daymill("run", "--until", "score")
    assert "2 cached" not in again.stdout and "ingest     runs: artifacts/code/stage.py modified" in again.stderr
    assert project.runs() == ["ingest", "score", "clean", "ingest"]  # the same bytes came out: score stays

    assert "0 stages ran, 2 cached" in project.daymill("run", "--until", "score").stdout
    assert "0 stages ran, 2 cached" in project.daymill("summary").stdout


def test_a_failing_stage_is_named_with_its_last_words(project: MiniProject) -> None:
    project.control(score={"fail": True})
    ran = project.daymill("run", "--until", "clean")
    assert ran.returncode == 1
    assert "error: stage score failed" in ran.stderr and "line 59 of the complaint" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert project.runs() == ["ingest", "score"]


def test_a_flow_s_retry_does_not_run_finished_stages_again(project: MiniProject) -> None:
    """prefect#9814."""
    project.control(score={"fail": "once"})
    ran = project.tool(sys.executable, "-c", RETRYING)
    assert ran.strip().endswith("COMPLETED")
    assert project.runs() == ["ingest", "score", "score", "clean"]


def test_cancel_in_the_ui_ends_a_run_of_the_command_too(project: MiniProject) -> None:
    project.control(ingest={"sleep": 600, "leave_session": True})
    process = project.start("run", "--until", "clean")
    url = server_url(process)
    wait_for(lambda: project.stage_runs("ingest"), 60, "the stage begins")
    (run,) = request(f"{url}/api/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}})
    request(f"{url}/api/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING"}})
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1 and "ingest was cancelled" in output
    wait_for(lambda: not project.processes(), 10, "nothing is left")


def test_kill_9_leaves_nobody_and_the_next_run_corrects_and_completes(alone: MiniProject) -> None:
    alone.control(score={"sleep": 600})
    process = alone.start("run", "--until", "clean")
    server_url(process)
    wait_for(lambda: alone.stage_runs("score"), 60, "the second stage begins")
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not alone.processes(), 10, "stage, guard and server are gone")

    alone.control(clean={"sleep": 4})
    process = alone.start("run", "--until", "clean")
    url = server_url(process)
    wait_for(lambda: alone.stage_runs("clean"), 60, "the run goes on to the last stage")
    states = [run["state"]["type"] for run in request(f"{url}/api/flow_runs/filter", {"sort": "START_TIME_ASC"})]
    assert states == ["CRASHED", "RUNNING"]
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert alone.runs() == ["ingest", "score", "score", "clean"]
    assert (alone.root / "artifacts/clean").read_text() == "one\ntwo\ningest\nscore\nclean\n"


def test_wrong_usage_is_said_before_anything_starts(alone: MiniProject) -> None:
    for arguments, said in [
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--preset", "quik"], "did you mean `quick`?"),
        (["--until", "splitt"], "invalid choice: 'splitt'"),
    ]:
        ran = alone.daymill("run", *arguments)
        assert ran.returncode == 2 and said in ran.stderr and "Traceback" not in ran.stderr
    assert not (alone.root / ".prefect").exists()


def test_interrupt_ends_the_run_and_its_tree(alone: MiniProject) -> None:
    alone.control(ingest={"sleep": 600, "leave_session": True})
    process = alone.start("run", "--until", "clean")
    wait_for(lambda: alone.stage_runs("ingest"), 60, "the stage begins")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in output, output
    wait_for(lambda: not alone.processes(), 10, "nothing is left")


def test_wrong_params_of_any_stage_end_the_run_before_the_first(project: MiniProject) -> None:
    """`score` becomes a stage of ours, whose params are checked; the miniature has no section for it."""
    pipeline = project.root / "dvc.yaml"
    pipeline.write_text(
        pipeline.read_text().replace("stage.py score artifacts/ingest artifacts/score", "-m tasks.score")
    )
    ran = project.daymill("run", "--until", "clean")
    assert ran.returncode == 2 and "params.yaml: no section `score:`" in ran.stderr and "Traceback" not in ran.stderr
    assert project.runs() == []
