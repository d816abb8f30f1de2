"""The step: exact under accumulation, clipped once, and nothing non-finite reaches the weights."""

import pytest
import torch
from torch import Tensor, nn

from data.batching import IGNORE
from data.errors import DaymillError
from training.config import ModelConfig
from training.loader import TokenBatch
from training.model import Transformer
from training.optim import make_adamw
from training.ranks import token_loss_sum
from training.step import PATIENCE, Trainer

CONFIG = ModelConfig.from_depth(1, 40, max_len=16)


def batch(rows: int, real: int, seed: int = 0) -> TokenBatch:
    """Rows of 16 places, of which the first `real` targets count."""
    generator = torch.Generator().manual_seed(seed)
    ids, targets = torch.randint(0, 40, (2, rows, 16), generator=generator)
    targets[:, real:] = IGNORE
    return TokenBatch(ids, targets, torch.zeros(rows, 16, dtype=torch.long))


def join(*batches: TokenBatch) -> TokenBatch:
    return TokenBatch(*(torch.cat(parts) for parts in zip(*((b.ids, b.targets, b.docs) for b in batches))))


def gradients(batches: list[TokenBatch], dtype: torch.dtype) -> tuple[dict[str, Tensor], float]:
    torch.manual_seed(0)
    model = Transformer(CONFIG).to(dtype)
    trainer = Trainer(model, make_adamw(model, 0.1), clip=1e9)
    report = trainer.step(batches, lambda b: token_loss_sum(model, b), lambda b: b.tokens, rate=0.0)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, report.loss


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_unequal_micro_batches_give_the_gradient_of_the_one_big_batch(dtype: torch.dtype, tolerance: float) -> None:
    parts = [batch(1, 16, 1), batch(3, 2, 2), batch(2, 9, 3)]
    whole, whole_loss = gradients([join(*parts)], dtype)
    split, split_loss = gradients(parts, dtype)
    assert split_loss == pytest.approx(whole_loss, rel=tolerance * 10)
    for name in whole:
        assert (whole[name] - split[name]).abs().max() <= tolerance * whole[name].abs().max(), name


def test_a_mean_of_means_would_not_pass_that_test() -> None:
    parts = [batch(1, 16, 1), batch(3, 2, 2)]
    whole, _ = gradients([join(*parts)], torch.float64)
    means = [gradients([part], torch.float64)[0] for part in parts]
    wrong = {name: (means[0][name] + means[1][name]) / 2 for name in whole}
    assert any((whole[name] - wrong[name]).abs().max() > 1e-3 * whole[name].abs().max() for name in whole)


def test_a_micro_batch_without_targets_counts_nothing() -> None:
    full, empty = batch(2, 8), batch(2, 0, 5)
    alone, loss = gradients([full], torch.float64)
    both, loss_both = gradients([full, empty], torch.float64)
    assert loss_both == pytest.approx(loss, rel=1e-12)
    for name in alone:
        assert torch.allclose(alone[name], both[name], rtol=1e-12, atol=0), name


def test_a_step_without_any_target_changes_nothing() -> None:
    model = Transformer(CONFIG)
    before = [p.detach().clone() for p in model.parameters()]
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0)
    report = trainer.step([batch(2, 0)], lambda b: token_loss_sum(model, b), lambda b: b.tokens, 0.1)
    assert (report.loss, report.updated) == (0.0, False)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def loss(self, factor: float) -> Tensor:
        return (self.w * factor).sum()


def test_the_logged_loss_covers_all_micro_batches_and_clipping_comes_once_after_all() -> None:
    model = Line()
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.0), clip=1.0)
    report = trainer.step([3.0, 5.0], model.loss, lambda _: 1.0, rate=1.0)
    assert report.loss == pytest.approx(12.0)
    assert report.grad_norm == pytest.approx(4 * 3**0.5)
    assert torch.allclose(model.w, torch.full((3,), 1 - 3**-0.5))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_non_finite_loss_never_reaches_the_optimizer(bad: float) -> None:
    model = Line()
    optimizer = torch.optim.AdamW(model.parameters())
    trainer = Trainer(model, optimizer, clip=1.0)
    report = trainer.step([1.0, bad], model.loss, lambda _: 1.0, rate=1.0)
    assert not report.updated
    assert torch.equal(model.w, torch.ones(3))
    assert not optimizer.state, "a skipped step leaves the moments alone"
    assert trainer.step([1.0], model.loss, lambda _: 1.0, rate=1.0).updated
    assert trainer.skipped == 0


def test_a_run_that_stays_non_finite_ends_with_advice() -> None:
    model = Line()
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.0), clip=1.0)
    for _ in range(PATIENCE - 1):
        trainer.step([float("nan")], model.loss, lambda _: 1.0, rate=1.0)
    with pytest.raises(DaymillError, match="lower the learning rate"):
        trainer.step([float("nan")], model.loss, lambda _: 1.0, rate=1.0)
