"""Worker processes of this machine, started by torchrun.

A worker that dies takes its fellows down, and torchrun starts all of them again, a few times; they go on from the last
checkpoint. The store of every try has a prefix of its own: what a dead try left in it must not be taken for an answer.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from data.errors import DaymillError
from data.parent import end_with_parent
from training.clock import waiting
from training.device import backend, here
from training.parallel.torchrun import LOOPBACK

RESTARTS = 3
PATIENCE = timedelta(minutes=30)  # a collective that takes longer is a dead rank


def launch(
    ranks: int, module: str, arguments: Sequence[str], on_line: Callable[[str], None], restarts: int = RESTARTS
) -> None:
    """Run `python -m module` on that many ranks of this machine and hand on their lines until all have ended.

    Raises DaymillError with their last lines where they fail more often than `restarts`.
    """
    command = [sys.executable, "-m", "training.parallel.torchrun", "--standalone", "--local-addr", LOOPBACK]
    command += ["--nproc-per-node", str(ranks)]
    command += ["--max-restarts", str(restarts), "--monitor-interval", "0.5", "-m", module, *arguments]
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths}
    if sys.platform == "linux":
        # ranks of this machine talk over loopback
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        try:
            for line in process.stdout or ():
                last = [*last[-19:], line.rstrip()]
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        told = "\n  ".join(last)
        raise DaymillError(f"{ranks} ranks of {module} ended with {process.returncode}; their last lines:\n  {told}")


@contextmanager
def joined(turn: int = 0) -> Iterator[torch.device]:
    """Be one of torchrun's ranks for the time of the block, which may be the process's `turn`-th one, on the device
    that is given."""
    end_with_parent()
    started, rank, ranks = (os.environ[name] for name in ("TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE"))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = here()
    waiting.on_gpu = device.type == "cuda"
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, int(ranks), is_master=False, timeout=PATIENCE)
    dist.init_process_group(
        backend(device),
        store=dist.PrefixStore(f"try{started}-{turn}", store),
        rank=int(rank),
        world_size=int(ranks),
        timeout=PATIENCE,
    )
    try:
        yield device
    finally:
        dist.destroy_process_group()
        gc.collect()  # pipelines hold their groups in cycles, and every group has threads that poll
