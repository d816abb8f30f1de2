"""What a killed run needs to go on exactly: one safetensors file, replaced atomically, no pickle.

Tensors and the JSON beside them (step, position, choices) share the file, so they can never be of two moments.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from data.errors import DaymillError
from training.device import device_of
from training.optim import load_optimizer_tensors, optimizer_tensors

RNG_OF_GPU = "rng_gpu"


def save_state(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write beside and rename: a crash at any instant leaves the previous state or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".writing")
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(plain, beside, metadata={"state": json.dumps(meta)})
    os.replace(beside, path)


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and meta, or None where no state was saved. Raises DaymillError for a file that cannot be read."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {})["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, meta  # noqa: SIM118 (not a dict)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise DaymillError(f"{path}: cannot be resumed from ({error}); delete it to start over") from error


def training_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Parameters, buffers, moments and the RNG that dropout draws from (on a GPU its own), by name."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"optimizer/{name}": tensor for name, tensor in optimizer_tensors(optimizer, model).items()}
    device = device_of(model)
    if device.type == "cuda":
        tensors[RNG_OF_GPU] = torch.cuda.get_rng_state(device)
    return tensors | {"rng": torch.get_rng_state()}


def restore_training(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `training_tensors` gave. Raises DaymillError when it is of another model."""
    try:
        model.load_state_dict(part(tensors, "model"), strict=True)
    except RuntimeError as error:
        raise DaymillError(f"the saved state does not fit this model; delete it to start over ({error})") from error
    load_optimizer_tensors(optimizer, model, part(tensors, "optimizer"))
    torch.set_rng_state(tensors["rng"])
    device = device_of(model)
    if device.type == "cuda" and RNG_OF_GPU in tensors:  # a run may have begun on a CPU
        torch.cuda.set_rng_state(tensors[RNG_OF_GPU], device)


def part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors whose name begins with `name/`, without it."""
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
