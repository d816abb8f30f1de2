"""Decay groups by name, and optimizer state as plain tensors."""

import pytest
import torch

from data.errors import DaymillError
from training.config import LayerShape, ModelConfig
from training.model import Classifier, Transformer
from training.optim import decay_groups, load_optimizer_tensors, make_adamw, optimizer_tensors, set_learning_rate

OURS = ModelConfig.from_depth(2, 50)
ENCODER = ModelConfig(
    50, 32, (LayerShape(2, 64),) * 2, 16, 16, "layer", "post", "gelu", "learned", causal=False, bias=True
)


@pytest.mark.parametrize("config", [OURS, ENCODER], ids=["decoder", "encoder"])
def test_norms_biases_and_scales_do_not_decay(config: ModelConfig) -> None:
    model = Classifier(Transformer(config), 3)
    decayed, free = decay_groups(model)
    assert sorted(decayed + free) == sorted(name for name, _ in model.named_parameters())
    assert all(name.endswith("bias") or "norm" in name for name in free)
    assert not any(name.endswith("bias") or "norm" in name for name in decayed)
    expected = {"backbone.embed.weight", "backbone.blocks.1.attn.o.weight", "backbone.blocks.0.mlp.down.weight"}
    assert expected <= set(decayed)
    assert "backbone.blocks.0.norm1.weight" in free and "head.bias" in free


def test_decay_without_gradient_shrinks_matrices_and_leaves_norms() -> None:
    model = Transformer(OURS)
    optimizer = make_adamw(model, weight_decay=0.5)
    set_learning_rate(optimizer, 0.1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        shrink = 1.0 if "norm" in name else 0.95
        assert torch.allclose(parameter, before[name] * shrink), name


def stepped(model: Transformer, seed: int) -> torch.optim.AdamW:
    optimizer = make_adamw(model, 0.1)
    set_learning_rate(optimizer, 0.01)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    return optimizer


def test_restored_moments_go_on_bit_equal() -> None:
    torch.manual_seed(0)
    model = Transformer(OURS)
    optimizer = stepped(model, 0)
    twin = Transformer(OURS)
    twin.load_state_dict(model.state_dict())
    other = make_adamw(twin, 0.1)
    load_optimizer_tensors(other, twin, optimizer_tensors(optimizer, model))
    set_learning_rate(other, 0.01)
    for a, b in zip(model.parameters(), twin.parameters()):
        b.grad = a.grad.clone() if a.grad is not None else None
    for _ in range(2):
        optimizer.step()
        other.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))


def test_state_of_another_model_is_refused() -> None:
    model = Transformer(OURS)
    tensors = optimizer_tensors(stepped(model, 0), model)
    small = Transformer(ModelConfig.from_depth(1, 50))
    with pytest.raises(DaymillError, match="fits no parameter"):
        load_optimizer_tensors(make_adamw(small, 0.1), small, tensors)
