"""Controls cut as much as the method they stand beside, only blindly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from compression.controls import at_random, drop_blocks
from compression.importance import Scores
from compression.prune import Kept, choose, kept_share, shrink, step_shares
from training.config import LayerShape, ModelConfig
from training.model import Classifier, Transformer

CONFIG = ModelConfig(vocab_size=40, width=64, layers=(LayerShape(4, 192),) * 4, head_dim=16)
GROUPED = replace(CONFIG, layers=(LayerShape(4, 192, 2),) * 4)


def model(config: ModelConfig = CONFIG) -> Classifier:
    torch.manual_seed(0)
    return Classifier(Transformer(config), 2).eval()


@pytest.mark.parametrize("config", [CONFIG, GROUPED], ids=["heads", "groups of heads"])
@pytest.mark.parametrize("share", [0.9, 0.6, 0.37])
def test_controls_keep_about_the_share_of_our_own_choice(share: float, config: ModelConfig) -> None:
    budget = share * config.prunable_parameters()
    ours = choose(config, [Scores(torch.arange(4.0), torch.arange(192.0))] * 4, budget)
    for kept in (at_random(1)(model(config), budget), drop_blocks(model(config), budget)):
        control = kept_share(shrink(model(config), kept).backbone.config, config)
        assert share - 0.06 < control <= share
        assert abs(control - kept_share(shrink(model(config), ours).backbone.config, config)) < 0.06


def test_random_pruning_is_a_lot_that_a_seed_repeats() -> None:
    budget = 0.5 * CONFIG.prunable_parameters()
    first, again, other = (at_random(seed)(model(), budget) for seed in (1, 1, 2))
    assert first == again != other


def test_random_pruning_does_not_prefer_a_kind_of_unit() -> None:
    """Heads cost more than channels; a lot by score per parameter must not make them leave first."""
    wide = replace(CONFIG, layers=(LayerShape(8, 256),) * 8)
    torch.manual_seed(0)
    big = Classifier(Transformer(wide), 2)
    kept = [at_random(seed)(big, 0.5 * wide.prunable_parameters()) for seed in range(20)]
    heads = sum(len(k.heads) for choice in kept for k in choice) / (20 * 64)
    channels = sum(len(k.ffn) for choice in kept for k in choice) / (20 * 8 * 256)
    assert abs(heads - channels) < 0.15


def test_the_deepest_blocks_leave_whole() -> None:
    kept = drop_blocks(model(), 0.5 * CONFIG.prunable_parameters())
    assert [k.block for k in kept] == [0, 1]
    assert all(k == Kept(k.block, tuple(range(4)), tuple(range(192))) for k in kept)


def test_a_budget_with_room_for_one_head_and_one_group_keeps_them() -> None:
    block = CONFIG.prunable_parameters() / 4
    rest = 4 * 64 * 16 + 3 * 64 * 32
    assert drop_blocks(model(), block + rest)[1] == Kept(1, (0,), tuple(range(32)))
    assert len(drop_blocks(model(), block + rest - 1)) == 1


def test_dropping_blocks_in_steps_ends_as_in_one() -> None:
    small = model()
    for share in step_shares(0.37, 4):
        small = shrink(small, drop_blocks(small, share * CONFIG.prunable_parameters()))
    assert len(small.backbone.config.layers) == 2
    assert small.backbone.config.layers[0] == LayerShape(4, 192)
    assert small(torch.ones(1, 5, dtype=torch.long), torch.ones(1, 5, dtype=torch.long)).shape == (1, 2)
