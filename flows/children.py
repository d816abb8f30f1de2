"""Child processes that cannot outlive the flow: each one runs below a guard (see guard.py)."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

GUARD = Path(__file__).with_name("guard.py")
GRACE_S = 5.0
LONGEST_LINE = 1 << 16


@contextmanager
def guarded(
    command: Sequence[str], root: Path, env: dict[str, str], output: IO[bytes] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """The command's guard; when the block ends, however it ends, the whole tree below it is gone.

    `output` takes stdout and stderr; a pipe each by default.
    """
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", str(GUARD), str(GRACE_S), *command],
        cwd=root,
        env=env,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Ctrl-C goes to the flow, which ends this in its own order
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # EOF: the guard ends the tree, then itself
        try:
            process.wait(GRACE_S + 3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode < 0:  # the guard itself was killed: what is left of its group goes with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def run(
    command: Sequence[str],
    root: Path,
    env: dict[str, str],
    on_line: Callable[[str, bool], None],
    poll: Callable[[], None],
    poll_every_s: float = 2.0,
) -> int:
    """Run a command below a guard and give its exit code.

    `on_line(line, from_stderr)` is called as lines come, `poll()` every `poll_every_s`; what either raises ends the
    command's tree.
    """
    with guarded(command, root, env) as process:
        for line, from_stderr in lines(process, poll, poll_every_s):
            on_line(line, from_stderr)
        return process.wait()


def lines(
    process: subprocess.Popen[bytes], poll: Callable[[], None], poll_every_s: float
) -> Iterator[tuple[str, bool]]:
    """Lines of both pipes in the order they come; `\\r` of a progress bar ends a line too."""
    assert process.stdout is not None and process.stderr is not None
    rest: dict[IO[bytes], bytes] = {process.stdout: b"", process.stderr: b""}
    polled = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for pipe in rest:
            selector.register(pipe, selectors.EVENT_READ, data=pipe)
        while selector.get_map():
            ready = selector.select(poll_every_s)
            if not ready and process.poll() is not None:
                return  # the guard was killed, and what it leaves holds the pipes open
            for key, _ in ready:
                pipe = key.data
                block = os.read(key.fd, 1 << 16)
                *whole, rest[pipe] = (rest[pipe] + block).replace(b"\r", b"\n").split(b"\n")
                if not block or len(rest[pipe]) > LONGEST_LINE:
                    whole.append(rest[pipe])
                    rest[pipe] = b""
                if not block:
                    selector.unregister(pipe)
                for line in whole:
                    if line.strip():
                        yield line.decode("utf-8", "replace").rstrip(), pipe is process.stderr
            if time.monotonic() - polled >= poll_every_s:
                poll()
                polled = time.monotonic()
