"""An encoder that an adversary makes forget the group: gradient reversal (Ganin et al. 2016), told the true label.

The adversary sees the encoder's output and the record's label and guesses the group; its gradient reaches the encoder
reversed. Because it is told the label (Zhang et al. 2018), only what tells the group beyond the label has to go: that
is equal odds, and costs little accuracy, while hiding the group altogether would hide the label wherever groups differ
in it. An adversary that has given up hides nothing; so it takes several steps for one of the encoder's, groups and
labels of all sizes weigh alike in its loss (always guessing the largest group gains it nothing), and it sees every unit
at unit variance (otherwise the encoder hides the group in differences too small for it, which a fresh probe finds).
Steps are large, since in small ones its gradient is noise, and the reversal sets in gradually. What it leaves of the
gaps between groups, an auditor of the decisions closes (auditor.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from data.debias.auditor import Auditor
from data.debias.config import DebiasConfig

Codes = NDArray[np.int64]

ANSWER_ROWS = 4_096
DROPPED = 0.2  # share of a record's words that a step does not see, so that single records are not learned by heart
FEWEST_STEPS = 400  # so that a few hundred records are learned from, too
WATCHED, LOOKS, PATIENCE = 0.1, 40, 5  # a plain network overfits soon: share of the rows that tell when, and how often
RAMP = 0.3  # share of the steps over which the reversal sets in
LAST_RATE = 0.05  # learning rate at the end as a share of the first
WEIGHT_DECAY = 1e-5
LARGEST_CELL_WEIGHT = 20.0  # of a record in the adversary's loss


class Bag(NamedTuple):
    """Sparse rows for an EmbeddingBag."""

    columns: Tensor
    starts: Tensor
    values: Tensor


class Encoder(nn.Module):
    """Sparse features to a representation [B, D] within -1 and 1, and from there to labels [B, C]."""

    def __init__(self, columns: int, classes: int, config: DebiasConfig) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(columns, config.hidden, mode="sum")
        nn.init.normal_(self.bag.weight, std=0.9 / config.hidden**0.5)
        self.shift = nn.Parameter(torch.zeros(config.hidden))
        self.out = nn.Linear(config.hidden, config.width)
        self.head = nn.Linear(config.width, classes)

    def forward(self, bag: Bag) -> Tensor:
        values = F.dropout(bag.values, DROPPED, self.training)
        hidden = F.relu(self.bag(bag.columns, bag.starts, per_sample_weights=values) + self.shift)
        return torch.tanh(self.out(hidden))


class Adversary(nn.Module):
    """Group logits [B, G] from the representation and the true label."""

    def __init__(self, classes: int, groups: int, config: DebiasConfig) -> None:
        super().__init__()
        self.classes = classes
        self.scale = nn.BatchNorm1d(config.width, affine=False)
        self.net = nn.Sequential(
            nn.Linear(config.width + classes, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, groups),
        )

    def forward(self, z_BD: Tensor, labels: Tensor) -> Tensor:
        return self.net(torch.cat([self.scale(z_BD), F.one_hot(labels, self.classes).to(z_BD.dtype)], dim=1))


class Trained(NamedTuple):
    encoder: Encoder
    adversary: Adversary | None


def train(
    x: csr_matrix,
    labels: Codes,
    groups: Codes,
    shape: tuple[int, int],
    strength: float,
    config: DebiasConfig,
    seed: int,
    weights: NDArray[np.floating] | None = None,
) -> Trained:
    """An encoder of features [N, F] that tells the label, and not the group as far as `strength` goes (0: plain)."""
    group_count, classes = shape
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    encoder = Encoder(x.shape[1], classes, config)
    adversary = Adversary(classes, group_count, config) if strength else None
    encode = torch.optim.Adam(encoder.parameters(), lr=config.lr, weight_decay=WEIGHT_DECAY, fused=True)
    guess = torch.optim.Adam(adversary.parameters(), lr=config.adversary_lr, fused=True) if adversary else None
    label_of, group_of = torch.from_numpy(labels), torch.from_numpy(groups)
    weight_of = torch.from_numpy(cell_weights(labels, groups, shape))
    row_weight_of = torch.ones(len(labels)) if weights is None else torch.from_numpy(weights.astype(np.float32))

    def guessed(z: Tensor, at: Tensor) -> Tensor:
        assert adversary is not None
        loss = F.cross_entropy(adversary(z, label_of[at]), group_of[at], reduction="none")
        return (loss * weight_of[at]).mean()

    rows = min(config.rows, max(16, x.shape[0] // 8))
    steps = max(FEWEST_STEPS, config.epochs * x.shape[0] // rows)
    watch = None if strength else Watch(x, labels, row_weight_of.numpy(), rng)
    learned = np.arange(x.shape[0]) if watch is None else watch.learned
    auditor = Auditor(shape)
    for step, chosen in zip(range(steps), batches(learned, rows, rng), strict=False):
        if watch is not None and step % max(1, steps // LOOKS) == 0 and watch.enough(encoder):
            break
        for group in encode.param_groups:
            group["lr"] = config.lr * (1 - (1 - LAST_RATE) * step / steps)
        at = torch.from_numpy(chosen)
        z = encoder(bag_of(x, chosen))
        logits = encoder.head(z)
        loss = (F.cross_entropy(logits, label_of[at], reduction="none") * row_weight_of[at]).mean()
        if guess is not None:
            for _ in range(config.adversary_steps - 1):
                guess.zero_grad()
                guessed(z.detach(), at).backward()
                guess.step()
            guess.zero_grad()
            loss = loss + guessed(Reversed.apply(z, strength * min(1.0, (step + 1) / (RAMP * steps))), at)
            loss = loss + auditor.charge(logits, group_of[at], label_of[at])
        encode.zero_grad()
        loss.backward()
        encode.step()
        if guess is not None:
            guess.step()
    if watch is not None:
        encoder.load_state_dict(watch.best)
    return Trained(encoder.eval(), adversary.eval() if adversary else None)


class Watch:
    """Rows set aside to tell when a plain network has learned what it can."""

    def __init__(self, x: csr_matrix, labels: Codes, weights: NDArray[np.floating], rng: np.random.Generator) -> None:
        order = rng.permutation(x.shape[0])
        count = max(1, int(WATCHED * len(order)))
        self.learned, aside = order[count:], order[:count]
        self.x, self.labels, self.weights = x[aside], labels[aside], weights[aside]
        self.loss, self.late = float("inf"), 0
        self.best: dict[str, Tensor] = {}

    def enough(self, encoder: Encoder) -> bool:
        """Whether the loss has not fallen for a while; keeps the weights where it has."""
        encoder.eval()
        loss = -float((answer(encoder, self.x)[1][np.arange(len(self.labels)), self.labels] * self.weights).sum())
        encoder.train()
        if loss < self.loss:
            self.loss, self.late = loss, 0
            self.best = {name: value.clone() for name, value in encoder.state_dict().items()}
        else:
            self.late += 1
        return self.late >= PATIENCE


@torch.no_grad()
def answer(encoder: Encoder, x: csr_matrix) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Representation [N, D] and log-probabilities of the labels [N, C]."""
    parts = [
        encoder(bag_of(x, np.arange(start, min(start + ANSWER_ROWS, x.shape[0]))))
        for start in range(0, x.shape[0], ANSWER_ROWS)
    ]
    z = torch.cat(parts) if parts else torch.zeros(0, encoder.out.out_features)
    return z.numpy(), F.log_softmax(encoder.head(z).double(), dim=-1).numpy()


