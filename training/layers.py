"""What goes on inside each block in one step: activations of all its real tokens, gradients, weights and their update.

Statistics are sums over everything that the step saw, over all micro-batches and ranks, so they do not depend on how
the rows were dealt out. Nothing here changes a number of the training.

Shape suffixes: B rows, T tokens, D channels, N real tokens, L blocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training.model import Block, Transformer
from training.step import StepReport, Trainer

DEAD = 1e-3  # of the layer's root mean square: a channel that no token of the step lifts above it
REST = "rest"  # parameters of no block: embeddings, the last norm, a head
BLOCK = re.compile(r"\bblocks\.(\d+)\.")


class View(Protocol):
    """What statistics need to know of the ranks; every rank calls the same methods in the same order."""

    @property
    def ranks(self) -> int: ...

    def total(self, values: Tensor) -> Tensor:
        """Summed over all ranks."""
        ...

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over all ranks, entry by entry."""
        ...

    def counts(self, name: str) -> bool:
        """Whether this rank's part of a parameter counts in a sum over all ranks; of replicas one does."""
        ...

    def part(self, tensor: Tensor) -> Tensor:
        """What this rank holds of a tensor."""
        ...

    def first_row(self, name: str) -> int:
        """Where this rank's rows of a parameter begin in the whole one."""
        ...

    def own_tokens(self, whole_BT: Tensor, count: int) -> Tensor:
        """This rank's `count` tokens of each row."""
        ...


class OneRank:
    """The view of one process."""

    ranks = 1

    def total(self, values: Tensor) -> Tensor:
        return values

    def largest(self, values: Tensor) -> Tensor:
        return values

    def counts(self, name: str) -> bool:  # noqa: ARG002
        return True

    def part(self, tensor: Tensor) -> Tensor:
        return tensor

    def first_row(self, name: str) -> int:  # noqa: ARG002
        return 0

    def own_tokens(self, whole_BT: Tensor, count: int) -> Tensor:  # noqa: ARG002
        return whole_BT


@dataclass
class Seen:
    """Sums over the real tokens of one block so far: count, sum and sum of squares of its output and of the channels
    of its feed-forward network, and each of these channels' largest size."""

    sums: Tensor  # [6], float64
    largest: Tensor | None = None  # [ffn]

    def add(self, at: int, values_ND: Tensor) -> None:
        self.sums[at] += values_ND.numel()
        self.sums[at + 1] += values_ND.sum(dtype=torch.float64)
        self.sums[at + 2] += torch.linalg.vector_norm(values_ND, dtype=torch.float64) ** 2

    def add_channels(self, values_ND: Tensor) -> None:
        self.add(3, values_ND)
        if len(values_ND):
            found = values_ND.abs().amax(0).float()
            self.largest = found if self.largest is None else torch.maximum(self.largest, found)


@dataclass
class Activations:
    """Records a step's activations by block while `watching`."""

    model: nn.Module
    view: View
    seen: dict[int, Seen] = field(default_factory=dict)
    real_BT: Tensor | None = None  # tokens that count in the micro-batch under way

    @property
    def backbone(self) -> Transformer:
        return next(module for module in self.model.modules() if isinstance(module, Transformer))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every forward pass inside is recorded; before and after it the model is as without this."""
        self.seen = {}
        backbone = self.backbone
        undo: list[Callable[[], object]] = [wrapped(backbone, "surroundings", self.note_real)]
        for number, block in enumerate(backbone.blocks):
            if isinstance(block, Block):  # another pipeline rank's is none
                device = next(block.parameters()).device
                seen = self.seen[number] = Seen(torch.zeros(6, dtype=torch.float64, device=device))
                undo.append(block.register_forward_hook(self.on_output(seen)).remove)
                undo.append(wrapped(block.mlp, "inner", self.on_channels(seen)))
        try:
            yield
        finally:
            for act in undo:
                act()

    def note_real(self, given: tuple[Any, ...], _: Any) -> None:
        """`given` are the arguments of Transformer.surroundings: it knows what is padding before any block runs."""
        ids_BT, mask_BT, docs_BT = given[:3]
        if mask_BT is not None:
            self.real_BT = mask_BT.bool()
        else:
            self.real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if docs_BT is None else docs_BT >= 0

    def on_output(self, seen: Seen) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Tensor) -> None:
            seen.add(0, self.real(output))

        return hook

    def on_channels(self, seen: Seen) -> Callable[..., None]:
        return lambda _, output: seen.add_channels(self.real(output))

    @torch.no_grad()
    def real(self, output: Tensor) -> Tensor:
        """Values [N, D] of real tokens."""
        assert self.real_BT is not None
        return output.detach()[self.view.own_tokens(self.real_BT, output.shape[1])]

    def values(self) -> dict[str, float]:
        """Of each block mean and standard deviation of its output, and of its feed-forward network's channels those and
        the share that is dead: no real token of the step lifts them above DEAD of the layer's root mean square."""
        shapes = self.backbone.config.layers
        sums_L6 = torch.zeros(len(shapes), 6, dtype=torch.float64)
        largest_LD = torch.zeros(len(shapes), max(shape.ffn for shape in shapes))
        for number, seen in self.seen.items():
            sums_L6[number] = seen.sums.cpu()
            if seen.largest is not None:
                first = self.view.first_row(f"blocks.{number}.mlp.up.weight")
                largest_LD[number, first : first + len(seen.largest)] = seen.largest.cpu()
        sums_L6, largest_LD = self.view.total(sums_L6), self.view.largest(largest_LD)
        found: dict[str, float] = {}
        for number, (row, largest) in enumerate(zip(sums_L6.tolist(), largest_LD, strict=True)):
            for name, (count, total, squares) in (("out", row[:3]), ("ffn", row[3:])):
                if not count:  # no real token, or a feed-forward network that never has its channels whole
                    continue
                mean, spread = total / count, squares / count - (total / count) ** 2
                found[f"{name}_mean/{number}"] = mean
                found[f"{name}_std/{number}"] = math.sqrt(max(0.0, spread)) if math.isfinite(spread) else math.nan
            if row[3]:
                bar = DEAD * math.sqrt(row[5] / row[3]) if math.isfinite(row[5]) else 0.0
                found[f"ffn_dead/{number}"] = float((largest[: shapes[number].ffn] <= bar).double().mean())
        return found


