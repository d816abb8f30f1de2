"""One holder at a time, named; freed by the kernel however the holder ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows import locks

HOLD = """
import sys, time
from pathlib import Path
from flows import locks

try:
    with locks.hold(Path(sys.argv[1]), "the pipeline", url="here"):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except locks.AlreadyRunning as error:
    print(error)
"""


def start(path: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLD, str(path), str(seconds)], stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_ten_at_once_one_holds_and_nine_name_it(tmp_path: Path) -> None:
    started = [start(tmp_path / "lock", 1.5) for _ in range(10)]
    said = [first_line(process) for process in started]
    assert said.count("held") == 1
    holder = started[said.index("held")]
    refused = [line for line in said if line != "held"]
    pattern = rf"the pipeline is already running since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d by pid {holder.pid}"
    assert len(refused) == 9 and all(re.fullmatch(pattern, line) for line in refused)
    for process in started:
        process.communicate()


def test_kill_9_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = start(path, 60)
    assert first_line(process) == "held"
    found = locks.holder(path)
    assert found is not None and found["pid"] == process.pid and found["url"] == "here"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert locks.holder(path) is None
    with locks.hold(path, "the pipeline"):
        assert (locks.holder(path) or {})["pid"] == os.getpid()


def test_the_same_process_may_enter_again(tmp_path: Path) -> None:
    """The command takes the lock before the server starts, the flow that it then runs finds it held."""
    path = tmp_path / "lock"
    with locks.hold(path, "the pipeline"):
        with locks.hold(path, "the pipeline"):
            pass
        assert locks.holder(path) is not None
    assert locks.holder(path) is None


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ValueError), locks.hold(path, "the pipeline"):
        raise ValueError
    assert locks.holder(path) is None


def test_whoever_looks_does_not_get_in_the_way(tmp_path: Path) -> None:
    """`status` asks by taking the lock for a moment; a run that begins just then must not be refused."""
    path = tmp_path / "lock"
    look = f"from pathlib import Path\nfrom flows import locks\nwhile True: locks.holder(Path({str(path)!r}))"
    path.touch()
    watchers = [subprocess.Popen([sys.executable, "-c", look]) for _ in range(2)]
    try:
        for _ in range(30):
            with locks.hold(path, "the pipeline"):
                pass
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.wait()
