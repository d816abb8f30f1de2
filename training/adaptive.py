"""Each layer computes in the cheapest mode that its numbers fit into, by what is measured on the way.

Every few updates all layers are looked at, inputs, outputs and gradients of the outputs:

- overflow: the share of values beyond the mode's largest (fp16; fp8 scales to the largest value and has none);
- underflow: the share of values that the mode flushes to zero;
- relative update: |change| / |weight| of an update, from Adam's moments. Where all updates between two looks together
  move a weight by less than half a step of the mode's grid, products would not see what was learned.

A layer changes only when several looks in a row ask for the same, waits after a change, and goes to a cheaper mode
only where the measures are well within the limits, so noise around a limit changes nothing. Decisions are plain
events; a list of them can be followed instead of measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from training.mixed import MixedLinear, Mode, layers_of
from training.world import World


@dataclass(frozen=True)
class Rules:
    """Limits of `adaptive`."""

    every: int = 10  # updates between two looks
    overflow: float = 1e-6  # share of values
    underflow: float = 0.02  # share of values that are not zero
    looks: int = 3  # in a row that ask for the same change
    wait: int = 5  # looks after a change
    margin: float = 4.0  # times better than the limits that the measures must be for a cheaper mode


GRID: dict[Mode, float] = {"fp8": 2.0**-3, "bf16": 2.0**-7, "fp16": 2.0**-10, "fp32": 2.0**-23}  # step / value
LARGEST: dict[Mode, float] = {"fp16": 65504.0}
FLUSHED: dict[Mode, float] = {"fp16": 2.0**-25}  # half of the smallest value: rounds to zero
# fp8 is scaled: shares of the largest value around that round to zero, for values in e4m3 and gradients in e5m2
FLUSHED_E4M3, FLUSHED_E5M2 = 2.0**-10 / 448, 2.0**-17 / 57344


@dataclass
class Look:
    """Counts over everything that went through a layer since the last look; sums of them over ranks make sense."""

    count: float = 0.0
    nonzero: float = 0.0
    overflow: float = 0.0
    flushed_fp16: float = 0.0
    flushed_fp8: float = 0.0

    def values(self, tensor: Tensor) -> None:
        self.take(tensor, FLUSHED_E4M3)

    def gradients(self, tensor: Tensor) -> None:
        self.take(tensor, FLUSHED_E5M2)

    def take(self, tensor: Tensor, flushed_fp8: float) -> None:
        if not tensor.numel():
            return
        size = tensor.detach().abs().float()
        there = size > 0
        self.count += size.numel()
        self.nonzero += int(there.sum())
        self.overflow += int((~(size <= LARGEST["fp16"])).sum())  # NaN counts
        self.flushed_fp16 += int((there & (size <= FLUSHED["fp16"])).sum())
        self.flushed_fp8 += int((there & (size <= size.amax() * flushed_fp8)).sum())


def objection(mode: Mode, look: Look, moved: float, rules: Rules, margin: float = 1.0) -> str:
    """Why a layer should not compute in a mode; nothing where it may. `margin` makes the limits stricter.

    `moved` is the relative change of its weights between two looks.
    """
    if mode == "fp32":
        return ""
    over = look.overflow / max(1.0, look.count) if mode == "fp16" else 0.0
    flushed = {"fp16": look.flushed_fp16, "fp8": look.flushed_fp8}.get(mode, 0.0) / max(1.0, look.nonzero)
    if over * margin > rules.overflow:
        return f"{over:.1e} of its values overflow"
    if flushed * margin > rules.underflow:
        return f"{flushed:.1%} of its values underflow"
    if moved < GRID[mode] / 2 * margin:
        return f"its weights move by {moved:.1e} between looks"
    return ""


@dataclass
class Layer:
    """What is remembered of a layer."""

    modes: list[str]  # that it may have, the cheapest first
    mode: str
    wish: str = ""
    asked: int = 0  # looks in a row with this wish
    rest: int = 0  # looks until it may change again

    def decide(self, look: Look, moved: float, rules: Rules) -> tuple[str, str] | None:
        """The mode to change to and why, or None."""
        here = self.modes.index(self.mode)
        why_not = {
            mode: objection(cast(Mode, mode), look, moved, rules, rules.margin if at < here else 1.0)
            for at, mode in enumerate(self.modes)
        }
        best = next((mode for mode in self.modes if not why_not[mode]), self.modes[-1])
        self.rest = max(0, self.rest - 1)
        if best == self.mode:
            self.wish, self.asked = "", 0
            return None
        self.asked = self.asked + 1 if best == self.wish else 1
        self.wish = best
        if self.asked < rules.looks or self.rest:
            return None
        why = why_not[self.mode] or f"{best} would do"
        self.mode, self.wish, self.asked, self.rest = best, "", 0, rules.wait
        return best, why


@dataclass
class Adaptive:
    """The modes of a model's layers from update to update.

    `follow` are the events of another run: they are done again at their updates, and nothing is measured.
    """

    model: nn.Module
    offered: Mapping[str, Sequence[str]]
    follow: list[dict[str, Any]] | None = None
    rules: Rules = field(default_factory=Rules)
    tell: Callable[[str], None] = lambda _line: None

    def __post_init__(self) -> None:
        self.modules = {name: cast(MixedLinear, module) for name, module in layers_of(self.model)}
        self.layers = {name: Layer(list(self.offered[name]), self.offered[name][0]) for name in self.modules}
        self.events: list[dict[str, Any]] = []
        self.looks: dict[str, Look] = {}

    def before(self, update: int) -> None:
        """Called before the forward pass of an update, the first being 0: every few of them are watched."""
        watched = self.follow is None and update % self.rules.every == self.rules.every - 1
        self.looks = {name: Look() for name in self.modules} if watched else {}
        for name, module in self.modules.items():
            module.watch = self.looks.get(name)

    def after(self, update: int, taken: bool, world: World, optimizer: torch.optim.Optimizer) -> None:
        """Called when the step has ended; one that was skipped decides nothing."""
        if not taken:
            return
        if self.follow is not None:
            for event in self.follow:
                if event["step"] == update + 1:
                    self.change(event)
        elif self.looks:
            self.decide(update, world, optimizer)

    def decide(self, update: int, world: World, optimizer: torch.optim.Optimizer) -> None:
        names = list(self.modules)
        width = len(asdict(Look()))
        counts = world.sums([value for name in names for value in asdict(self.looks[name]).values()])
        for number, name in enumerate(names):
            look = Look(*counts[number * width : (number + 1) * width])
            moved = self.rules.every * relative_update(self.modules[name].weight, optimizer)
            before = self.layers[name].mode
            decided = self.layers[name].decide(look, moved, self.rules)
            if decided is not None:
                self.change({"step": update + 1, "layer": name, "from": before, "to": decided[0], "why": decided[1]})

    def change(self, event: dict[str, Any]) -> None:
        name = event["layer"]
        self.layers[name].mode = self.modules[name].mode = event["to"]
        self.events.append(dict(event))
        self.tell(f"step {event['step']}: {name} from {event['from']} to {event['to']}, since {event['why']}")

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return {"layers": {name: asdict(layer) for name, layer in self.layers.items()}, "events": self.events}

    def load(self, state: Mapping[str, Any]) -> None:
        self.layers = {name: Layer(**layer) for name, layer in state["layers"].items()}
        self.events = [dict(event) for event in state["events"]]
        for name, layer in self.layers.items():
            self.modules[name].mode = cast(Mode, layer.mode)


def relative_update(weight: Tensor, optimizer: torch.optim.Optimizer) -> float:
    """|change| / |weight| of Adam's last update of a weight, weight decay left out; infinite before there was one."""
    known = optimizer.state.get(weight, {})
    if "exp_avg" not in known:
        return math.inf
    group = next(g for g in optimizer.param_groups if any(p is weight for p in g["params"]))
    steps, (beta1, beta2) = float(known["step"]), group["betas"]
    mean = known["exp_avg"] / (1 - beta1**steps)
    deviation = (known["exp_avg_sq"] / (1 - beta2**steps)).sqrt_().add_(group["eps"])
    norm = float(weight.detach().norm())
    return group["lr"] * float((mean / deviation).norm()) / norm if norm else math.inf
