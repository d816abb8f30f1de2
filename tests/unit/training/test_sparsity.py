"""Three numbers of a backward pass: zeros, operations and seconds, and that they are three."""

from __future__ import annotations

import pytest
import torch

from training.config import LayerShape, ModelConfig
from training.loader import TokenBatch
from training.model import FeedForward, Transformer
from training.sparse import Skip
from training.sparsity import by_layer, flops, seconds, zero_share

ROWS, TOKENS, WIDTH, FFN = 2, 20, 16, 40
DENSE = 8 * ROWS * TOKENS * WIDTH * FFN  # two products for each of two weights, two operations a multiplication


def made(activation: str, theta: float = 0.0) -> FeedForward:
    torch.manual_seed(0)
    shape = LayerShape(2, FFN, None, theta)
    return FeedForward(ModelConfig(9, WIDTH, (shape,), activation=activation), shape)  # type: ignore[arg-type]


def given() -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(ROWS, TOKENS, WIDTH, generator=made) for _ in range(2))
    return x, grad


def test_zeros_of_single_elements_save_no_operation() -> None:
    x, grad = given()
    for activation, theta, low, high in (
        ("gelu", 0.0, 0.0, 0.0),
        ("relu2", 0.0, 0.4, 0.6),
        ("dsrelu", 1e-9, 0.0, 0.0),
        ("dsrelu", 0.5, 0.4, 0.9),
    ):
        mlp = made(activation, theta)
        assert low <= zero_share(mlp, x, grad) <= high, activation
        assert flops(mlp, x, grad) == DENSE
    assert flops(made("swiglu"), x, grad) == 1.5 * DENSE


@pytest.mark.parametrize("what", ["neurons", "tokens"])
def test_skipping_raises_the_zeros_and_saves_operations(what: str) -> None:
    x, grad = given()
    mlp = made("dsrelu", 0.1)
    before = zero_share(mlp, x, grad)
    mlp.skip = Skip(what, 0.6)  # type: ignore[arg-type]
    assert flops(mlp, x, grad) == 0.4 * DENSE
    assert 0.6 <= zero_share(mlp, x, grad) > before
    assert seconds(mlp, x, grad) > 0
    mlp.eval()
    assert flops(mlp, x, grad) == DENSE and zero_share(mlp, x, grad) == before


def test_the_zeros_are_those_of_the_gradients_that_arrive() -> None:
    """With one row, a channel that is skipped gets no gradient at all, and one that is kept gets some."""
    mlp, (x, grad) = made("dsrelu", 1e-9), given()
    mlp.skip = Skip("neurons", 0.6)
    mlp(x[:1]).backward(grad[:1])
    assert mlp.up.weight.grad is not None
    reached = (mlp.up.weight.grad != 0).any(1).double().mean()
    assert float(reached) == pytest.approx(1 - zero_share(mlp, x[:1], grad[:1])) == pytest.approx(0.4)


def test_every_layer_is_told_of_and_the_model_left_as_it_was() -> None:
    torch.manual_seed(0)
    layers = (LayerShape(2, 32, None, 0.02), LayerShape(2, 64, None, 0.02))
    model = Transformer(ModelConfig(9, 64, layers, activation="dsrelu")).eval()
    ids = torch.randint(0, 9, (ROWS, TOKENS))
    found = by_layer(model, TokenBatch(ids, ids, torch.zeros_like(ids)), rounds=1)
    assert [layer.flops for layer in found] == [8 * ROWS * TOKENS * 64 * shape.ffn for shape in layers]
    assert all(0 < layer.zeros < 1 and layer.seconds > 0 for layer in found)
    assert not model.training and all(p.grad is None for p in model.parameters())
