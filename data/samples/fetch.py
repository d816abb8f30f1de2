"""One archive of a sample, fetched by its package manager's own command."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from data.errors import DaymillError

SECONDS = 300
SHOWN = 4  # lines of what the command said


def fetched(command: Sequence[str], package: str, folder: Path, pattern: str, check: str) -> Path:
    """Run `command` in `folder`, which it leaves one file like `pattern` in; return that file.

    `check` tells the user where to look when it fails. Raises DaymillError with what the command said.
    """
    name = " ".join([Path(command[0]).name, command[1]]) if command[1] != "-m" else " ".join(command[2:4])
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DaymillError(f"{name} {package}: no answer in {SECONDS} s; check the network and try again") from None
    found = sorted(folder.glob(pattern))
    if done.returncode == 0 and found:
        return found[0]
    lines = [line.strip() for line in done.stderr.splitlines()]
    said = " | ".join([line for line in lines if line and not line.startswith("WARNING")][:SHOWN]) or "nothing"
    tool = name.split()[0]
    raise DaymillError(
        f"{name} {package} failed (exit {done.returncode}); {tool} said: {said}. {check}, then run the command again"
    )
