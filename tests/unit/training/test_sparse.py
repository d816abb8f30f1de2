"""D-SReLU and the backward passes that skip: gradients against finite differences, choices that no batch changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from data.errors import DaymillError
from training.config import LayerShape, ModelConfig
from training.model import FeedForward, Transformer
from training.optim import decay_groups
from training.sparse import (
    WINDOW,
    LearnedThreshold,
    Skip,
    Skipped,
    SkippingFeedForward,
    dsrelu,
    kept_channels,
    kept_tokens,
    theta_at,
)

WHATS: tuple[Skipped, ...] = ("neurons", "tokens")
THETA = torch.tensor(0.4, dtype=torch.float64)


def case(rows: int = 3, tokens: int = 7, width: int = 4, channels: int = 10) -> list[Tensor]:
    """x, up, its bias and down in float64, with no activation near theta."""
    made = torch.Generator().manual_seed(2)
    sizes = [(rows, tokens, width), (channels, width), (channels,), (width, channels)]
    found = [torch.randn(size, generator=made, dtype=torch.float64).requires_grad_() for size in sizes]
    x, up, bias, _ = found
    assert ((F.linear(x, up, bias).abs() - THETA).abs() > 1e-5).all()
    return found


def dense(x: Tensor, up: Tensor, bias: Tensor, down: Tensor) -> Tensor:
    return F.linear(dsrelu(F.linear(x, up, bias), THETA), down)


def skipping(skip: Skip) -> Callable[..., Tensor]:
    return lambda x, up, bias, down: SkippingFeedForward.apply(x, up, bias, down, THETA, skip)


def test_it_is_x_above_theta_on_both_sides_and_zero_below() -> None:
    x = torch.tensor([-2.0, -0.5, -0.4, 0.0, 0.4, 0.5, 2.0], requires_grad=True)
    y = dsrelu(x, 0.4)
    assert y.tolist() == [-2.0, -0.5, 0, 0, 0, 0.5, 2.0]
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1, 0, 0, 0, 1, 1]


def test_what_is_not_a_number_is_not_hidden() -> None:
    assert dsrelu(torch.tensor([float("nan")]), 0.4).isnan().all()


def test_theta_rises_to_its_target_and_is_a_function_of_the_step_alone() -> None:
    shares = [theta_at(step, 101, 0.3) for step in range(101)]
    assert shares[0] == 0 and shares[15] == 0.5 and shares[30] == shares[100] == 1
    assert shares == sorted(shares)
    assert theta_at(0, 101, 0.0) == theta_at(0, 1, 1.0) == theta_at(100, 101, 1.0) == 1


def test_the_forward_pass_is_the_dense_one() -> None:
    given = case()
    for what in WHATS:
        assert torch.equal(skipping(Skip(what, 0.6))(*given), dense(*given))


@pytest.mark.parametrize("what", WHATS)
def test_skipping_nothing_passes_finite_differences(what: Skipped) -> None:
    assert torch.autograd.gradcheck(skipping(Skip(what, 0.0)), case())


@pytest.mark.parametrize("what", WHATS)
def test_gradients_are_those_of_the_function_with_what_is_skipped_held(what: Skipped) -> None:
    """Finite differences of the network in which skipped channels, or tokens, keep the values of this step."""
    given, skip = case(), Skip(what, 0.6)
    made = torch.Generator().manual_seed(3)
    pull = torch.randn(given[0].shape, generator=made, dtype=torch.float64)
    ours = torch.autograd.grad(skipping(skip)(*given), given, pull)
    with torch.no_grad():
        x, up, bias, down = given
        y = dsrelu(F.linear(x, up, bias), THETA)
        kept = torch.zeros_like(y)
        if what == "neurons":
            kept.scatter_(2, kept_channels(y, down, skip).unsqueeze(1).expand(-1, y.shape[1], -1), 1.0)
        else:
            size = torch.linalg.vector_norm(y, dim=-1)
            kept.scatter_(1, kept_tokens(size, pull, skip).unsqueeze(-1).expand(-1, -1, y.shape[2]), 1.0)
        held = F.linear(y * (1 - kept), down)
        assert 0.3 < kept.mean() < 0.6

        def value() -> float:
            moved = F.linear(dsrelu(F.linear(x, up, bias), THETA) * kept, down) + held
            return float((moved * pull).sum())

        for tensor, gradient in zip(given, ours):
            flat, step = tensor.view(-1), 1e-6
            for at in range(0, len(flat), 3):
                flat[at] += step
                above = value()
                flat[at] -= 2 * step
                below = value()
                flat[at] += step
                assert (above - below) / (2 * step) == pytest.approx(float(gradient.view(-1)[at]), abs=1e-7)


def test_where_all_that_is_skipped_was_idle_gradients_are_exact() -> None:
    x, up, bias, down = case()
    with torch.no_grad():
        up[4:], bias[4:] = 0, 0  # six of ten channels never pass theta
    given = [x, up, bias, down]
    ours, exact = (
        torch.autograd.grad(function(*given).square().sum(), given)
        for function in (skipping(Skip("neurons", 0.6)), dense)
    )
    for a, b in zip(ours, exact):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("what", WHATS)
def test_rows_choose_for_themselves(what: Skipped) -> None:
    """So K micro-batches, and the rows of N ranks, give the gradient of the one big batch."""
    given, function = case(), skipping(Skip(what, 0.6))
    whole = torch.autograd.grad(function(*given).square().sum(), given[1:])
    parts = [function(given[0][row : row + 1], *given[1:]).square().sum() for row in range(3)]
    each = [torch.autograd.grad(part, given[1:]) for part in parts]
    for at, gradient in enumerate(whole):
        torch.testing.assert_close(gradient, sum(one[at] for one in each), rtol=1e-12, atol=1e-12)
    exact = torch.autograd.grad(dense(*given).square().sum(), given[1:])
    assert (exact[0] - whole[0]).abs().max() > 1e-3, "something was skipped"


@pytest.mark.parametrize("what", WHATS)
def test_the_backward_pass_computes_the_kept_share_only(what: Skipped) -> None:
    given = case(rows=2, tokens=20, width=8, channels=40)
    counted = []
    for share in (0.0, 0.6):
        y = skipping(Skip(what, share))(*given)
        with FlopCounterMode(display=False) as counter:
            y.sum().backward()
        counted.append(counter.get_total_flops())
    assert counted[0] == 8 * 2 * 20 * 8 * 40
    assert counted[1] == 0.4 * counted[0]


def test_a_learned_theta_is_pulled_by_what_lies_near_it() -> None:
    theta = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.1, 0.45, 0.6, -0.55, -0.3, 2.0], dtype=torch.float64)
    pull = torch.tensor([9.0, 1.0, 2.0, 4.0, 9.0, 9.0], dtype=torch.float64)
    (LearnedThreshold.apply(x, theta) * pull).sum().backward()
    assert theta.grad is not None and theta.grad.item() == pytest.approx(-(1 + 2 - 4) / WINDOW)


def test_its_gradient_is_that_of_many_elements() -> None:
    """The mean of |y| over normal x has, as a function of theta, the derivative -2 theta p(theta)."""
    made = torch.Generator().manual_seed(0)
    x = torch.randn(2_000_000, generator=made)
    theta = torch.tensor(0.5, requires_grad=True)
    (LearnedThreshold.apply(x, theta) * x.sign()).mean().backward()
    density = math.exp(-(0.5**2) / 2) / math.sqrt(2 * math.pi)
    assert theta.grad is not None and theta.grad.item() == pytest.approx(-2 * 0.5 * density, rel=0.02)


SPARSE = ModelConfig.from_depth(1, 40, max_len=16, activation="dsrelu", theta=0.2)


def feed_forward(learned: bool = False, bias: bool = False) -> FeedForward:
    torch.manual_seed(0)
    config = replace(SPARSE, learned_theta=learned, bias=bias)
    made = FeedForward(config, config.layers[0])
    torch.nn.init.normal_(made.up.weight, std=0.1)
    return made


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("what", WHATS)
def test_the_module_skips_in_training_alone(what: Skipped, learned: bool) -> None:
    made, x = feed_forward(learned, bias=True), torch.randn(2, 9, 64)
    answers, gradients = [], []
    for training, skip in ((True, None), (True, Skip(what, 0.6)), (False, Skip(what, 0.6))):
        made.train(training).zero_grad()
        made.skip = skip
        y = made(x)
        y.square().sum().backward()
        answers.append(y.detach())
        assert made.up.weight.grad is not None
        gradients.append(made.up.weight.grad.clone())
    assert all(torch.allclose(answer, answers[0], atol=1e-6) for answer in answers)
    assert torch.allclose(gradients[2], gradients[0], atol=1e-5)
    assert not torch.allclose(gradients[1], gradients[0], atol=1e-2)


def test_bf16_products_keep_fp32_gradients() -> None:
    made, x = feed_forward(), torch.randn(2, 9, 64)
    for what in WHATS:
        made.skip = Skip(what, 0.0)
        with torch.autocast("cpu", torch.bfloat16):
            y = made(x)
        assert y.dtype == torch.bfloat16
        made.zero_grad()
        y.float().square().sum().backward()
        half = made.up.weight.grad
        assert half is not None and half.dtype == torch.float32
        made.skip = None
        made.zero_grad()
        made(x).square().sum().backward()
        assert made.up.weight.grad is not None
        assert (half - made.up.weight.grad).norm() < 0.05 * made.up.weight.grad.norm()


def test_a_learned_theta_does_not_decay_and_stays_above_zero() -> None:
    model = Transformer(replace(SPARSE, learned_theta=True))
    with_decay, without = decay_groups(model)
    assert "blocks.0.mlp.log_theta" in without and "blocks.0.mlp.log_theta" not in with_decay
    assert model.blocks[0].mlp.threshold == pytest.approx(0.2)
    with torch.no_grad():
        model.blocks[0].mlp.log_theta -= 50
    assert model.blocks[0].mlp.threshold > 0


def test_layers_may_have_thetas_of_their_own_and_a_schedule_moves_them_together() -> None:
    model = Transformer(replace(SPARSE, layers=(LayerShape(2, 256, None, 0.2), LayerShape(2, 256, None, 0.6))))
    model.set_theta(0.5)
    assert [block.mlp.threshold for block in model.blocks] == [0.1, 0.3]
    model.set_theta(1.0)
    assert [block.mlp.threshold for block in model.blocks] == [0.2, 0.6]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(DaymillError, match="theta above 0"):
        ModelConfig.from_depth(1, 40, activation="dsrelu")
    with pytest.raises(DaymillError, match="this model has gelu"):
        ModelConfig.from_depth(1, 40, activation="gelu", learned_theta=True)
    with pytest.raises(DaymillError, match="skipping is for the activation dsrelu"):
        Transformer(ModelConfig.from_depth(1, 40)).set_skip(Skip("tokens", 0.5))
