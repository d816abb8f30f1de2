"""Runs one command and ends its whole process tree when whoever asked for it is gone, however that ended.

Started as `python -S -E guard.py GRACE COMMAND...` in a session of its own, stdin a pipe that only the asker holds: the
kernel closes it even after SIGKILL. On EOF, or on SIGTERM, every descendant gets SIGTERM and, after GRACE seconds,
SIGKILL. Nothing but the standard library, so that it starts in 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ENDED_BY_GUARD = 143  # 128 + SIGTERM, as a shell would say it
LINUX = sys.platform == "linux"


def main(grace: float, command: list[str]) -> int:
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what leaves the group or loses its parent stays below us
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    asked: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))

    child = start(command)
    while True:
        ready, _, _ = select.select([0, told], [], [])
        if told in ready:
            os.read(told, 4096)
        code = reap(child)
        if code is not None:
            end_tree(grace)  # what a finished command leaves behind would be a second writer
            return code
        if asked or (0 in ready and not os.read(0, 4096)):
            end_tree(grace)
            return ENDED_BY_GUARD


def start(command: list[str]) -> int:
    """Fork and exec; the child is killed with the guard, so that killing the guard orphans nobody."""
    child = os.fork()
    if child:
        return child
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"error: cannot start {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def reap(child: int) -> int | None:
    """Collect whoever ended; the exit code of `child` when it is among them, 128 + signal as a shell has it."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            code = 128 - ended if ended < 0 else ended


def end_tree(grace: float) -> None:
    """SIGTERM to all that is below us, SIGKILL to what is left after `grace` seconds."""
    if not LINUX:  # without /proc and a subreaper: the group is all we know, and we are in it
        os.killpg(0, signal.SIGTERM)
        wait_until_alone(grace)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if not alone():
            os.killpg(0, signal.SIGKILL)
        return
    send(signal.SIGTERM)
    wait_until_alone(grace)
    while not alone():
        send(signal.SIGKILL)
        wait_until_alone(0.2)


def send(number: int) -> None:
    for pid in descendants():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_until_alone(seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and not alone():
        time.sleep(0.02)


def alone() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def descendants() -> list[int]:
    """Pids below this process, from /proc; children before their parents' later forks are found by asking again."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(below)
    return found


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
