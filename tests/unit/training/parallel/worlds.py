"""Small worlds of real processes on gloo: a test's function runs on every rank, and its answers come back by rank."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PATIENCE = timedelta(seconds=120)


def run(ranks: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(rank, *arguments)` returned on every rank: tensors, numbers, and lists and mappings of them.

    It must be a top-level function. An error on any rank is raised here with that rank's traceback.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mp.spawn(member, (ranks, folder, function, arguments), nprocs=ranks)
    return [torch.load(folder / f"answer{rank}.pt", weights_only=True) for rank in range(ranks)]


def member(rank: int, ranks: int, folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
    try:
        torch.save(function(rank, *arguments), folder / f"answer{rank}.pt")
        dist.barrier()
    except BaseException:
        print(f"rank {rank}:\n{traceback.format_exc()}", flush=True)
        raise
    finally:
        dist.destroy_process_group()
