"""Structured pruning: what stays is what the ranking says, and slicing is exact."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.importance import Scores, taylor_scores
from compression.prune import CHANNELS, Kept, choose, kept_share, shrink, step_shares
from data.errors import DaymillError
from training.checkpoint import Card, load_tensors, save_checkpoint
from training.config import LayerShape, ModelConfig
from training.model import Classifier, Transformer

DECODER = ModelConfig(vocab_size=50, width=64, layers=(LayerShape(4, 128), LayerShape(3, 96)), head_dim=16)
ENCODER = replace(
    DECODER, norm="layer", norm_place="post", activation="gelu", position="learned", causal=False, bias=True
)
BIDIRECTIONAL = replace(DECODER, causal=False)
CONFIGS = {"decoder": DECODER, "encoder": ENCODER, "bidirectional": BIDIRECTIONAL}


def classifier(config: ModelConfig, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    model = Classifier(Transformer(config), 2).eval()
    for parameter in model.parameters():  # biases and norms of a fresh model are too regular to test slicing with
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def batch(rows: int = 3, tokens: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(rows, tokens, dtype=torch.long)
    mask[0, tokens // 2 :] = 0
    return torch.randint(0, 50, (rows, tokens), generator=generator), mask


def silence(model: Classifier, block: int, heads: list[int], channels: list[int]) -> None:
    """Cut units off where they enter the residual stream, without removing them."""
    target, size = model.backbone.blocks[block], model.backbone.config.head_dim
    with torch.no_grad():
        for head in heads:
            target.attn.o.weight[:, head * size : (head + 1) * size] = 0
        target.mlp.down.weight[:, channels] = 0


@pytest.mark.parametrize("name", CONFIGS)
def test_a_pruned_model_answers_as_the_model_with_those_units_silenced(name: str) -> None:
    model = classifier(CONFIGS[name])
    heads, channels = [0, 2], list(range(1, 128, 2))
    silence(model, 0, heads, channels)
    kept = [
        Kept(0, (1, 3), tuple(c for c in range(128) if c not in channels)),
        Kept(1, (0, 1, 2), tuple(range(96))),
    ]

    small = shrink(model, kept)

    assert small.backbone.config.layers == (LayerShape(2, 64), LayerShape(3, 96))
    torch.testing.assert_close(small(*batch()), model(*batch()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_pruning_other_units_than_the_silenced_ones_changes_the_answer(name: str) -> None:
    model = classifier(CONFIGS[name])
    silence(model, 0, [0, 2], [])
    wrong = shrink(model, [Kept(0, (0, 2), tuple(range(128))), Kept(1, (0, 1, 2), tuple(range(96)))])
    assert (wrong(*batch()) - model(*batch())).abs().max() > 1e-2


GROUPED = replace(DECODER, layers=(LayerShape(4, 128, 2, 0.3), LayerShape(6, 96, 2, 0.5)), activation="dsrelu")


def test_query_heads_leave_with_the_keys_that_they_share() -> None:
    model = classifier(GROUPED)
    silence(model, 0, [0, 1], [])
    kept = [Kept(0, (2, 3), tuple(range(128))), Kept(1, tuple(range(6)), tuple(range(96)))]
    small = shrink(model, kept)
    assert small.backbone.config.layers == (LayerShape(2, 128, 1, 0.3), LayerShape(6, 96, 2, 0.5)), "thetas stay too"
    assert small.backbone.blocks[0].attn.k.out_features == 16
    torch.testing.assert_close(small(*batch()), model(*batch()), rtol=1e-5, atol=1e-5)
    for part in ((1, 2), (0, 1, 2), (3,)):
        with pytest.raises(DaymillError, match="whole groups of 2"):
            shrink(model, [Kept(0, part, tuple(range(128)))])


def test_groups_are_chosen_whole_by_the_sum_of_their_heads_within_the_budget() -> None:
    model = classifier(GROUPED)
    for share in step_shares(0.45, 4):
        budget = share * GROUPED.prunable_parameters()
        chosen = choose(model.backbone.config, taylor_scores(model, [batch()]), budget)
        model = shrink(model, chosen)
        assert torch.isfinite(model(*batch())).all()
        assert kept_share(model.backbone.config, GROUPED) <= share
        assert [shape.group for shape in model.backbone.config.layers] == [2, 3]
    counted = sum(
        parameter.numel() for name, parameter in model.named_parameters() if ".attn." in name or ".mlp." in name
    )
    assert counted == model.backbone.config.prunable_parameters()
    scores = [
        Scores(torch.tensor([9.0, 0, 4, 4]), torch.ones(128)),
        Scores(torch.full((6,), 99.0), torch.full((96,), 9.0)),
    ]
    first, _ = choose(GROUPED, scores, GROUPED.prunable_parameters() * 0.68)
    assert first.heads == (0, 1), "9 + 0 is more than 4 + 4"


def test_whole_blocks_can_leave() -> None:
    model = classifier(DECODER)
    last = shrink(model, [Kept(1, (0, 1, 2), tuple(range(96)))])
    assert last.backbone.config.layers == (LayerShape(3, 96),)
    torch.testing.assert_close(
        last.backbone.blocks[0].attn.q.weight, model.backbone.blocks[1].attn.q.weight, rtol=0, atol=0
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_four_heads_to_two_in_five_steps_with_a_forward_pass_after_each(name: str) -> None:
    """Torch-Pruning#411: asked for half of the heads in several steps, it left other counts and broken shapes."""
    config = replace(CONFIGS[name], layers=(LayerShape(4, 160),) * 2)
    model = start = classifier(config)
    for share in step_shares(0.5, 5):
        budget = share * config.prunable_parameters()
        model = shrink(model, choose(model.backbone.config, taylor_scores(model, [batch()]), budget))
        assert torch.isfinite(model(*batch())).all()
        assert kept_share(model.backbone.config, config) <= share
        for shape, block in zip(model.backbone.config.layers, model.backbone.blocks):
            assert block.attn.q.out_features == block.attn.o.in_features == shape.heads * config.head_dim
            assert block.mlp.up.out_features == block.mlp.down.in_features == shape.ffn
            assert shape.heads >= 1 and shape.ffn >= CHANNELS and shape.ffn % CHANNELS == 0
    assert model.backbone.config.width == start.backbone.config.width
    kept = kept_share(model.backbone.config, config)
    assert 0.5 - 0.15 < kept <= 0.5


