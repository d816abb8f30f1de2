"""A second adversary, in the space of decisions: prices on what groups are given, raised for as long as they differ.

The adversary that guesses groups loses interest near the end: its loss falls with the square of what is left to tell,
so that small gaps go on. The auditor's does not. Its prices are the multipliers of the constraint that every group is
given each label equally often for each true label, in expectation (the game of Agarwal et al. 2018 and Cotter et al.
2019, played step by step): a price grows with every step that a group is given more than the mean of the groups.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PRICE_RATE = 0.05  # a step; on a gap of 0.05 a price is 1 after 400 steps
HIGHEST_PRICE = 3.0
MEMORY = 0.9  # a step, of the rates: small groups are few in one


class Auditor:
    """Prices [G, C, C] by group, true label and label given."""

    def __init__(self, shape: tuple[int, int]) -> None:
        groups, classes = shape
        self.prices = torch.zeros(groups, classes, classes)
        self.rates = torch.zeros(groups, classes, classes)
        self.met = torch.zeros(groups, classes, 1, dtype=torch.bool)

    def charge(self, logits_BC: Tensor, groups: Tensor, labels: Tensor) -> Tensor:
        """What this step's answers cost at the prices so far."""
        group_count, classes, _ = self.prices.shape
        cell = groups * classes + labels
        given = torch.zeros(group_count * classes, classes).index_add(0, cell, F.softmax(logits_BC, dim=-1))
        count = torch.bincount(cell, minlength=group_count * classes).view(group_count, classes, 1)
        rates = given.view_as(self.prices) / count.clamp(min=1)
        cost = (self.prices * rates).sum()
        self.raise_prices(rates.detach(), count > 0)
        return cost

    def raise_prices(self, rates: Tensor, present: Tensor) -> None:
        """Take the rates [G, C, C] of the pairs of group and label that are `present` [G, C, 1] into account."""
        kept = torch.where(present, torch.where(self.met, MEMORY, 0.0), 1.0)
        self.rates = kept * self.rates + (1 - kept) * rates
        self.met = self.met | present
        met = self.met.float()
        mean = (self.rates * met).sum(0) / met.sum(0).clamp(min=1)
        gaps = (self.rates - mean) * met
        self.prices = (self.prices + PRICE_RATE * gaps).clamp(-HIGHEST_PRICE, HIGHEST_PRICE)
