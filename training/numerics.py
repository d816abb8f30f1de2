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
from training.precision import Choice
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


def write_record(path: Path, choice: Mapping[str, Any], numerics: Mapping[str, Any]) -> None:
    """How a run computed: what it chose at start, and what `adaptive` decided on the way."""
    events = (numerics.get("adaptive") or {}).get("events", [])
    path.write_text(json.dumps({"choice": dict(choice), "events": events}, indent=1) + "\n", encoding="utf-8")


def read_record(path: Path) -> tuple[Choice, list[dict[str, Any]]]:
    """What `write_record` wrote. Raises DaymillError for anything else."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return Choice(**record["choice"]), [
            {key: event[key] for key in ("step", "layer", "from", "to", "why")} for event in record["events"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DaymillError(
            f"{path}: no record of a run's precision ({error}); expected the precision.json that the pretrain stage "
            "writes beside its curves"
        ) from error
