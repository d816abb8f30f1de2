"""What training runs have done so far: the part of their states that is not tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from training.knobs import PretrainConfig


@dataclass
class Progressed:
    """What a run has done so far; the part of its state that is not tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    position: dict[str, int] = field(default_factory=lambda: {"epoch": 0, "row": 0})
    choice: dict[str, Any] = field(default_factory=dict)
    skipped: int = 0  # steps that were not finite: their rows are used up, nothing else of them counts
    numerics: dict[str, Any] = field(default_factory=dict)  # training.numerics.Numerics.state
    points: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)  # seconds by part (training.telemetry)
    peak: dict[str, Any] = field(default_factory=dict)  # training.peak.Peak, where telemetry is on

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def last(self, name: str) -> float:
        """The latest value of a curve; 0 where it has none."""
        return next((values[name] for _, values in reversed(self.points) if name in values), 0.0)

    @property
    def validations(self) -> list[tuple[int, float]]:
        """Steps and losses of the validations so far."""
        return [(step, values["valid/loss"]) for step, values in self.points if "valid/loss" in values]

    @property
    def best_step(self) -> int:
        """The step of the lowest validation loss, the first of equal ones; 0 before any."""
        return min(self.validations, key=lambda point: point[1], default=(0, 0.0))[0]

    @property
    def waiting(self) -> int:
        """Validations since the best one."""
        best = self.best_step
        return sum(step > best for step, _ in self.validations)

    def ended(self, config: PretrainConfig) -> bool:
        """Whether all steps are taken, or the validation loss no longer falls."""
        return self.step >= config.steps or 0 < config.patience <= self.waiting


@dataclass
class History:
    """What happened: one entry an evaluation, and the totals."""

    evaluations: list[dict[str, float]] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0  # real tokens that went through the model
    padded: int = 0  # places that they took
    seconds: float = 0.0
    best_step: int = 0
    choice: dict[str, Any] = field(default_factory=dict)  # training.precision.Choice
    skipped: int = 0  # steps that were not finite: their rows are used up, nothing else of them counts
    numerics: dict[str, Any] = field(default_factory=dict)  # training.numerics.Numerics.state
    stopped_early: bool = False
    warmup: int = 0  # steps
    looks: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # step and values (training.telemetry)
    spent: dict[str, float] = field(default_factory=dict)  # seconds by part
    peak: dict[str, Any] = field(default_factory=dict)  # training.peak.Peak, where telemetry is on

    @property
    def waiting(self) -> int:
        """Evaluations since the best one."""
        return sum(entry["step"] > self.best_step for entry in self.evaluations)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0
