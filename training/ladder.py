"""A ladder of sizes: the same recipe at growing depth, and whether the loss of the next rung can be told beforehand.

Each rung trains in proportion to its parameters (Hoffmann et al., arXiv:2203.15556), so compute grows with their
square, and the losses follow L = a + b C^-c (Kaplan et al., arXiv:2001.08361). A recipe whose rungs lie on such a curve
can be tuned small; one that leaves it is broken at that size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.errors import DaymillError
from data.tokens import TokenShard
from training.config import ModelConfig
from training.device import best_device
from training.knobs import PretrainConfig
from training.listeners import Bar
from training.model import Transformer
from training.pretrain import pretrain

PER_PARAMETER_AND_TOKEN = 6  # floating-point operations of a forward and a backward pass


@dataclass(frozen=True)
class Rung:
    """One size: what it is trained on, and once trained what came out."""

    depth: int
    parameters: int
    tokens: int
    loss: float = 0.0  # on the validation texts
    seconds: float = 0.0

    @property
    def compute(self) -> float:
        """Floating-point operations."""
        return float(PER_PARAMETER_AND_TOKEN) * self.parameters * self.tokens


@dataclass(frozen=True)
class Curve:
    """L = a + b (C / unit)^-c."""

    a: float
    b: float
    c: float
    unit: float

    def at(self, compute: float) -> float:
        return float(self.a + self.b * (compute / self.unit) ** -self.c)


def plan(depths: Sequence[int], tokens: int, shape: Callable[[int], ModelConfig]) -> list[Rung]:
    """The rungs, the largest of which trains on `tokens`, the others in proportion to their parameters; `shape` is the
    model of a depth."""
    with torch.device("meta"):
        counts = [sum(p.numel() for p in Transformer(shape(depth)).parameters()) for depth in depths]
    return [
        Rung(depth, count, max(1, round(tokens * count / counts[-1])))
        for depth, count in zip(depths, counts, strict=True)
    ]


def climb(
    rung: Rung,
    model: ModelConfig,
    config: PretrainConfig,
    train: TokenShard,
    valid: TokenShard,
    folder: Path,
    data: str,
    progress: Bar | None = None,
) -> Rung:
    """Train one rung, or read what it gave before: its file's name is the hash of all that it depends on.

    `data` stands for the content of both shards. A killed run goes on where its state in `folder` left off.
    """
    run = replace(config, tokens=rung.tokens, evaluations=1)
    key = hashlib.sha256(json.dumps([model.to_json(), asdict(run), data], sort_keys=True).encode()).hexdigest()[:16]
    path, state = folder / f"{key}.json", folder / f"{key}.safetensors"
    if path.exists():
        return Rung(**json.loads(path.read_text(encoding="utf-8")))
    torch.manual_seed(run.seed)
    trained = Transformer(model).to(best_device())
    done = pretrain(trained, train, valid, run, state=state, progress=progress)
    found = replace(rung, loss=done.last("valid/loss"), seconds=round(done.seconds, 1))
    write_json(path, asdict(found))
    state.unlink(missing_ok=True)
    return found


def fit(rungs: Sequence[Rung]) -> Curve:
    """The curve through some rungs that is off least in squares: two give a = 0, three and more all of it.

    The exponent is searched on a grid, the rest follows by least squares; a and b are not below 0. Raises DaymillError
    for one rung.
    """
    if len(rungs) < 2:
        raise DaymillError("a curve needs at least two rungs")
    compute = np.array([rung.compute for rung in rungs])
    loss = np.array([rung.loss for rung in rungs])
    unit = float(compute[0])
    x = compute / unit
    if len(rungs) == 2:
        c = float(np.log(loss[0] / loss[1]) / np.log(x[1] / x[0]))
        return Curve(0.0, float(loss[0]), c, unit)
    best: tuple[float, Curve] | None = None
    for c in np.geomspace(0.01, 2.0, 400):
        a, b = line(x**-c, loss)
        off = float(((a + b * x**-c - loss) ** 2).sum())
        if best is None or off < best[0]:
            best = off, Curve(a, b, float(c), unit)
    assert best is not None
    return best[1]


def line(x: Any, y: Any) -> tuple[float, float]:
    """a and b, neither below 0, of the straight line a + b x with the least squares."""
    across = x - x.mean()
    b = max(0.0, float((across * (y - y.mean())).sum() / (across**2).sum()))
    a = float(y.mean() - b * x.mean())
    if a < 0:
        return 0.0, float((x * y).sum() / (x**2).sum())
    return a, b


def predictions(rungs: Sequence[Rung]) -> list[float | None]:
    """What the rungs below said of each; None for the first two, which have too few below them."""
    return [fit(rungs[:at]).at(rung.compute) if at >= 2 else None for at, rung in enumerate(rungs)]


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.writing")
    beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


OnRung = Callable[[Rung, float | None], None]