def test_exactly_the_wanted_heads_stay() -> None:
    config = replace(DECODER, layers=(LayerShape(4, 32),))
    scores = [Scores(torch.tensor([0.1, 0.9, 0.2, 0.8]), torch.ones(32))]
    two_heads_less = config.prunable_parameters() - 2 * 4 * 64 * 16
    assert choose(config, scores, two_heads_less) == [Kept(0, (1, 3), tuple(range(32)))]


def test_blocks_compete_in_one_ranking() -> None:
    config = replace(DECODER, layers=(LayerShape(4, 64), LayerShape(4, 64)))
    scores = [Scores(torch.full((4,), 99.0), torch.full((64,), 10.0)), Scores(torch.arange(4.0), torch.ones(64))]
    first, second = choose(config, scores, config.prunable_parameters() * 0.68)
    assert (len(first.heads), len(first.ffn)) == (4, 64)
    assert second.heads == (3,) and len(second.ffn) == 32


def test_a_budget_below_one_head_and_one_group_a_block_is_refused() -> None:
    with pytest.raises(DaymillError, match=r"prune.target_share"):
        choose(DECODER, taylor_scores(classifier(DECODER), [batch()]), 1000)


def test_channels_end_as_multiples_of_the_group_from_any_start() -> None:
    config = replace(DECODER, layers=(LayerShape(2, 75),))
    scores = [Scores(torch.ones(2) * 1e6, torch.rand(75))]
    (kept,) = choose(config, scores, config.prunable_parameters() - 1)
    assert len(kept.ffn) == 64


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=4),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 1000),
)
def test_choice_meets_its_budget_with_the_best_of_each_block(
    shapes: list[tuple[int, int]], share: float, seed: int
) -> None:
    config = replace(DECODER, layers=tuple(LayerShape(heads, 32 * groups) for heads, groups in shapes))
    generator = torch.Generator().manual_seed(seed)
    scores = [
        Scores(torch.rand(s.heads, generator=generator), torch.rand(s.ffn, generator=generator)) for s in config.layers
    ]
    budget = share * config.prunable_parameters()
    least = replace(config, layers=tuple(LayerShape(1, CHANNELS) for _ in shapes)).prunable_parameters()
    if least > budget:
        with pytest.raises(DaymillError):
            choose(config, scores, budget)
        return

    kept = choose(config, scores, budget)

    left = replace(config, layers=tuple(LayerShape(len(k.heads), len(k.ffn)) for k in kept))
    assert left.prunable_parameters() <= budget
    for keep, score in zip(kept, scores):
        for indices, values in ((keep.heads, score.heads), (keep.ffn, score.ffn)):
            gone = sorted(set(range(len(values))) - set(indices))
            assert not gone or values[gone].max() <= values[list(indices)].min()


