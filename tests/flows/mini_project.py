"""A miniature project: git, DVC, three tiny stages with the pipeline's names, and knobs to make them slow or fail."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

STAGE = """
import json, os, pathlib, subprocess, sys, time
from data.parent import end_with_parent

end_with_parent()
name, source, target = sys.argv[1:]
control = json.loads(pathlib.Path("control.json").read_text()).get(name, {})
work = pathlib.Path("artifacts/.work") / name
work.mkdir(parents=True, exist_ok=True)
if control.get("leave_session"):  # as torchrun's workers do
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if control.get("stubborn"):
    ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", ignore], stdout=subprocess.PIPE).stdout.readline()
marker = {"pid": os.getpid(), "started": time.time(), "ended": None}
(work / "last_run.json").write_text(json.dumps(marker))
with open("runs.log", "a") as log:
    log.write(name + "\\n")
print(name + ": begins", flush=True)
print(control.get("say", ""), flush=True)
time.sleep(control.get("sleep", 0))
fail = control.get("fail")
if fail and not (fail == "once" and (work / "failed").exists()):
    (work / "failed").touch()
    for number in range(60):
        print(f"{name}: line {number} of the complaint", file=sys.stderr)
    sys.exit(1)
text = pathlib.Path(source).read_text()
pathlib.Path(target).write_text(text + name + "\\n")
rows = text.count("\\n")
metrics = pathlib.Path("artifacts/metrics")
metrics.mkdir(parents=True, exist_ok=True)
numbers = {"stage": name, "seconds": 0.1, "rows_in": rows, "rows_out": rows, "key": "ok", "metrics": {}, "peak_mb": 9}
(metrics / f"{name}.json").write_text(json.dumps(numbers))
(work / "last_run.json").write_text(json.dumps(marker | {"ended": time.time()}))
"""

PIPELINE = """\
stages:
  code:
    cmd: mkdir -p artifacts/code && cp stage.py artifacts/code/stage.py
    always_changed: true
    outs:
      - artifacts/code/stage.py: {cache: false, persist: true}
  ingest:
    cmd: exec python stage.py ingest ${ingest.source} artifacts/ingest
    deps: ["${ingest.source}", artifacts/code/stage.py]
    params: [ingest.source, ingest.shard_rows]
    outs: [artifacts/ingest]
    metrics: [artifacts/metrics/ingest.json: {cache: false}]
  score:
    cmd: exec python stage.py score artifacts/ingest artifacts/score
    deps: [artifacts/ingest]
    outs: [artifacts/score]
  clean:
    cmd: exec python stage.py clean artifacts/score artifacts/clean
    deps: [artifacts/score]
    outs: [artifacts/clean]
"""

PARAMS = """\
# every knob, by stage
ingest:
  source: input/mails.txt  # a file
  shard_rows: 100          # rows
  api_key: null            # for tests of redaction
"""


class MiniProject:
    """The project's folder, and how to run the command in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "input").mkdir()
        (root / "input" / "mails.txt").write_text("one\ntwo\n")
        (root / "stage.py").write_text(STAGE)
        (root / "dvc.yaml").write_text(PIPELINE)
        (root / "params.yaml").write_text(PARAMS)
        (root / ".gitignore").write_text("/artifacts/\n/input/\n/.prefect/\n/releases/\nruns.log\ncontrol.json\n")
        self.control()
        self.tool("git", "init", "--quiet")
        self.tool(sys.executable, "-m", "dvc", "init", "--quiet")
        self.tool(sys.executable, "-m", "dvc", "config", "core.analytics", "false")

    def tool(self, *command: str) -> str:
        ran = subprocess.run(command, cwd=self.root, env=self.env(), capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    @staticmethod
    def env(**more: str) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return dict(os.environ) | {"PYTHONPATH": str(REPOSITORY), "PATH": path, "DVC_NO_ANALYTICS": "1"} | more

    def control(self, **stages: dict[str, object]) -> None:
        """What the stages do: `ingest={"sleep": 60, "stubborn": True}`."""
        (self.root / "control.json").write_text(json.dumps(stages))

    def runs(self) -> list[str]:
        """Stages whose command ran, in order."""
        log = self.root / "runs.log"
        return log.read_text().split() if log.exists() else []

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "flows.cli", *arguments]

    def daymill(self, *arguments: str, timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self.env(**env),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """The command in the background, its output in one pipe."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.env(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[int]:
        """Living processes whose working directory is the project."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "cwd") == str(self.root):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(entry.name)] if state != "Z" else []
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Leave nothing of a test that failed."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stage_runs(self, name: str) -> bool:
        """True while the command of a stage has begun and not ended."""
        path = self.root / "artifacts/.work" / name / "last_run.json"
        try:
            return json.loads(path.read_text())["ended"] is None
        except (FileNotFoundError, ValueError):
            return False


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Seconds until the condition held; fails when it does not in time."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - started
