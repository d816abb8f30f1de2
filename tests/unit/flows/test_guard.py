"""The guard: a command's exit code and words pass through it, and nothing below it outlives it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import children
from flows.settings import child_environment


def run(code: str, root: Path) -> tuple[int, list[tuple[str, bool]]]:
    heard: list[tuple[str, bool]] = []
    command = [sys.executable, "-c", code]
    ended = children.run(
        command, root, child_environment(), on_line=lambda *line: heard.append(line), poll=lambda: None
    )
    return ended, heard


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
)
def test_exit_code_is_the_command_s(code: str, expected: int, tmp_path: Path) -> None:
    assert run(code, tmp_path)[0] == expected


def test_a_command_that_is_not_there_is_127_and_named(tmp_path: Path) -> None:
    heard: list[str] = []
    code = children.run(
        ["./no-such-command"], tmp_path, child_environment(), lambda line, _: heard.append(line), poll=lambda: None
    )
    assert code == 127 and "cannot start ./no-such-command" in heard[0]


def test_lines_keep_their_stream_and_bars_become_lines(tmp_path: Path) -> None:
    code = r"""
import sys, time
sys.stderr.write("1/2\r2/2\n"); sys.stderr.flush(); time.sleep(0.2)
sys.stdout.buffer.write("gr\u00fc\u00df dich \xff\n\nlast".encode("latin-1"))
"""
    ended, heard = run(code, tmp_path)
    assert ended == 0
    assert heard == [("1/2", True), ("2/2", True), ("gr\ufffd\ufffd dich \ufffd", False), ("last", False)]


def test_a_line_without_end_does_not_fill_memory(tmp_path: Path) -> None:
    _, heard = run("print('x' * 1_000_000)", tmp_path)
    assert len(heard) > 5 and sum(len(line) for line, _ in heard) == 1_000_000


def test_standard_input_is_empty(tmp_path: Path) -> None:
    """A stage that asks for input must not take the pipe that keeps it alive."""
    assert run("import sys; sys.exit(len(sys.stdin.read()))", tmp_path)[0] == 0


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    code = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(left.pid)
"""
    started = time.monotonic()
    _, heard = run(code, tmp_path)
    assert time.monotonic() - started < 5
    assert not Path(f"/proc/{heard[0][0]}").exists()


def test_an_exception_in_the_reader_ends_the_tree(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    code = "import time; print('begun', flush=True); time.sleep(60)"
    with pytest.raises(Stop):
        children.run(
            [sys.executable, "-c", code], tmp_path, child_environment(), lambda *_: None, poll=stop, poll_every_s=0.2
        )
    assert not cwd_users(tmp_path)


def cwd_users(folder: Path) -> list[str]:
    """Processes that stand in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += [entry.parent.name] if entry.resolve() == folder else []
        except OSError:
            continue
    return found


def test_guard_starts_in_a_blink(tmp_path: Path) -> None:
    """-S -E and the standard library only: each stage pays for it."""
    command = [sys.executable, "-S", "-E", "-X", "importtime", str(children.GUARD), "1", "/bin/true"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as guard:
        assert guard.stderr is not None
        loaded = guard.stderr.read()
    assert guard.returncode == 0
    assert "ctypes" in loaded and "subprocess" not in loaded and "asyncio" not in loaded
