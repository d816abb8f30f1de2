"""The stage wrapper, run as real processes in a miniature project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

STAGE = """
import time
from pathlib import Path
from data.errors import DaymillError
from tasks.params import Params
from tasks.stage import Context, Result, run

class Demo(Params):
    text: str
    pause: float = 0.0
    fail: bool = False

def main(params: Demo, ctx: Context) -> Result:
    Path("started").touch()
    (ctx.work / "cursor").write_text("x")
    time.sleep(params.pause)
    if params.fail:
        raise DaymillError("row 7 is wrong; expected a number; mend the file")
    with ctx.out("artifacts/demo/out.txt") as path, ctx.progress(1, "rows") as bar:
        path.write_text(Path("in.txt").read_text() + params.text)
        bar.advance(1)
    return Result(1, 1, "fine", {"n": 1})

if __name__ == "__main__":
    run("demo", Demo, main)
"""

DVC = """
stages:
  demo:
    cmd: exec python -m tasks.demo
    deps: [in.txt]
    params: [demo]
    outs: [artifacts/demo/out.txt]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "demo_stage.py").write_text(STAGE, encoding="utf-8")
    (tmp_path / "dvc.yaml").write_text(DVC, encoding="utf-8")
    (tmp_path / "in.txt").write_text("raw ", encoding="utf-8")
    params(tmp_path, "text: cooked")
    return tmp_path


def params(project: Path, *lines: str) -> None:
    (project / "params.yaml").write_text("demo:\n" + "".join(f"  {line}\n" for line in lines), encoding="utf-8")


# The stage's file stands beside the real `tasks` package, so the fingerprint is told where `tasks.demo` is.
RUN_STAGE = (
    "import runpy, tasks.code, pathlib; real = tasks.code.path_of; "
    "tasks.code.path_of = lambda m: pathlib.Path('demo_stage.py') if m == 'tasks.demo' else real(m); "
    "tasks.code.path_of.cache_clear = real.cache_clear; "
    "runpy.run_path('demo_stage.py', run_name='__main__')"
)


def start(project: Path, code: str = RUN_STAGE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


def test_a_stage_writes_its_out_its_metrics_and_one_json_line(project: Path) -> None:
    code, out, err = finish(start(project))
    assert code == 0, err
    assert (project / "artifacts/demo/out.txt").read_text() == "raw cooked"
    line = json.loads(out.strip().splitlines()[-1])
    assert line == json.loads((project / "artifacts/metrics/demo.json").read_text())
    assert (line["rows_in"], line["rows_out"], line["key"], line["metrics"]) == (1, 1, "fine", {"n": 1})
    marker = json.loads((project / "artifacts/.work/demo/last_run.json").read_text())
    assert marker["ended"] >= marker["started"]
    assert "demo: 1/1 rows" in err


def test_a_user_error_has_no_traceback_and_keeps_the_work(project: Path) -> None:
    params(project, "text: x", "fail: true")
    code, _, err = finish(start(project))
    assert code == 1
    assert "error: demo: row 7 is wrong" in err and "Traceback" not in err
    assert list((project / "artifacts/.work/demo").glob("*/cursor"))
    assert not (project / "artifacts/demo/out.txt").exists()


def test_bad_params_end_with_2(project: Path) -> None:
    params(project, "txet: x")
    code, _, err = finish(start(project))
    assert code == 2
    assert "params.yaml:2: demo.txet: unknown key, did you mean `text`?" in err and "Traceback" not in err


@pytest.mark.parametrize("what", ["dep", "param"])
def test_a_moved_input_fails_the_stage_by_name(project: Path, what: str) -> None:
    params(project, "text: x", "pause: 1.0")
    process = start(project)
    wait_for(project / "started")
    if what == "dep":
        (project / "in.txt").write_text("other", encoding="utf-8")
    else:
        params(project, "text: y", "pause: 1.0")
    code, _, err = finish(process)
    assert code == 1
    assert ("in.txt" if what == "dep" else "params.yaml") in err and "changed while the stage ran" in err


def test_an_imported_module_that_moves_fails_the_stage_by_name(project: Path) -> None:
    (project / "tasks").unlink()
    (project / "data").unlink()
    for room in ("tasks", "data"):
        (project / room).mkdir()
        for file in (ROOT / room).glob("*.py"):
            (project / room / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    params(project, "text: x", "pause: 1.5")
    process = start(project)
    wait_for(project / "started")
    (project / "data/errors.py").write_text("class DaymillError(Exception):\n    code = 3\n", encoding="utf-8")
    code, _, err = finish(process)
    assert code == 1
    assert "data.errors" in err and "changed while the stage ran" in err


def test_a_second_writer_is_refused_and_named(project: Path) -> None:
    params(project, "text: x", "pause: 2.0")
    first = start(project)
    wait_for(project / "started")
    code, _, err = finish(start(project))
    assert code == 1
    assert f"by pid {first.pid}" in err and "already running" in err
    assert finish(first)[0] == 0


def test_a_stage_ends_when_its_parent_is_killed(project: Path) -> None:
    params(project, "text: x", "pause: 60")
    parent = start(
        project,
        "import subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-c', {RUN_STAGE!r}]); print(p.pid, flush=True); p.wait()",
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    wait_for(project / "started")
    parent.kill()
    parent.wait(timeout=10)
    deadline = time.monotonic() + 10
    while alive(child):
        assert time.monotonic() < deadline, "the stage outlived its parent"
        time.sleep(0.05)
    parent.communicate(timeout=10)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
