"""Dynamic loss scaling for fp16, whose smallest gradients would else be flushed to zero (arXiv:1710.03740).

The loss is multiplied before the backward pass, gradients are divided after their reduction; what overflows is skipped
and the scale halved. Powers of two change no digit. Every rank sees the same norm, so every rank has the same scale.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 65536.0
GROWTH_STEPS = 2000  # clean updates before a larger scale is tried
LARGEST = 2.0**24


@dataclass
class LossScale:
    """The factor of the loss, and the updates since it last changed."""

    value: float = FIRST
    clean: int = 0
    growth_steps: int = GROWTH_STEPS

    def next(self, updated: bool) -> float:
        """Take in how a step ended; returns what the scale was multiplied with."""
        before = self.value
        if not updated:
            self.value, self.clean = self.value / 2, 0
        elif self.clean + 1 == self.growth_steps:
            self.value, self.clean = min(self.value * 2, LARGEST), 0
        else:
            self.clean += 1
        return self.value / before
