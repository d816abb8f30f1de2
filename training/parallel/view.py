"""What telemetry needs to know of a mesh of ranks; implements training.layers.View."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from training.clock import waiting
from training.parallel.layout import Mesh, local
from training.parallel.pipeline import TIED


class MeshView:
    def __init__(self, mesh: Mesh) -> None:
        self.mesh, self.ranks = mesh, dist.get_world_size()

    @waiting
    def total(self, values: Tensor) -> Tensor:
        summed = values.clone()
        dist.all_reduce(summed)
        return summed

    @waiting
    def largest(self, values: Tensor) -> Tensor:
        found = values.clone()
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    def counts(self, name: str) -> bool:
        mesh = self.mesh
        tied_again = name == TIED and mesh.pipeline is not None and not mesh.pipeline.has_first
        split = name in mesh.pieces or mesh.tensor_rank == 0
        return split and not tied_again and (mesh.sharded or mesh.rank == 0)

    def part(self, tensor: Tensor) -> Tensor:
        return local(tensor)

    def first_row(self, name: str) -> int:
        piece = self.mesh.pieces.get(name)
        return piece.start if piece is not None else 0

    def own_tokens(self, whole_BT: Tensor, count: int) -> Tensor:
        """Between a block's layers a tensor-parallel rank has its share of the tokens, inside of them all."""
        if count == whole_BT.shape[1]:
            return whole_BT
        return whole_BT.narrow(1, self.mesh.tensor_rank * count, count)
