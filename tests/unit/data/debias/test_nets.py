"""The adversarial network: reversed gradients, groups that weigh alike, the same network twice, nobody else's seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from data.debias import nets
from data.debias.config import DebiasConfig
from data.debias.nets import Reversed, Watch, batches, cell_weights, quiet_torch, train

SMALL = DebiasConfig(rows=32, hidden=8, width=4, epochs=1)


def data(count: int = 200) -> tuple[csr_matrix, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = csr_matrix(rng.random((count, 30)) * (rng.random((count, 30)) < 0.2), dtype=np.float32)
    return x, rng.integers(0, 2, count), rng.integers(0, 2, count)


def test_the_gradient_is_reversed_and_scaled() -> None:
    value = torch.tensor([1.0, -2.0], requires_grad=True)
    (Reversed.apply(value, 3.0) * torch.tensor([5.0, 7.0])).sum().backward()
    assert value.grad is not None and value.grad.tolist() == [-15.0, -21.0]


def test_every_pair_of_group_and_label_weighs_alike() -> None:
    labels = np.array([0] * 60 + [1] * 40)
    groups = np.array([0] * 50 + [1] * 10 + [0] * 10 + [1] * 30)
    weights = cell_weights(labels, groups, (2, 2))
    totals = [weights[(labels == y) & (groups == g)].sum() for y in (0, 1) for g in (0, 1)]
    assert totals == pytest.approx([25.0] * 4)
    rare = cell_weights(np.array([0] * 9_999 + [1]), np.array([0, 1] * 5_000), (2, 2))
    assert rare.max() < 50 and rare.mean() == pytest.approx(1), "one record never outweighs thousands"


def test_a_row_comes_once_an_epoch() -> None:
    found = batches(np.arange(10, 20), 3, np.random.default_rng(0))
    first = np.concatenate([next(found) for _ in range(3)])
    assert len(set(first.tolist())) == 9 and set(first.tolist()) <= set(range(10, 20))


@pytest.mark.parametrize("strength", [0.0, 5.0])
def test_the_same_seed_gives_the_same_network_and_leaves_other_seeds_alone(
    strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets, "FEWEST_STEPS", 20)
    x, labels, groups = data()
    found = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        expected = torch.random.get_rng_state()
        threads = torch.get_num_threads()
        with quiet_torch(1):
            net = train(x, labels, groups, (2, 2), strength, SMALL, seed=3)
        assert torch.equal(torch.random.get_rng_state(), expected)
        assert torch.get_num_threads() == threads
        found.append(net)
    one, two = (net.encoder.state_dict() for net in found)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert (found[0].adversary is None) == (strength == 0)
    assert not found[0].encoder.training


def test_weights_count_in_the_loss_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "FEWEST_STEPS", 60)
    x, _, groups = data(300)
    labels = np.arange(300) % 2  # nothing tells them
    with quiet_torch(1):
        net = train(x, labels, groups, (2, 2), 0.0, SMALL, 0, np.where(labels == 1, 1.9, 0.1))
        told = nets.answer(net.encoder, x)[1]
    assert np.exp(told[:, 1]).mean() > 0.6


def test_a_plain_network_is_as_it_was_when_unseen_rows_were_told_best() -> None:
    x, labels, _ = data()
    watch = Watch(x, labels, np.ones(200), np.random.default_rng(0))
    assert len(watch.labels) == 20 and len(watch.learned) == 180
    encoder = nets.Encoder(30, 2, SMALL)
    assert not watch.enough(encoder)
    best = {name: value.clone() for name, value in encoder.state_dict().items()}
    with torch.no_grad():
        encoder.head.bias += torch.tensor([50.0, -50.0])
    answers = [watch.enough(encoder) for _ in range(nets.PATIENCE)]
    assert answers == [False] * (nets.PATIENCE - 1) + [True]
    assert all(torch.equal(watch.best[name], best[name]) for name in best)
