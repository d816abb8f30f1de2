"""However a run ends, nothing that it started lives on, and the next run ends as an uninterrupted one would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.mini_project import MiniProject, wait_for

pytestmark = pytest.mark.slow

GONE_WITHIN_S = 10.0
SLOW = {"sleep": 600, "leave_session": True}

RUN_DVC = """
import sys
from collections.abc import Iterator
from pathlib import Path
from flows import children
from flows.settings import child_environment

command = [sys.executable, "-m", "dvc", "repro", "--single-item", "ingest"]
children.run(command, Path.cwd(), child_environment(), on_line=lambda line, _: None, poll=lambda: None)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[MiniProject]:
    made = MiniProject(tmp_path)
    made.tool(sys.executable, "-m", "dvc", "repro", "--quiet", "--single-item", "code")
    made.control(ingest=SLOW)
    yield made
    made.end()


def start_stage(project: MiniProject) -> subprocess.Popen[bytes]:
    """A process that runs the stage as a flow does, without the flow."""
    process = subprocess.Popen([sys.executable, "-c", RUN_DVC], cwd=project.root, env=project.env())
    wait_for(lambda: project.stage_runs("ingest"), 20, "the stage begins")
    assert len(project.processes()) >= 4, "flow, guard, dvc and stage live"
    return process


def pid_of(project: MiniProject, *arguments: str) -> int:
    """The process whose interpreter got these arguments first."""
    for pid in project.processes():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if tuple(command[1 : 1 + len(arguments)]) == arguments:
            return pid
    raise AssertionError(f"no process with the arguments {arguments}")


def assert_all_gone(project: MiniProject) -> None:
    wait_for(lambda: not project.processes(), GONE_WITHIN_S, f"gone: {project.processes()}")


def assert_next_run_is_whole(project: MiniProject) -> None:
    project.control()
    project.tool(sys.executable, "-m", "dvc", "repro", "--quiet", "clean")
    assert (project.root / "artifacts/clean").read_text() == "one\ntwo\ningest\nscore\nclean\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ending_the_flow_ends_the_tree(project: MiniProject, number: signal.Signals) -> None:
    process = start_stage(project)
    process.send_signal(number)
    process.wait(GONE_WITHIN_S)
    assert_all_gone(project)
    assert_next_run_is_whole(project)


def test_killing_dvc_orphans_nobody(project: MiniProject) -> None:
    process = start_stage(project)
    os.kill(pid_of(project, "-m", "dvc"), signal.SIGKILL)
    process.wait(GONE_WITHIN_S)
    assert_all_gone(project)


def test_killing_the_guard_ends_the_stage(project: MiniProject) -> None:
    project.control(ingest={"sleep": 600})
    process = start_stage(project)
    os.kill(pid_of(project, "-S", "-E"), signal.SIGKILL)
    process.wait(GONE_WITHIN_S)
    assert_all_gone(project)


def test_a_child_deaf_to_sigterm_is_no_second_writer(project: MiniProject) -> None:
    project.control(ingest=SLOW | {"stubborn": True})
    process = start_stage(project)
    process.kill()
    assert_all_gone(project)
    project.control()
    project.tool(sys.executable, "-m", "dvc", "repro", "--quiet", "--single-item", "ingest")
    assert project.runs() == ["ingest", "ingest"]


def test_without_the_guard_the_stage_would_live_on(project: MiniProject) -> None:
    """The control: what the guard is for."""
    command = [sys.executable, "-m", "dvc", "repro", "--single-item", "ingest"]
    process = subprocess.Popen(command, cwd=project.root, env=project.env(), start_new_session=True)
    wait_for(lambda: project.stage_runs("ingest"), 20, "the stage begins")
    process.kill()
    process.wait()
    left = project.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left
