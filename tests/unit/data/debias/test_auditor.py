"""Prices rise on what a group is given more often, for as long as it is, and only there."""

from __future__ import annotations

import pytest
import torch

from data.debias.auditor import HIGHEST_PRICE, Auditor

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
GROUPS = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])


def logits(chance: list[float]) -> torch.Tensor:
    """Logits of label 1 being given with these chances."""
    one = torch.tensor(chance)
    return torch.stack([(1 - one).log(), one.log()], dim=1)


def test_nothing_is_charged_where_groups_are_given_alike() -> None:
    auditor = Auditor((2, 2))
    for _ in range(5):
        cost = auditor.charge(logits([0.1, 0.3, 0.2, 0.2, 0.8, 0.6, 0.7, 0.7]), GROUPS, LABELS)
    assert cost.item() == pytest.approx(0, abs=1e-6)
    assert auditor.prices.abs().max() < 1e-6


def test_the_group_that_is_given_more_pays_more_step_by_step() -> None:
    auditor = Auditor((2, 2))
    unequal = logits([0.5] * 4 + [0.9, 0.9, 0.5, 0.5])
    costs = [auditor.charge(unequal, GROUPS, LABELS).item() for _ in range(3)]
    assert costs[0] == 0 < costs[1] < costs[2]
    assert auditor.prices[0, 1, 1] > 0 > auditor.prices[1, 1, 1]
    assert auditor.prices[:, 0].abs().max() < 1e-6, "among the others the groups do not differ"
    assert auditor.prices.sum(0).abs().max() < 1e-6


@pytest.mark.parametrize("audited", [True, False])
def test_a_model_that_has_to_pay_closes_the_gap(audited: bool) -> None:
    auditor = Auditor((2, 2))
    wanted = logits([0.5] * 4 + [0.9, 0.9, 0.5, 0.5])
    free = wanted.clone().requires_grad_()
    descent = torch.optim.SGD([free], lr=0.4)
    for _ in range(300):
        cost = (free - wanted).square().sum() / 10
        if audited:
            cost = cost + auditor.charge(free, GROUPS, LABELS)
        descent.zero_grad()
        cost.backward()
        descent.step()
    given = free.detach().softmax(-1)[:, 1]
    assert (abs(given[4:6].mean() - given[6:].mean()) < 0.05) == audited
    assert torch.allclose(given[:4], torch.tensor(0.5), atol=1e-4), "where there was no gap nothing moved"


def test_a_group_that_a_step_lacks_keeps_its_rate_and_prices_are_bounded() -> None:
    auditor = Auditor((3, 2))
    auditor.charge(logits([0.9] * 4), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
    auditor.charge(logits([0.1] * 2), torch.tensor([1, 1]), torch.tensor([0, 1]))
    assert auditor.rates[0, :, 1].tolist() == pytest.approx([0.9, 0.9])
    assert auditor.rates[1, :, 1].tolist() == pytest.approx([0.82, 0.82])
    assert (auditor.prices[2] == 0).all(), "a group that was never met is not charged"
    auditor.prices.fill_(HIGHEST_PRICE)
    auditor.charge(logits([0.99] * 2), torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert auditor.prices.max() <= HIGHEST_PRICE
