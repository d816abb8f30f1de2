"""What all tests share: one thread pool size, no telemetry, no network names."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

# `dvc`, `daymill` and `python` of the environment that runs the tests come first, also for child processes.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# Started with `&` from a script, this process ignores SIGINT and so would all that it starts; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
