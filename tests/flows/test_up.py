"""The Prefect UI's form over the REST API that the UI uses: what it shows is what runs, and cancel means gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from flows.embedded import free_port, request
from flows.settings import Until
from tests.flows.mini_project import MiniProject, wait_for

pytestmark = pytest.mark.slow

CANARY = "canary-8f2b61c0d5"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Form:
    """The running `daymill up` of a miniature project, asked through its API."""

    def __init__(self, project: MiniProject, port: int, process: subprocess.Popen[str], log: Path) -> None:
        self.project, self.process, self.log = project, process, log
        self.api = f"http://127.0.0.1:{port}/api"

    def call(self, path: str, body: object = None) -> Any:
        return request(self.api + path, body)

    def deployment(self) -> dict[str, Any]:
        return dict(self.call("/deployments/name/pipeline/daymill"))

    def trigger(self, **parameters: str) -> str:
        made = self.call(f"/deployments/{self.deployment()['id']}/create_flow_run", {"parameters": parameters})
        return str(made["id"])

    def state(self, run: str) -> dict[str, Any]:
        return dict(self.call(f"/flow_runs/{run}")["state"])

    def end_of(self, run: str, seconds: float = 60) -> dict[str, Any]:
        wait_for(lambda: self.state(run)["type"] in FINAL, seconds, f"run {run} ends")
        return self.state(run)

    def of_run(self, kind: str, run: str, sort: str) -> list[dict[str, Any]]:
        return list(self.call(f"/{kind}/filter", {"flow_runs": {"id": {"any_": [run]}}, "sort": sort}))

    def begin_slow_run(self) -> str:
        """A run whose first stage has begun and will not end by itself."""
        self.project.control(ingest={"sleep": 600, "leave_session": True})
        (self.project.root / "input/mails.txt").write_text(f"{os.urandom(8).hex()}\n")
        before = len(self.project.runs())
        run = self.trigger(data="input/mails.txt", until="score")
        wait_for(lambda: len(self.project.runs()) > before, 40, "the stage begins")
        wait_for(lambda: self.project.stage_runs("ingest"), 10, "its marker is there")
        return run

    def stage_processes(self) -> list[int]:
        return [pid for pid in self.project.processes() if b"stage.py" in command(pid) or b"sleep(600)" in command(pid)]

    def flow_process(self) -> int:
        return next(pid for pid in self.project.processes() if b"prefect.engine" in command(pid))


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.fixture(scope="module")
def form(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Form]:
    project, port = MiniProject(tmp_path_factory.mktemp("project")), free_port()
    params = project.root / "params.yaml"
    params.write_text(params.read_text().replace("api_key: null", f"api_key: {CANARY}-in-params"))
    log = project.root.with_name("up.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*project.command("up", "--port", str(port))],
            cwd=project.root,
            env=project.env(SOME_API_KEY=f"{CANARY}-in-environment"),
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    wait_for(lambda: "Ctrl-C ends it" in log.read_text(), 90, "the form is served")
    yield Form(project, port, process, log)
    process.kill()
    process.wait()
    wait_for(lambda: not project.processes(), 20, "killing `daymill up` ends all that it started")


def test_form_is_flat_and_every_field_has_a_default_and_a_description(form: Form) -> None:
    fields = form.deployment()["parameter_openapi_schema"]["properties"]
    assert list(fields) == ["data", "until", "preset"]
    assert {name: field["default"] for name, field in fields.items()} == {
        "data": "",
        "until": "release",
        "preset": "keep",
    }
    assert all(len(field["description"]) > 30 for field in fields.values())
    assert tuple(fields["until"]["enum"]) == get_args(Until)


def test_a_triggered_run_executes_with_the_form_s_values(form: Form) -> None:
    form.project.control(ingest={"say": f"the key is {CANARY}-in-params, or {CANARY}-in-environment"})
    (form.project.root / "input/other.txt").write_text("three\n")
    run = form.trigger(data="input/other.txt", until="score", preset="keep")
    assert form.end_of(run)["type"] == "COMPLETED"
    assert (form.project.root / "artifacts/score").read_text() == "three\ningest\nscore\n"
    assert "  source: input/other.txt  # a file\n" in (form.project.root / "params.yaml").read_text()
    artifacts = form.of_run("artifacts", run, "ID_DESC")
    by_time = [artifact["key"] for artifact in sorted(artifacts, key=lambda artifact: artifact["created"])]
    assert by_time == ["configuration", "stages", "summary"]
    configuration = next(artifact["data"] for artifact in artifacts if artifact["key"] == "configuration")
    assert "source: input/other.txt" in configuration and "| input/other.txt | score | keep |" in configuration


def test_a_skipped_stage_shows_as_cached(form: Form) -> None:
    run = form.trigger(until="score")
    form.end_of(run)
    wait_for(lambda: len(form.of_run("task_runs", run, "ID_DESC")) == 3, 10, "the task runs are recorded")
    states = {task["name"]: task["state"]["name"] for task in form.of_run("task_runs", run, "ID_DESC")}
    assert states == {"code": "Completed", "ingest": "Cached", "score": "Cached"}


def test_a_failing_stage_leaves_its_last_words_and_no_traceback(form: Form) -> None:
    form.project.control(score={"fail": True})
    (form.project.root / "input/other.txt").write_text("four\n")
    state = form.end_of(form.trigger(until="clean"))
    assert state["type"] == "FAILED"
    assert "stage score failed" in state["message"] and "score: line 59 of the complaint" in state["message"]
    assert "line 0 of" not in state["message"]


def test_wrong_data_fails_with_what_to_do(form: Form) -> None:
    state = form.end_of(form.trigger(data="input/nothing-here"))
    assert state["type"] == "FAILED" and "input/nothing-here does not exist" in state["message"]


def test_a_second_run_is_cancelled_and_ten_commands_say_who_runs(form: Form) -> None:
    run = form.begin_slow_run()
    assert form.end_of(form.trigger(until="ingest"), 20)["type"] == "CANCELLED"
    started = [form.project.start("run", "--until", "ingest") for _ in range(10)]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    assert all(process.returncode == 1 for process in started)
    holder = f"by pid {form.flow_process()}"
    assert all("already running since" in text and holder in text and "Traceback" not in text for text in outputs)

    status = form.project.daymill("status")
    assert status.returncode == 0 and "runs now   ingest, since" in status.stdout
    assert "already running since" in form.project.daymill("plan").stderr

    form.call(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    wait_for(lambda: not form.stage_processes(), 10, "cancel ends the stage's tree")
    assert form.end_of(run, 30)["type"] == "CANCELLED"


def test_kill_of_the_flow_is_noticed_and_leaves_no_orphan(form: Form) -> None:
    run = form.begin_slow_run()
    os.kill(form.flow_process(), signal.SIGKILL)
    wait_for(lambda: not form.stage_processes(), 10, "the guard ends the stage's tree")
    assert form.end_of(run, 90)["type"] == "CRASHED"
    form.project.control()
    assert form.end_of(form.trigger(until="score"))["type"] == "COMPLETED"


def test_a_secret_never_shows(form: Form) -> None:
    """After the runs above: not in the console, the database, the artifacts or anything else that was written."""
    allowed = {form.project.root / "params.yaml"}
    files = [path for path in form.project.root.rglob("*") if path.is_file() and ".git" not in path.parts]
    files += [form.log]
    control = form.project.root / "control.json"
    shown = [path for path in files if path not in {*allowed, control} and CANARY.encode() in path.read_bytes()]
    assert not shown
    assert "the key is ***, or ***" in form.log.read_text()


def test_killing_up_ends_a_run_too(form: Form) -> None:
    form.begin_slow_run()
    form.process.kill()
    wait_for(lambda: not form.project.processes(), 25, f"gone: {form.project.processes()}")
