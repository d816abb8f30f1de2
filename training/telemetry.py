"""What a training loop tells of itself: its efficiency, where its time goes, what goes on in its layers.

The loop names what it does (`part`, `step`) and asks after each step what there is to log. Every `every`-th step is
looked at closely; on the others this costs two readings of a clock. No number of the training depends on it.
Names, units and how to read them: docs/telemetry.md.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from training.clock import COMMUNICATION, DATA, PARTS, STEP, TELEMETRY, Clock, breakdown, waiting
from training.layers import Activations, View, parameter_names, parameter_values
from training.peak import Peak
from training.step import StepReport, Trainer

MIB = 1 << 20
PSS = Path("/proc/self/smaps_rollup")


class Telemetry:
    """Measures one run on one rank; `peak` is of that rank's device."""

    def __init__(
        self,
        every: int,
        trainer: Trainer,
        view: View,
        peak: Peak | None,
        spent: dict[str, float],
        compiled: bool = False,
    ) -> None:
        """`every`: a close look at the first of so many steps, 0 for none. `spent` is the run's state of its clock."""
        self.every, self.trainer, self.view, self.peak = every, trainer, view, peak
        self.clock = Clock(spent)
        self.begun = dict(spent)  # when the last look was
        self.flops = 0.0  # of all ranks since then
        # A compiled block calls no hooks, so its activations are not seen.
        self.activations = None if compiled else Activations(trainer.model, view)
        self.names = parameter_names(trainer.model)
        self.blocks = len(Activations(trainer.model, view).backbone.config.layers)

    def looks_at(self, step: int) -> bool:
        """`step` is the number of steps done, that one included."""
        return self.every > 0 and (step - 1) % self.every == 0

    def part(self, name: str) -> AbstractContextManager[None]:
        return self.clock.part(name)

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around the training step that makes it `number` steps."""
        before = waiting.seconds() if self.every else 0.0
        with self.clock.part(STEP):
            if self.activations is not None and self.looks_at(number):
                with self.activations.watching():
                    yield
            else:
                yield
        if self.every:
            waited = waiting.seconds() - before
            self.clock.spent[COMMUNICATION] = self.clock.spent.get(COMMUNICATION, 0.0) + waited

    def after_step(self, number: int, report: StepReport, flops: float) -> dict[str, float]:
        """What there is to log of a step that took `flops` on all ranks together; every rank must call it."""
        self.flops += flops
        if not self.looks_at(number):
            self.clock.tick()
            return {}
        with self.part(TELEMETRY):
            found = {f"layers/{name}": value for name, value in self.layers(report).items()}
        self.clock.tick()
        return self.efficiency() | self.scale() | memory(self.view, self.device) | found

    @property
    def device(self) -> torch.device:
        return next(self.trainer.model.parameters()).device

    def layers(self, report: StepReport) -> dict[str, float]:
        found = parameter_values(self.trainer, self.names, self.view, report, self.blocks)
        return found | (self.activations.values() if self.activations is not None else {})

    def scale(self) -> dict[str, float]:
        """The loss scale, where the trainer has one; 1 is none."""
        scale = float(getattr(getattr(self.trainer, "numerics", None), "scale", 1.0))
        return {} if scale == 1 else {"train/loss_scale": scale}

    def efficiency(self) -> dict[str, float]:
        """Since the last look: model FLOPs utilization, and shares of the wall time, averaged over ranks."""
        spent = {name: value - self.begun.get(name, 0.0) for name, value in self.clock.spent.items()}
        self.begun = dict(self.clock.spent)
        mine = breakdown(spent)
        mean = self.view.total(torch.tensor([mine[part] for part in PARTS], dtype=torch.float64)) / self.view.ranks
        found = {f"time/{part}": share for part, share in zip(PARTS, mean.tolist(), strict=True)}
        training = spent.get(DATA, 0.0) + spent.get(STEP, 0.0)
        if self.peak is not None:
            found["train/mfu"] = self.flops / (training * self.peak.flops * self.view.ranks)
        self.flops = 0.0
        return found


def memory(view: View, device: torch.device) -> dict[str, float]:
    """MiB: the largest rank's peaks of resident and of GPU memory, and, of several ranks, their proportional shares now
    added up: what they share counts once. (The kernel takes some 30 ms to tell those, so one process is not asked.)"""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    gpu = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    most = view.largest(torch.tensor([float(peak), float(gpu)], dtype=torch.float64)).tolist()
    found = {"memory/peak_rss_mib": most[0] / MIB}
    if most[1]:
        found["memory/gpu_peak_mib"] = most[1] / MIB
    if view.ranks > 1 and PSS.exists():
        shared = view.total(torch.tensor(float(proportional()), dtype=torch.float64)).item()
        found["memory/pss_mib"] = shared / MIB
    return found


def proportional() -> int:
    """Bytes of this process's memory now, what it shares with others divided by their number."""
    lines = PSS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