@torch.no_grad()
def guess_groups(adversary: Adversary, z: NDArray[np.float32], labels: Codes) -> Codes:
    """What the adversary takes the groups for."""
    logits = adversary(torch.from_numpy(z), torch.from_numpy(labels))
    return np.asarray(logits.argmax(-1).numpy(), dtype=np.int64)


def cell_weights(labels: Codes, groups: Codes, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Weights [N] that make every pair of group and label count alike, mean 1; bounded for the smallest pairs."""
    cells = groups * shape[1] + labels
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    weights = len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1))[cells]
    weights = np.minimum(weights, LARGEST_CELL_WEIGHT)
    return np.asarray(weights / weights.mean(), dtype=np.float32)


def bag_of(x: csr_matrix, rows: NDArray[np.int64]) -> Bag:
    part = x[rows]
    return Bag(
        torch.from_numpy(part.indices.astype(np.int64)),
        torch.from_numpy(part.indptr[:-1].astype(np.int64)),
        torch.from_numpy(part.data),
    )


def batches(among: Codes, rows: int, rng: np.random.Generator) -> Iterator[Codes]:
    """Rows of one step after another, each once an epoch; a last step that would be smaller is left out."""
    while True:
        order = rng.permutation(among)
        for start in range(0, len(order) - rows + 1, rows):
            yield order[start : start + rows]


class Reversed(torch.autograd.Function):
    """The value itself forward, its gradient times -strength backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


@contextmanager
def quiet_torch(threads: int) -> Iterator[None]:
    """`threads` for torch, and its random state as it was afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)
