"""Small worlds of real processes on gloo: a test's function runs on every rank, and its answers come back by rank.

Imports cost seconds, so one process does them and ranks are forked from it, and the processes of one world are those of
the next ones too; each world has a process group of its own. A rank that fails ends all of them, as does every few
worlds, since what torch keeps of a group is threads that ask for news; the next world gets new ones.
"""

from __future__ import annotations

import atexit
import gc
import traceback
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PRELOADED = ["torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel", "numpy"]
PATIENCE = timedelta(seconds=120)
WORLDS = 12  # that a process takes part in
MEMBERS: list[tuple[Any, Connection]] = []  # processes, and our ends of their pipes
BEGUN = count()


def run(ranks: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(rank, *arguments)` returned on every rank: tensors, numbers, and lists and mappings of them.

    It must be a top-level function. An error on any rank is raised here with that rank's traceback.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    if next(BEGUN) % WORLDS == 0:
        end()
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    while len(MEMBERS) < ranks:
        ours, theirs = context.Pipe()
        process = context.Process(target=member, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        MEMBERS.append((process, ours))
    for rank, (_, pipe) in enumerate(MEMBERS[:ranks]):
        pipe.send((rank, ranks, folder, function, arguments))
    waiting = {pipe: rank for rank, (_, pipe) in enumerate(MEMBERS[:ranks])}
    while waiting:
        for pipe in wait(list(waiting), timeout=PATIENCE.total_seconds()) or [None]:
            if pipe is None:
                end()
                raise AssertionError(f"no answer from the ranks {sorted(waiting.values())}")
            assert isinstance(pipe, Connection)
            try:
                error = pipe.recv()
            except EOFError:
                error = "it died"
            if error:
                rank = waiting[pipe]
                end()
                raise AssertionError(f"rank {rank} of {ranks}:\n{error}")
            del waiting[pipe]
    return [torch.load(folder / f"answer{rank}.pt", weights_only=True) for rank in range(ranks)]


def member(pipe: Connection) -> None:
    """A process that is a rank of one world after the other."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    while True:
        try:
            rank, ranks, folder, function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            store = dist.FileStore(str(folder / "store"), ranks)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
            torch.save(function(rank, *arguments), folder / f"answer{rank}.pt")
            dist.barrier()
            dist.destroy_process_group()
            gc.collect()  # a group that a cycle holds keeps threads that ask a hundred times a second for news
            pipe.send("")
        except BaseException:
            pipe.send(traceback.format_exc())
            return


@atexit.register
def end() -> None:
    while MEMBERS:
        process, pipe = MEMBERS.pop()
        pipe.close()
        process.kill()
        process.join()
