"""End with the parent: a stage never outlives the `dvc repro` that runs it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
WATCH_EVERY_S = 0.5


def end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies; where it cannot, a thread watches the parent's pid."""
    parent = os.getppid()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    else:
        threading.Thread(target=watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it died between the two lines
        os.kill(os.getpid(), signal.SIGTERM)


def watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
