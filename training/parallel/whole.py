"""Checkpoints that know no layout: the whole model's tensors are gathered to be saved, and each rank takes its part.

So a run may go on with other ranks than it was begun with. What belongs to a rank alone (its random state, what its
gradients' compression remembers) is saved by rank and serves the same layout only.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from data.errors import DaymillError
from training.model import Transformer
from training.optim import load_optimizer_tensors, optimizer_tensors
from training.parallel.layout import Mesh
from training.parallel.pipeline import TIED
from training.state import part

MOMENTS = ("exp_avg", "exp_avg_sq")


def whole_tensors(mesh: Mesh, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """On the first rank what training.state.training_tensors gives of one process, without its random state; elsewhere
    nothing. Every rank must call it."""
    mine = {f"model/{name}": p.detach() for name, p in mesh.named}
    mine |= {f"optimizer/{key}": value for key, value in optimizer_tensors(optimizer, mesh.model).items()}
    stepped = torch.tensor(float(any(key.endswith("/step") for key in mine)))
    dist.all_reduce(stepped)
    mine = {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in mine.items()}
    found = {}
    assert isinstance(mesh.model, Transformer)
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in Transformer(mesh.model.config).named_parameters()}
    for name, shape in shapes.items():
        kinds = [f"model/{name}"]
        if stepped > 0:
            kinds += [f"optimizer/{name}/{kind}" for kind in (*MOMENTS, "step")]
        for key in kinds:
            full = torch.zeros(() if key.endswith("/step") else shape, dtype=mesh.dtype)
            if key in mine and tells(mesh, name, scalar=full.ndim == 0):
                piece = mesh.pieces.get(name)
                if piece is None or full.ndim == 0:
                    full.copy_(mine[key])
                else:
                    full.narrow(piece.dim, piece.start, piece.end - piece.start).copy_(mine[key])
            dist.reduce(full, 0)
            if dist.get_rank() == 0:
                found[key] = full
    return found


def tells(mesh: Mesh, name: str, scalar: bool) -> bool:
    """Whether this rank is the one that tells its part of a parameter."""
    if mesh.rank or (name == TIED and mesh.pipeline is not None and not mesh.pipeline.has_first):
        return False
    return mesh.tensor_rank == 0 or (name in mesh.pieces and not scalar)


def restore_part(mesh: Mesh, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Take this rank's part of the whole model's tensors. Raises DaymillError where they are of another model."""
    weights, moments = part(tensors, "model"), part(tensors, "optimizer")
    owners = dict(mesh.named)
    try:
        with torch.no_grad():
            for name, p in owners.items():
                p.copy_(like(p, cut(mesh, name, weights[name])))
    except (RuntimeError, KeyError) as error:
        raise DaymillError(f"the saved state does not fit this model; delete it to start over ({error})") from error
    mine = {}
    for key, value in moments.items():
        name = key.rpartition("/")[0]
        if name in owners:
            mine[key] = like(owners[name], cut(mesh, name, value)) if value.ndim else value
    load_optimizer_tensors(optimizer, mesh.model, mine)


def cut(mesh: Mesh, name: str, full: Tensor) -> Tensor:
    """A tensor-parallel rank's piece."""
    piece = mesh.pieces.get(name)
    if piece is None or full.ndim == 0:
        return full
    return full.narrow(piece.dim, piece.start, piece.end - piece.start)


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """A value sharded as the parameter is."""
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(value.contiguous(), parameter.device_mesh, parameter.placements, src_data_rank=None)
