"""What compression must beat at the same budget: random pruning, and dropping whole blocks.

On an easy task a small model loses little whatever is cut, so an F1 after pruning says nothing without these beside
it. Both choose for the same count of parameters as the ranking by importance does, and are recovered with the same
rows, steps and teacher.
"""

from __future__ import annotations

import torch

from compression.importance import Scores
from compression.prune import CHANNELS, Chooser, Kept, choose, unit_costs
from training.model import Classifier


def at_random(seed: int) -> Chooser:
    """Heads and channels leave by lot: the ranking of `prune.choose` over random scores."""

    def chooser(model: Classifier, parameters: float) -> list[Kept]:
        config = model.backbone.config
        # Drawn anew from the size, so that a resumed run draws what the uninterrupted one would have drawn.
        generator = torch.Generator().manual_seed(seed + config.prunable_parameters())
        scores = []
        for shape in config.layers:
            group_cost, channel_cost = unit_costs(config, shape)
            lots = torch.rand(shape.keys, generator=generator) * group_cost  # a fair lot per unit, as choose() ranks
            channels = torch.rand(shape.ffn, generator=generator) * channel_cost  # by score per parameter
            scores.append(Scores((lots / shape.group).repeat_interleave(shape.group), channels))
        return choose(config, scores, parameters)

    return chooser


def drop_blocks(model: Classifier, parameters: float) -> list[Kept]:
    """The deepest blocks leave (Sajjad et al., arXiv:2004.03844); the one on the edge stays in part.

    Its first heads and channels stay, as many as the budget has room for, so that the share is that of the others.
    """
    kept: list[Kept] = []
    for block, shape in enumerate(model.backbone.config.layers):
        group_cost, channel_cost = unit_costs(model.backbone.config, shape)
        cost = shape.keys * group_cost + shape.ffn * channel_cost
        share = min(1.0, max(0.0, parameters / cost))
        least = min(CHANNELS, shape.ffn)
        groups = max(1, int(shape.keys * share))
        ffn = shape.ffn if share == 1 else max(least, int(shape.ffn * share) // CHANNELS * CHANNELS)
        if groups * group_cost + ffn * channel_cost <= parameters or not kept:
            kept.append(Kept(block, tuple(range(groups * shape.group)), tuple(range(ffn))))
        parameters -= cost
    return kept
