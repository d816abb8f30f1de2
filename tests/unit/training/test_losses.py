"""Losses against torch's own, their gradients by finite differences, and what masked targets may not do."""

import pytest
import torch
import torch.nn.functional as F

from data.batching import IGNORE
from training.losses import CHUNK, LinearCrossEntropy, label_loss_sum, next_token_loss_sum, soft_loss_sum


def test_the_chunked_loss_is_cross_entropy() -> None:
    torch.manual_seed(0)
    rows = CHUNK + 37  # more than one chunk, the last one smaller
    hidden, weight = torch.randn(rows, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    targets = torch.randint(0, 50, (rows,))
    ours = next_token_loss_sum(hidden[None], weight, targets[None])
    mine = torch.autograd.grad(ours, (hidden, weight))
    plain = F.cross_entropy(hidden @ weight.T, targets, reduction="sum")
    assert ours.item() == pytest.approx(plain.item(), rel=1e-6)
    for a, b in zip(mine, torch.autograd.grad(plain, (hidden, weight))):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()


def test_its_gradient_passes_finite_differences() -> None:
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 7))
    targets = torch.tensor([0, 3, IGNORE, 6, 1])
    for smoothing in (0.0, 0.3):
        assert torch.autograd.gradcheck(
            lambda h, w, s=smoothing: LinearCrossEntropy.apply(h, w, targets, True, s), (hidden, weight)
        )


def test_smoothed_targets_are_torchs_and_leave_ignored_places_out_of_both_terms() -> None:
    """pytorch#73205: the smoothing term counted ignored places."""
    torch.manual_seed(0)
    rows = CHUNK + 37
    hidden, weight = torch.randn(1, rows, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    targets = torch.randint(0, 50, (1, rows))
    targets[:, ::3] = IGNORE
    ours = next_token_loss_sum(hidden, weight, targets, 0.1)
    mine = torch.autograd.grad(ours, (hidden, weight))
    real = targets[0] != IGNORE
    plain = F.cross_entropy(hidden[0, real] @ weight.T, targets[0, real], reduction="sum", label_smoothing=0.1)
    assert ours.item() == pytest.approx(plain.item(), rel=1e-6)
    for a, b in zip(mine, torch.autograd.grad(plain, (hidden, weight))):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()
    assert next_token_loss_sum(hidden, weight, torch.full_like(targets, IGNORE), 0.1).item() == 0
    assert abs(ours.item() / next_token_loss_sum(hidden, weight, targets).item() - 1) > 1e-3


def test_ignored_places_count_neither_in_the_loss_nor_in_gradients() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(1, 6, 8, requires_grad=True), torch.randn(9, 8)
    targets = torch.tensor([[1, IGNORE, 2, IGNORE, IGNORE, 3]])
    loss = next_token_loss_sum(hidden, weight, targets)
    loss.backward()
    assert loss.item() == pytest.approx(next_token_loss_sum(hidden[:, [0, 2, 5]], weight, targets[:, [0, 2, 5]]).item())
    assert hidden.grad is not None and (hidden.grad[0, [1, 3, 4]] == 0).all()


def test_without_any_target_the_loss_is_zero_and_so_are_gradients() -> None:
    hidden, weight = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    loss = next_token_loss_sum(hidden, weight, torch.full((2, 3), IGNORE))
    loss.backward()
    assert loss.item() == 0
    assert hidden.grad is not None and (hidden.grad == 0).all()
    assert weight.grad is not None and (weight.grad == 0).all()


def test_a_hopeless_target_costs_much_but_nothing_infinite() -> None:
    hidden = torch.tensor([[[1000.0, 0.0]]])
    loss = next_token_loss_sum(hidden, torch.eye(2), torch.tensor([[1]]))
    assert torch.isfinite(loss) and loss > 50


def test_label_smoothing_is_torchs() -> None:
    torch.manual_seed(0)
    logits, labels, weights = torch.randn(10, 3), torch.randint(0, 3, (10,)), torch.tensor([1.0, 2.0, 0.5])
    for smoothing in (0.0, 0.1):
        ours = label_loss_sum(logits, labels, smoothing)
        assert ours.item() == pytest.approx(
            F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing).item(), rel=1e-5
        )
    weighted = label_loss_sum(logits, labels, 0.0, weights)
    assert weighted.item() == pytest.approx(F.cross_entropy(logits, labels, weights, reduction="sum").item(), rel=1e-5)


def test_smoothing_leaves_unlabelled_rows_out_of_both_terms() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 3), torch.tensor([0, IGNORE, 2, IGNORE, 1, IGNORE])
    real = labels != IGNORE
    assert label_loss_sum(logits, labels, 0.3).item() == pytest.approx(
        label_loss_sum(logits[real], labels[real], 0.3).item()
    )
    assert label_loss_sum(logits, torch.full((6,), IGNORE), 0.3).item() == 0


def test_row_weights_multiply_the_losses_of_rows() -> None:
    torch.manual_seed(0)
    logits, labels, weights = torch.randn(6, 3), torch.tensor([0, IGNORE, 2, 1, 1, IGNORE]), torch.rand(6) * 3
    classes = torch.tensor([1.0, 2.0, 0.5])
    for smoothing in (0.0, 0.2):
        alone = [label_loss_sum(logits[i : i + 1], labels[i : i + 1], smoothing, classes) for i in range(6)]
        ours = label_loss_sum(logits, labels, smoothing, classes, weights)
        assert ours.item() == pytest.approx(sum(float(w * loss) for w, loss in zip(weights, alone)), rel=1e-5)
    teacher = torch.randn(6, 3)
    alone = [soft_loss_sum(logits[i : i + 1], teacher[i : i + 1], 2.0) for i in range(6)]
    ours = soft_loss_sum(logits, teacher, 2.0, weights)
    assert ours.item() == pytest.approx(sum(float(w * loss) for w, loss in zip(weights, alone)), rel=1e-5)
    assert soft_loss_sum(logits, teacher, 2.0, torch.ones(6)).item() == pytest.approx(
        soft_loss_sum(logits, teacher, 2.0).item(), rel=1e-6
    )


def test_a_student_equal_to_its_teacher_has_no_soft_loss() -> None:
    logits = torch.randn(4, 3)
    assert soft_loss_sum(logits, logits, 2.0).item() == pytest.approx(0, abs=1e-6)
    assert soft_loss_sum(logits, -logits, 2.0).item() > 0
