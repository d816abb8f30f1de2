"""The loss scale: the order of a step, what a skipped step leaves alone, and 65,536 to 32,768."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.numerics import Numerics
from training.optim import make_adamw
from training.precision import Choice
from training.scaling import LARGEST, LossScale
from training.step import Trainer
from training.world import Alone

FP16 = Choice("fp16", "plain", "")


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3, 1))

    def loss(self, factor: float) -> Tensor:
        """The gradient of a weight is `factor` times the loss's, in fp16: at most 65,504."""
        return (self.w.half() * factor).float().sum()


class Told(Alone):
    """Writes down what a step asks of its world, and the gradient at that time."""

    def __init__(self, model: Line) -> None:
        self.model, self.calls = model, []  # type: ignore[var-annotated]

    def note(self, what: str) -> None:
        grad = self.model.w.grad
        self.calls.append((what, None if grad is None else float(grad[0, 0])))

    def accumulate(self, micro_batches: Sequence[Any], loss_sum: Callable[[Any], Tensor], total: float) -> float:
        summed = super().accumulate(micro_batches, loss_sum, total)
        self.note("accumulate")
        return summed

    def reduce_gradients(self) -> None:
        self.note("sync")

    def clip(self, parameters: Iterable[Tensor], limit: float) -> float:
        self.note("clip")
        return super().clip(parameters, limit)

    def settle(self, updated: bool) -> None:
        self.note("settle")

    def rescale(self, factor: float) -> None:
        self.calls.append(("rescale", factor))


def trainer() -> tuple[Line, Told, Trainer]:
    model = Line()
    world = Told(model)
    return model, world, Trainer(model, make_adamw(model, 0.0), 1e9, world, Numerics(model, FP16))


def test_accumulate_sync_unscale_clip_step() -> None:
    _, world, made = trainer()
    assert made.step([2.0, 4.0], Line.loss.__get__(made.model), lambda _: 8.0, 0.1).updated
    # (2 + 4) / 16 a weight: scaled until after the reduction, as it is before clipping
    scaled, plain = 6 / 16 * 65536, 6 / 16
    assert world.calls == [("accumulate", scaled), ("sync", scaled), ("clip", plain), ("settle", plain)]


def test_an_overflow_is_skipped_halves_the_scale_and_leaves_all_else_alone() -> None:
    model, world, made = trainer()
    for factor, updated in ((1.0, True), (10.0, False), (7.0, True)):  # 10 x 65,536 / 8 overflows
        before = model.w.detach().clone()
        moments = {name: value.clone() for name, value in made.optimizer.state.get(model.w, {}).items()}
        report = made.step([factor], model.loss, lambda _: 8.0, 0.1)
        assert (report.updated, report.skipped) == (updated, not updated)
        assert torch.equal(before, model.w) is not updated
        if not updated:
            assert report.loss == pytest.approx(27 / 8, rel=1e-2), "the loss itself is finite, and told as it is"
            assert all(torch.equal(value, made.optimizer.state[model.w][name]) for name, value in moments.items())
            assert ("rescale", 0.5) in world.calls
    assert made.numerics.scale == 32768.0
    assert made.numerics.updates == 2
    assert made.optimizer.state[model.w]["step"] == 2


def test_without_a_scale_the_same_step_is_taken() -> None:
    """The control of the test above, and bf16 has no loss scale."""
    model = Line()
    made = Trainer(model, make_adamw(model, 0.0), 1e9, None, Numerics(model, Choice("bf16", "plain", "")))
    assert made.step([10.0], model.loss, lambda _: 8.0, 0.1).updated
    assert made.numerics.scale == 1.0 and made.numerics.loss_scale is None


def test_the_scale_doubles_after_clean_steps_and_has_a_limit() -> None:
    scale = LossScale(growth_steps=3)
    assert [scale.next(ok) for ok in (True, True, False, True, True, True)] == [1, 1, 0.5, 1, 1, 2]
    assert scale.value == 65536.0
    scale = LossScale(value=LARGEST, growth_steps=1)
    assert scale.next(True) == 1 and scale.value == LARGEST


def test_the_state_goes_through_json_to_the_bit() -> None:
    import json

    _, _, made = trainer()
    made.step([1.0], Line.loss.__get__(made.model), lambda _: 8.0, 0.1)
    made.step([float("inf")], Line.loss.__get__(made.model), lambda _: 1.0, 0.1)
    _, _, other = trainer()
    other.numerics.load(json.loads(json.dumps(made.numerics.state())))
    assert other.numerics.state() == made.numerics.state()
    assert other.numerics.scale == 32768.0 and other.numerics.updates == 1


def test_a_step_without_any_weight_is_no_overflow() -> None:
    _, _, made = trainer()
    report = made.step([], Line.loss.__get__(made.model), lambda _: 1.0, 0.1)
    assert not report.updated and not report.skipped and made.numerics.scale == 65536.0
