"""Leakage probes: how well fresh models tell the group from a representation that they did not take part in making.

A linear one and a small network, each cross-validated; what counts is the better one. An adversary's own failure says
little: it may have collapsed (Elazar and Goldberg 2018), which is what a fresh one of its kind finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from data.debias.nets import batches, cell_weights

Codes = NDArray[np.int64]

FOLDS = 3
MOST_ROWS = 12_000
HIDDEN = 64
ROUNDS, PATIENCE, ROUND_STEPS, ROWS, RATE = (
    30,
    5,
    10,
    256,
    3e-3,
)  # a round is an epoch, or ROUND_STEPS where that is more
WATCHED = 0.15  # of the rows the network learns from: they pick its best round


@dataclass(frozen=True)
class Leak:
    """Shares of rows told right; `majority` always guesses the largest group, `label` the likeliest for the label."""

    linear: float
    network: float
    majority: float
    label: float
    auc: float  # mean over groups of one against the rest, by the better probe

    @property
    def accuracy(self) -> float:
        return max(self.linear, self.network)

    @property
    def without(self) -> float:
        """Told without the features: by guessing the largest group, or the likeliest for the label itself."""
        return max(self.majority, self.label)

    @property
    def beyond(self) -> float:
        return self.accuracy - self.without


def leak(features: NDArray[np.floating] | csr_matrix, groups: Codes, labels: Codes, seed: int = 0) -> Leak:
    """How well the group can be told from features [N, D]; sparse ones are asked of the linear probe alone."""
    groups, labels = groups[:MOST_ROWS], labels[:MOST_ROWS]
    features = features[:MOST_ROWS]
    fold = np.random.default_rng(seed).permutation(len(groups)) % FOLDS
    sparse = isinstance(features, csr_matrix)
    if not isinstance(features, csr_matrix):
        features = standardized(features)
    count = int(groups.max()) + 1
    scores = {name: np.zeros((len(groups), count)) for name in ("linear", "network")}
    for k in range(FOLDS):
        learn, ask = fold != k, fold == k
        linear = LogisticRegression(max_iter=1_000).fit(features[learn], groups[learn])
        scores["linear"][np.ix_(ask, linear.classes_)] = linear.predict_proba(features[ask])
        if not sparse:
            scores["network"][ask] = network(features[learn], groups[learn], None, count, seed + k)(features[ask])
    right = {name: float((score.argmax(-1) == groups).mean()) for name, score in scores.items()}
    better = max(right, key=lambda name: right[name])
    largest = np.bincount(groups, minlength=count)
    cells = np.bincount(labels * count + groups, minlength=(int(labels.max()) + 1) * count).reshape(-1, count)
    return Leak(
        linear=right["linear"],
        network=right["linear"] if sparse else right["network"],
        majority=float(largest.max() / len(groups)),
        label=float(cells.max(-1).sum() / len(groups)),
        auc=auc(groups, scores[better]),
    )


def fresh_adversary(z: NDArray[np.float32], labels: Codes, groups: Codes, shape: tuple[int, int], seed: int) -> float:
    """What a fresh adversary reaches that is told the label too: recall of groups, all groups and labels alike."""
    z, labels, groups = z[:MOST_ROWS], labels[:MOST_ROWS], groups[:MOST_ROWS]
    told = np.hstack([standardized(z), np.eye(shape[1], dtype=np.float32)[labels]])
    fold = np.random.default_rng(seed).permutation(len(groups)) % FOLDS
    guessed = np.zeros_like(groups)
    for k in range(FOLDS):
        learn, ask = fold != k, fold == k
        weights = cell_weights(labels[learn], groups[learn], shape)
        guessed[ask] = network(told[learn], groups[learn], weights, shape[0], seed + k)(told[ask]).argmax(-1)
    return recall(guessed, groups, labels)


def recall(guessed: Codes, groups: Codes, labels: Codes) -> float:
    """Mean over labels of the mean over groups of the share that is guessed right; a blind guess has 1 / groups."""
    shares = []
    for label in np.unique(labels):
        here = labels == label
        found = [float((guessed[here & (groups == g)] == g).mean()) for g in np.unique(groups[here])]
        if len(found) > 1:
            shares.append(np.mean(found))
    return float(np.mean(shares)) if shares else float("nan")


def recall_variance(groups: Codes, labels: Codes) -> float:
    """Variance of a blind guess's recall: that of the mean of as many shares."""
    blind = 1 / (int(groups.max()) + 1)
    found = []
    for label in np.unique(labels):
        counts = np.bincount(groups[labels == label])
        counts = counts[counts > 0]
        if len(counts) > 1:
            found.append(blind * (1 - blind) * (1 / counts).sum() / len(counts) ** 2)
    return float(np.sum(found) / len(found) ** 2) if found else 0.0


def network(
    x: NDArray[np.float32], groups: Codes, weights: NDArray[np.float32] | None, count: int, seed: int
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """A small network as a function from features to scores; kept as it was when it told rows set aside best."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = nn.Sequential(
        nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, count)
    )
    adam = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=1e-4, fused=True)
    inputs, targets = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), torch.from_numpy(groups)
    weight = torch.ones(len(x)) if weights is None else torch.from_numpy(weights)

    def weighted_loss(rows: Codes) -> Tensor:
        at = torch.from_numpy(rows)
        return (F.cross_entropy(model(inputs[at]), targets[at], reduction="none") * weight[at]).mean()

    order = rng.permutation(len(x))
    watched, learned = np.split(order, [max(1, int(WATCHED * len(x)))])
    steps = batches(learned, min(ROWS, len(learned)), rng)
    round_steps = max(ROUND_STEPS, len(learned) // ROWS)
    best, kept, late = float("inf"), model.state_dict(), 0
    for _ in range(ROUNDS):
        for _, chosen in zip(range(round_steps), steps, strict=False):
            loss = weighted_loss(chosen)
            adam.zero_grad()
            loss.backward()
            adam.step()
        with torch.no_grad():
            found = float(weighted_loss(watched))
        if found < best:
            best, kept, late = found, {name: value.clone() for name, value in model.state_dict().items()}, 0
        elif (late := late + 1) == PATIENCE:
            break
    model.load_state_dict(kept)

    def scores(asked: NDArray[np.float32]) -> NDArray[np.float64]:
        with torch.no_grad():
            logits = model(torch.from_numpy(np.ascontiguousarray(asked, dtype=np.float32)))
        return np.asarray(logits.double().softmax(-1).numpy())

    return scores


def auc(groups: Codes, scores: NDArray[np.float64]) -> float:
    return float(np.mean([roc_auc_score(groups == g, scores[:, g]) for g in np.unique(groups)]))


def standardized(z: NDArray[np.floating]) -> NDArray[np.float32]:
    spread = z.std(axis=0)
    return np.asarray((z - z.mean(axis=0)) / np.where(spread > 1e-9, spread, 1), dtype=np.float32)
