"""Where training runs: on CUDA where there is a GPU for this process, on the CPU otherwise.

Libraries follow the device of the model that they are given; who builds the model asks here. CUDA_VISIBLE_DEVICES=""
keeps a run on the CPU.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from data.errors import DaymillError


def best_device() -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def rank_device(local_rank: int, local_ranks: int, gpus: int) -> torch.device:
    """The device of one of several ranks of this machine: a GPU each where there are as many, else the CPU for all.

    Two ranks on one GPU would be an error in NCCL, and some on GPUs and some not would wait for each other.
    """
    return torch.device("cuda", local_rank) if gpus >= local_ranks else torch.device("cpu")


def backend(device: torch.device) -> str:
    """What ranks talk by: NCCL for tensors on GPUs, gloo for those that stay on the host, such as counts and flags."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def here() -> torch.device:
    """The device of this rank, as torchrun's variables say."""
    local_rank, local_ranks = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    device = rank_device(local_rank, local_ranks, torch.cuda.device_count())
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def device_of(model: nn.Module) -> torch.device:
    """Where a model is."""
    return next(model.parameters()).device


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device; a GPU fetches it while the host goes on, which takes pinned memory."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def compile_blocks(blocks: nn.ModuleList, device: torch.device) -> None:
    """Compile each block by itself: they are alike, so one compilation serves all, and the loss, whose number of kept
    targets changes from step to step, stays as it is. Raises DaymillError on a CPU, where it is not worth its wait."""
    if device.type != "cuda":
        raise DaymillError("pretrain.compile is on and there is no GPU; set it to off")
    for block in blocks:
        block.compile()
