"""What the training stages tell of themselves: their knobs, and the page of a run."""

from __future__ import annotations

from pydantic import Field

from tasks.params import Params
from training.curves import Wandb


class Look(Params):
    """What a run tells of itself."""

    every: int = Field(ge=0, description="Steps between close looks; 0 for none.")
    wandb: Wandb = Field(description="W&B: off, offline (files beside the curves) or online.")
