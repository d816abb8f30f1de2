"""Whether a running pipeline should be split anew: what its ranks were busy with, against the best split of that.

A stage may have become slower because of its layers (they compute something else than when they were measured) or of
its device (hot, shared, older); only the latter stays behind when layers move. Each rank therefore times a block that
is the same everywhere: what of a stage's time that does not explain is its layers' own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

import torch

from training.config import ModelConfig
from training.model import Block, attention_bias, rotary_tables
from training.parallel.partition import balanced, part_costs

WORTH = 1.05  # times faster that the costliest stage must become
STEPS = 3  # that must have been watched
ROUNDS = 5


@dataclass(frozen=True)
class Split:
    """A new split and what is expected of it."""

    sizes: tuple[int, ...]  # blocks of each stage
    costs: tuple[float, ...]  # seconds of each block on the fastest device
    imbalance: float  # the busiest stage over the mean, as it was
    gain: float  # times faster that the costliest stage becomes

    def told(self, before: Sequence[int]) -> str:
        blocks = [" + ".join(map(str, sizes)) for sizes in (before, self.sizes)]
        return (
            f"stages of {blocks[0]} blocks become {blocks[1]}: one was busy {self.imbalance:.2f} times as long as "
            f"the mean; expected {self.gain:.2f} times as fast"
        )


def resplit(
    sizes: Sequence[int],
    costs: Sequence[float],
    busy: Sequence[float],
    reference: Sequence[float],
    limit: float,
) -> Split | None:
    """Another split, where the busiest stage's time is more than `limit` times the mean and another is worth it.

    `costs` are what each block was last known to take, `busy` what each stage did take, `reference` what the same
    block takes on each stage's device; in one unit each. None where all should stay as it is.
    """
    mean = sum(busy) / len(busy)
    if not mean or max(busy) <= limit * mean:
        return None
    slowness = [each / min(reference) for each in reference]
    ends = list(accumulate(sizes))
    found: list[float] = []
    for end, size, took, times in zip(ends, sizes, busy, slowness, strict=True):
        known = costs[end - size : end]
        found += [cost * took / times / sum(known) for cost in known]
    split = balanced(found, len(sizes), slowness)
    gain = max(part_costs(found, sizes, slowness)) / max(part_costs(found, split, slowness))
    if gain < WORTH:
        return None
    return Split(tuple(split), tuple(found), max(busy) / mean, gain)


def reference_seconds(config: ModelConfig, rows: int, tokens: int) -> float:
    """Seconds that a forward and a backward pass of the model's first block take here, on made-up input."""
    with torch.random.fork_rng(devices=[]):
        block = Block(config, config.layers[0])
        x = torch.randn(rows, tokens, config.width, requires_grad=True)
    rotary = None
    if config.position == "rotary":
        rotary = rotary_tables(torch.arange(tokens)[None], config.head_dim, config.rope_theta, x.dtype)
    bias = attention_bias(tokens, config.causal, None, None, x.device)
    seconds = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        block(x, bias, rotary).sum().backward()
        seconds.append(time.perf_counter() - begun)
    return median(seconds[1:])
