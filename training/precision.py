"""bf16 and the attention kernel are chosen by measuring them on this machine with the shapes at hand.

bf16 products are 2-4 times faster where the CPU has AVX512-BF16 or AMX, and slower elsewhere or on tiny models; no
flag says which. The choice changes the last bits of the weights, so two runs on one machine must choose alike,
whoever else is busy: it is measured in CPU time of one thread, the plainer way stays unless the other one is clearly
faster, and narrow models, where it is a near tie, are not measured at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

Kernel = Literal["plain", "sdpa"]
KERNELS: tuple[Kernel, ...] = ("plain", "sdpa")

CLEARLY = 1.15  # times faster that bf16 or another kernel must be
NARROW = 192  # widths below it compute in fp32: products too small for bf16 to pay (0.9 of fp32's speed at 128)
ROUNDS = 3


def autocast(enabled: bool) -> torch.autocast:
    """bf16 products with fp32 weights; bf16 has fp32's range, so there is no loss scale."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


@dataclass(frozen=True)
class Choice:
    """How a run computes; kept in its state, so that a resumed run goes on the same way."""

    bf16: bool
    attention: Kernel
    reason: str


def choose(run: Callable[[bool, Kernel], object], width: int, bf16: bool | None, attention: Kernel | None) -> Choice:
    """Settle what is left open (None) by measuring `run(bf16, attention)`, a small forward and backward pass.

    The random state is put back, so that a probe does not change what a run draws.
    """
    if bf16 is not None and attention is not None:
        return Choice(bf16, attention, "as configured")
    if width < NARROW:
        return Choice(bool(bf16), attention or KERNELS[0], f"not measured below a width of {NARROW}")
    rng, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds: dict[tuple[bool, Kernel], float] = {}
        precisions = (False, True) if bf16 is None else (bf16,)
        measure(run, [(half, attention or KERNELS[0]) for half in precisions], seconds)
        half, kernel = preferred(list(seconds), seconds)
        if attention is None:
            measure(run, [(half, other) for other in KERNELS[1:]], seconds)
            half, kernel = preferred([(half, each) for each in KERNELS], seconds)
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(rng)
    times = (f"{'bf16' if h else 'fp32'} {k} {1000 * s:.0f} ms" for (h, k), s in seconds.items())
    return Choice(half, kernel, f"measured on one thread: {', '.join(times)}")


def measure(
    run: Callable[[bool, Kernel], object],
    candidates: list[tuple[bool, Kernel]],
    seconds: dict[tuple[bool, Kernel], float],
) -> None:
    """CPU seconds of the fastest of a few calls of each candidate, which take turns; the first call warms up."""
    for turn in range(ROUNDS + 1):
        for candidate in candidates:
            start = time.thread_time()
            run(*candidate)
            spent = time.thread_time() - start
            if turn:
                seconds[candidate] = min(spent, seconds.get(candidate, spent))


def preferred(candidates: list[tuple[bool, Kernel]], seconds: dict[tuple[bool, Kernel], float]) -> tuple[bool, Kernel]:
    """The first candidate, unless a later one is clearly faster."""
    best = candidates[0]
    for candidate in candidates[1:]:
        if seconds[candidate] * CLEARLY < seconds[best]:
            best = candidate
    return best
