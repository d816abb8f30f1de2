"""What the training stages tell of themselves: their knobs, and the figures of a run."""

from __future__ import annotations

from pydantic import Field

from tasks.params import Params
from training.curves import Wandb
from training.history import Progressed


class Look(Params):
    """What a run tells of itself."""

    every: int = Field(ge=0, description="Steps between close looks; 0 for none.")
    wandb: Wandb = Field(description="W&B: off, offline (files beside the curves) or online.")


def figures(done: Progressed) -> dict[str, str]:
    """The figures at the head of the run's page."""
    found = {
        "steps": f"{done.step:,}",
        "tokens": f"{done.tokens:,}",
        "validation loss": f"{done.last('valid/loss'):.3f}",
        "tokens a second": f"{done.tokens_per_s:,.0f}",
    }
    if done.peak:
        found["MFU at the last look"] = f"{done.last('train/mfu'):.1%}"
        found[f"TFLOP/s at best ({done.peak['source']})"] = f"{done.peak['flops'] / 1e12:,.2f}"
    return found