@pytest.mark.parametrize("name", CONFIGS)
def test_units_that_cannot_move_the_logits_score_nothing(name: str) -> None:
    model = classifier(CONFIGS[name])
    silence(model, 1, [1], [5, 7])
    scores = taylor_scores(model, [batch()])
    assert scores[1].heads[1] == 0 and scores[1].heads[[0, 2]].min() > 0
    assert set(torch.nonzero(scores[1].ffn == 0).flatten().tolist()) == {5, 7}


def test_a_score_is_the_change_of_the_logits_to_first_order() -> None:
    """Damp one unit by a small step and compare with the score (finite difference, one row)."""
    model = classifier(DECODER).double()
    ids, mask = (x[1:2] for x in batch())
    scores = taylor_scores(model, [(ids, mask)])
    step = 1e-5
    with torch.no_grad():
        logits = model(ids, mask)
        model.backbone.blocks[0].attn.o.weight[:, 16:32] *= 1 - step
        moved = model(ids, mask)
    change = (logits - logits.mean()).abs().sum() - (moved - moved.mean()).abs().sum()
    np.testing.assert_allclose(abs(float(change)) / step, float(scores[0].heads[1]), rtol=1e-3)


def test_scoring_leaves_the_model_alone() -> None:
    model = classifier(DECODER).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    taylor_scores(model, [batch()])
    assert model.training and all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_fresh_process_reloads_pruned_checkpoints_bit_equal(tmp_path: Path) -> None:
    """nni#3093: a pruned model that only its own pickle could load."""
    ids, mask = batch()
    np.savez(tmp_path / "in.npz", ids=ids, mask=mask)
    pruned = {}
    for name, config in CONFIGS.items():
        model = classifier(config)
        kept = choose(config, taylor_scores(model, [batch()]), 0.6 * config.prunable_parameters())
        pruned[name] = shrink(model, kept)
        card = Card(pruned[name].backbone.config, "classify", ["a", "b"])
        save_checkpoint(tmp_path / name, pruned[name], card, "{}")
        files = sorted(path.name for path in (tmp_path / name).iterdir())
        assert files == ["config.json", "model.safetensors", "tokenizer.json"]
    reload = (
        "import sys, numpy as np, torch; from pathlib import Path; sys.path.insert(0, '.')\n"
        "from training.checkpoint import load_checkpoint\n"
        "torch.set_num_threads(1)\n"
        "folder = Path(sys.argv[1]); rows = np.load(folder / 'in.npz')\n"
        "ids, mask = (torch.from_numpy(rows[key]) for key in ('ids', 'mask'))\n"
        "with torch.no_grad():\n"
        "    for name in sys.argv[2:]:\n"
        "        model, card = load_checkpoint(folder / name)\n"
        "        np.save(folder / f'{name}.npy', model(ids, mask).numpy())\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", reload, str(tmp_path), *CONFIGS], check=True, timeout=120)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, model in pruned.items():
            with torch.no_grad():
                assert np.array_equal(model(ids, mask).numpy(), np.load(tmp_path / f"{name}.npy")), name
    finally:
        torch.set_num_threads(threads)


def test_tied_embeddings_are_stored_once(tmp_path: Path) -> None:
    """optimum#1326: a tied weight stored twice doubles a small model's file."""
    model = classifier(DECODER)
    save_checkpoint(tmp_path / "c", model, Card(DECODER, "classify", ["a", "b"]), "{}")
    tables = [n for n, t in load_tensors(tmp_path / "c").items() if tuple(t.shape) == (50, 64)]
    assert tables == ["backbone.embed.weight"]


def test_step_shares_reach_the_target_and_never_rise() -> None:
    shares = step_shares(0.37, 5)
    assert shares == sorted(shares, reverse=True) and shares[-1] == pytest.approx(0.37)
    with pytest.raises(DaymillError):
        step_shares(0.0, 5)
