"""What is told of layers is what is in them: real tokens only, updates as they were, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from training.config import LayerShape, ModelConfig
from training.layers import Activations, OneRank, parameter_names, parameter_values
from training.loader import TokenBatch
from training.model import Classifier, Transformer
from training.optim import make_adamw
from training.ranks import token_loss_sum
from training.step import StepReport, Trainer

VOCAB, TOKENS, ROWS = 40, 12, 4
CONFIG = ModelConfig(VOCAB, 32, (LayerShape(4, 48), LayerShape(2, 20)), head_dim=8, max_len=TOKENS)


def made(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(CONFIG)


def batch(pad: int = 3, filling: int = 0) -> TokenBatch:
    """Packed rows whose last places are padding that holds `filling`."""
    ids = torch.randint(0, VOCAB, (ROWS, TOKENS), generator=torch.Generator().manual_seed(1))
    targets, docs = ids.clone(), torch.zeros_like(ids)
    ids[:, TOKENS - pad :], targets[:, TOKENS - pad :], docs[:, TOKENS - pad :] = filling, -100, -1
    return TokenBatch(ids, targets, docs)


def looked(model: Transformer, batches: list[TokenBatch]) -> dict[str, float]:
    activations = Activations(model, OneRank())
    with activations.watching():
        for each in batches:
            token_loss_sum(model, each, "fp32").backward()
    return activations.values()


def outputs(model: Transformer, given: TokenBatch) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each block, for real tokens: its output and its feed-forward channels, computed by hand."""
    real = given.docs >= 0
    positions = torch.arange(TOKENS)[None]
    x = model.embedded(given.ids, positions)
    surroundings = model.surroundings(given.ids, None, given.docs, positions, x.dtype)
    for block in model.blocks:
        between = x + block.attn(block.norm1(x), *surroundings)
        channels = block.mlp.inner(block.norm2(between))
        x = block(x, *surroundings)
        yield x[real], channels[real]


def test_activations_are_those_of_real_tokens() -> None:
    model = made()
    found = looked(model, [batch()])
    with torch.no_grad():
        for number, (output, channels) in enumerate(outputs(model, batch())):
            for name, values in (("out", output), ("ffn", channels)):
                assert found[f"{name}_mean/{number}"] == pytest.approx(float(values.mean()), abs=1e-6)
                assert found[f"{name}_std/{number}"] == pytest.approx(float(values.std(correction=0)), rel=1e-4)
    assert found == looked(model, [batch(filling=7)]), "what padding holds changes nothing"
    assert found != looked(model, [batch(pad=2, filling=7)]), "a control: one real token more does"


def test_micro_batches_add_up() -> None:
    model, whole = made(), batch()
    halves = [TokenBatch(*(part[at : at + 2] for part in (whole.ids, whole.targets, whole.docs))) for at in (0, 2)]
    assert looked(model, halves) == pytest.approx(looked(model, [whole]), rel=1e-5, abs=1e-9)


def test_dead_channels_are_counted() -> None:
    model = made()
    alive = looked(model, [batch()])
    assert (alive["ffn_dead/0"], alive["ffn_dead/1"]) == (0, 0)
    with torch.no_grad():
        model.blocks[1].mlp.up.weight[:5] = 0
        model.blocks[0].mlp.up.weight[:12] *= 1e-5
    found = looked(model, [batch()])
    assert found["ffn_dead/0"] == pytest.approx(12 / 48), "far below the others is dead too"
    assert found["ffn_dead/1"] == pytest.approx(5 / 20)
    with torch.no_grad():
        model.blocks[0].mlp.up.weight *= 0
    assert looked(model, [batch()])["ffn_dead/0"] == 1


def test_what_was_not_seen_is_not_told() -> None:
    model = made()
    mlp = model.blocks[1].mlp
    mlp.forward = lambda x: mlp.down(mlp.up(x))  # type: ignore[method-assign]  # its channels are another's matter
    found = looked(model, [batch()])
    assert "out_std/1" in found and "ffn_dead/0" in found
    assert not {"ffn_mean/1", "ffn_std/1", "ffn_dead/1"} & found.keys()


def test_what_is_not_finite_shows_as_such() -> None:
    model = made()
    with torch.no_grad():
        model.blocks[1].mlp.down.weight[0, 0] = float("nan")
    found = looked(model, [batch()])
    assert found["out_std/1"] != found["out_std/1"] and found["out_std/0"] == found["out_std/0"]


def test_looking_leaves_nothing_behind_even_when_it_fails() -> None:
    model = made()
    activations = Activations(model, OneRank())
    with pytest.raises(KeyError), activations.watching():
        assert "inner" in model.blocks[0].mlp.__dict__
        raise KeyError
    assert not model.blocks[0]._forward_hooks and "inner" not in model.blocks[0].mlp.__dict__
    assert "surroundings" not in model.__dict__


def test_a_classifier_is_looked_at_by_its_mask() -> None:
    torch.manual_seed(0)
    model = Classifier(made(), 2)
    mask = torch.ones(ROWS, TOKENS, dtype=torch.long)
    mask[:, 8:] = 0
    activations = Activations(model, OneRank())
    found = []
    for filling in (0, 9):
        ids = batch(pad=4, filling=filling).ids
        with activations.watching():
            model(ids, mask)
        found.append(activations.values())
    assert found[0] == found[1]


@pytest.mark.parametrize("clip", [1e9, 0.05], ids=["unclipped", "clipped"])
def test_updates_and_gradients_are_those_of_the_step(clip: float) -> None:
    model = made()
    trainer = Trainer(model, make_adamw(model, 0.1), clip)
    for _ in range(3):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        report = trainer.step([batch()], lambda b: token_loss_sum(model, b, "fp32"), lambda b: b.tokens, 1e-2)
        found = parameter_values(trainer, parameter_names(model), OneRank(), report, 2)
        squares: dict[str, float] = {}
        moved: dict[str, list[float]] = {}
        for name, p in model.named_parameters():
            where = name.split(".")[1] if name.startswith("blocks.") else "rest"
            sums = moved.setdefault(where, [0.0, 0.0])
            sums[0] += float((p.detach() - before[name]).double().square().sum())
            sums[1] += float(p.detach().double().square().sum())
        for where, (update, weight) in moved.items():
            assert found[f"update_ratio/{where}"] == pytest.approx((update / weight) ** 0.5, rel=1e-3)
            squares[where] = found[f"grad_norm/{where}"] ** 2
        assert sum(squares.values()) ** 0.5 == pytest.approx(report.grad_norm, rel=1e-4)
        assert set(squares) == {"0", "1", "rest"}


def test_a_skipped_step_updates_nothing() -> None:
    model = made()
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0)
    report = trainer.step(
        [batch()], lambda b: token_loss_sum(model, b, "fp32") * float("nan"), lambda b: b.tokens, 1e-2
    )
    assert isinstance(report, StepReport) and not report.updated
    found = parameter_values(trainer, parameter_names(model), OneRank(), report, 2)
    assert found["update_ratio/0"] == 0 and found["grad_norm/0"] != found["grad_norm/0"]
