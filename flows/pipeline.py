"""Records in, a released model out: the README's picture as a Prefect flow.

Order, parameters and reporting are all that is here: whether a stage is stale is DVC's word, whether a model may serve
is the gate's. Import it after the server's environment is entered (see embedded.py).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas import State
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed
from prefect.utilities.annotations import quote

from data.errors import DaymillError
from flows import artifacts, knobs, locks, questions, release, report, staleness, summary
from flows.presets import configure
from flows.redact import Redactor, hide
from flows.settings import LAST, RUNNER_PID, Until, find_root, stages_until
from flows.stage import CACHED, run_stage
from flows.steps import Stopped, failed, result_of, step
from tasks.params import plain, read

Preset = Literal["keep", "default", "quick", "accounts", "icd10", "adult", "dialogues", "subjects"]


@flow(name="pipeline", flow_run_name="until-{until}", persist_result=False)
def pipeline(data: str = "", until: Until = "release", preset: Preset = "keep") -> State[Any]:
    """Raw records in, a small fast model out.

    Args:
        data: A folder or file of records; written into params.yaml as ingest.source. Empty keeps what is there.
        until: The last stage to run; `release` also puts the model through the gate and asks it three questions.
        preset: Values written into params.yaml: `quick` is a small fast try, `default` is as shipped, `accounts` are
            the settings that public accounts name, `icd10`, `adult`, `dialogues` and `subjects` are for those samples
            (the last two with until `finetune`), `keep` changes nothing.
    """
    end_with_runner()
    root = find_root()
    try:
        with locks.hold(locks.pipeline_lock(root), "the pipeline"):
            return stages_then_release(root, data, until, preset)
    except locks.AlreadyRunning as busy:
        return Cancelled(name="AlreadyRunning", message=str(busy))
    except Stopped as stopped:
        return stopped.state
    except DaymillError as error:
        return failed(error)


def stages_then_release(root: Path, data: str, until: Until, preset: Preset) -> State[Any]:
    started = time.time()
    changes = configure(root, data, preset)
    params = plain(read(root / "params.yaml"))
    redact = Redactor(params)
    publish("configuration", artifacts.configuration(data, until, preset, changes, hide(params)))

    state: State[Any] = fingerprint_and_plan(root, until, return_state=True)
    plan: staleness.Plan | None = result_of(state)
    states: dict[str, str] = {}
    for name in stages_until(until):
        state = run_stage(name, root, quote(plan), redact, wait_for=[state], return_state=True)
        if not state.is_completed():
            publish("stages", artifacts.stopped(states, name, state.type.value.lower(), str(state.message)))
        result_of(state)
        states[name] = "cached" if state.name == CACHED else "ran"
        if states[name] == "ran":
            plan = None  # what DVC said before is no longer true of the stages below

    gate = answers = None
    if until == LAST:
        gate = result_of(state := put_through_gate(root, wait_for=[state], return_state=True))
        answers = result_of(ask_three_questions(root, wait_for=[state], return_state=True))
    found = summary.write(root, until, states, started, gate, answers)
    publish("stages", artifacts.stages(found))
    publish("summary", artifacts.summary(found))
    return Completed(message=report.headline(found))


@step("code")
def fingerprint_and_plan(root: Path, until: Until) -> staleness.Plan:
    """The always-run first stage, DVC's word on all the others, and a look at the params of those that will run."""
    plan = staleness.ask(root)
    stale = [name for name in stages_until(until) if plan.why(name)]
    get_run_logger().info("code       stale: %s", ", ".join(stale) or "nothing")
    if checked := [name for name in stale if name in plan.ours]:
        knobs.check(root, checked)
    return plan


@step("release")
def put_through_gate(root: Path) -> dict[str, Any]:
    verdict = release.release(root)
    get_run_logger().info("release    %s: %s", verdict["verdict"], "; ".join(verdict["reasons"]))
    return verdict


@step("ask")
def ask_three_questions(root: Path) -> list[dict[str, Any]]:
    """Start the embedded inference server, ask it about three made-up texts, and end it."""
    answers = questions.ask(root, release.champion_or_bundle(root))
    for answer in answers:
        get_run_logger().info("ask        %s: %s %.3f", answer["question"], answer["label"], answer["score"])
    return answers


def publish(key: str, markdown: str) -> None:
    create_markdown_artifact(markdown, key=key)


def end_with_runner() -> None:
    """End this run when `daymill up`, whose runner started it, is gone: SIGTERM, which ends the stage's tree too."""
    parent = os.getppid()
    if os.environ.get(RUNNER_PID) != str(parent):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(8)  # the server is gone too: the engine would ask it for long
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-runner").start()
