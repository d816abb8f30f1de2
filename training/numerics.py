"""What a run's precision remembers from step to step: the loss scale, and what `adaptive` decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from data.errors import DaymillError
from training.adaptive import Adaptive
from training.mixed import MODES, layers_of
from training.precision import AMBIENT, Choice
from training.scaling import LossScale
from training.world import World


class Numerics:
    """Of a run whose layers have their modes already (training.mixed.set_modes); by default nothing is remembered."""

    def __init__(
        self,
        model: nn.Module | None = None,
        choice: Choice | None = None,
        follow: list[dict[str, Any]] | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.updates = 0
        precision = choice.precision if choice is not None else "fp32"
        self.loss_scale = LossScale() if precision in ("fp16", "adaptive") else None
        self.adaptive: Adaptive | None = None
        if precision == "adaptive" and model is not None and choice is not None:
            self.adaptive = Adaptive(model, choice.layers, follow, tell=tell)

    @property
    def scale(self) -> float:
        """What the loss is multiplied with."""
        return self.loss_scale.value if self.loss_scale is not None else 1.0

    def before(self) -> None:
        if self.adaptive is not None:
            self.adaptive.before(self.updates)

    def after(self, updated: bool, world: World, optimizer: torch.optim.Optimizer) -> None:
        """Take in how a step with any weight ended: the same on every rank."""
        if self.loss_scale is not None:
            factor = self.loss_scale.next(updated)
            if factor != 1:
                world.rescale(factor)
        if self.adaptive is not None:
            self.adaptive.after(self.updates, updated, world, optimizer)
        self.updates += updated

    def state(self) -> dict[str, Any]:
        """For JSON; floats survive it to the bit."""
        return {
            "updates": self.updates,
            "loss_scale": asdict(self.loss_scale) if self.loss_scale is not None else None,
            "adaptive": self.adaptive.state() if self.adaptive is not None else None,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.updates = state["updates"]
        if self.loss_scale is not None:
            self.loss_scale = LossScale(**state["loss_scale"])
        if self.adaptive is not None:
            self.adaptive.load(state["adaptive"])


def computed_in(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice for a stage's metrics: its layers one by one are in the record."""
    return {name: value for name, value in choice.items() if name != "layers"}


def write_record(path: Path, choice: Mapping[str, Any], numerics: Mapping[str, Any]) -> None:
    """How a run computed: what it chose at start, and what `adaptive` decided on the way."""
    events = (numerics.get("adaptive") or {}).get("events", [])
    path.write_text(json.dumps({"choice": dict(choice), "events": events}, indent=1) + "\n", encoding="utf-8")


def read_record(path: Path, model: nn.Module) -> tuple[Choice, list[dict[str, Any]]]:
    """What `write_record` wrote of a run of such a model. Raises DaymillError for anything else."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        choice = Choice(**record["choice"])
        events = [{key: event[key] for key in ("step", "layer", "from", "to", "why")} for event in record["events"]]
        check_record(choice, events, {name for name, _ in layers_of(model)})
        return choice, events
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DaymillError(
            f"{path}: no record of the precision of a run of this model ({error}); expected the precision.json that "
            "the pretrain stage writes beside its curves"
        ) from error


def check_record(choice: Choice, events: list[dict[str, Any]], names: set[str]) -> None:
    """Raises ValueError where a record speaks of what there is not."""
    if choice.precision not in AMBIENT:
        raise ValueError(f"unknown precision {choice.precision!r}")
    if not set(choice.layers) <= names or (choice.precision == "adaptive" and set(choice.layers) != names):
        raise ValueError(f"it names {len(choice.layers)} layers, which are not the model's {len(names)}")
    unknown = {mode for modes in choice.layers.values() for mode in modes} - set(MODES)
    if unknown or not all(choice.layers.values()):
        raise ValueError(f"modes {sorted(unknown)}; expected some of {', '.join(MODES)}")
    for event in events:
        if event["to"] not in choice.layers.get(event["layer"], ()):
            raise ValueError(f"step {event['step']} gives a layer a mode that it was not offered")