def parameter_names(model: nn.Module) -> dict[int, str]:
    """By id: taken before the first forward pass, since FSDP then puts others in their place."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


@torch.no_grad()
def parameter_values(
    trainer: Trainer, names: Mapping[int, str], view: View, report: StepReport, blocks: int
) -> dict[str, float]:
    """Of each block, and of the rest, the gradient's norm before clipping and the update's norm over the weights'.

    `names` are the optimizer's parameters by id (`parameter_names`). To be called after a step. The update is worked
    out of AdamW's state, so no copy of the weights is needed.
    """
    squares_L3 = torch.zeros(blocks + 1, 3, dtype=torch.float64)
    for group in trainer.optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            if not view.counts(name):
                continue
            row = squares_L3[block_of(name, blocks)]
            weight = view.part(parameter)
            row[2] += square(weight)
            if parameter.grad is not None:
                row[0] += square(view.part(parameter.grad))
                if report.updated:
                    state = {key: view.part(value) for key, value in trainer.optimizer.state[parameter].items()}
                    row[1] += square(adamw_update(weight, state, group))
    grown = max(1.0, (report.grad_norm + 1e-6) / trainer.clip)  # gradients are clipped by now
    found: dict[str, float] = {}
    for number, (gradient, update, weight_squared) in enumerate(view.total(squares_L3).tolist()):
        where = number if number < blocks else REST
        found[f"grad_norm/{where}"] = math.sqrt(gradient) * grown if math.isfinite(gradient) else math.nan
        found[f"update_ratio/{where}"] = math.sqrt(update / weight_squared) if weight_squared else 0.0
    return found


def adamw_update(weight: Tensor, state: Mapping[str, Tensor], group: Mapping[str, Any]) -> Tensor:
    """What the last step of AdamW added to a weight, with its sign turned; `weight` is that after the step."""
    rate, decay, (beta1, beta2), steps = group["lr"], group["weight_decay"], group["betas"], float(state["step"])
    spread = (state["exp_avg_sq"] / (1 - beta2**steps)).sqrt_().add_(group["eps"])
    moved = state["exp_avg"] / spread * (rate / (1 - beta1**steps))
    if not decay:
        return moved
    before = (weight + moved) / (1 - rate * decay)
    return before - weight


def block_of(name: str, rest: int) -> int:
    """The number of a parameter's block; `rest` where it is in none."""
    found = BLOCK.search(name)
    return int(found[1]) if found else rest


def square(tensor: Tensor) -> Tensor:
    """The sum of squares, on the CPU."""
    return (torch.linalg.vector_norm(tensor, dtype=torch.float64) ** 2).cpu()


def wrapped(owner: nn.Module, method: str, tell: Callable[[tuple[Any, ...], Any], object]) -> Callable[[], None]:
    """Let `tell` have the arguments and the answer of each call of a method; returns what ends it."""
    plain = getattr(owner, method)

    def call(*given: Any) -> Any:
        answer = plain(*given)
        tell(given, answer)
        return answer

    owner.__dict__[method] = call
    return lambda: owner.__dict__.pop(method)
