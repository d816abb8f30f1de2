"""bf16 and attention kernels are chosen by measuring them on this machine with the shapes at hand.

bf16 products are 2-4 times faster where the CPU has AVX512-BF16 or AMX, and slower elsewhere or on tiny models; no
flag says which, so the start of a run tries both for a moment. A resumed run keeps the choice that it began with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

Kernel = Literal["plain", "sdpa"]
KERNELS: tuple[Kernel, ...] = ("plain", "sdpa")


def autocast(enabled: bool) -> torch.autocast:
    """bf16 products with fp32 weights; bf16 has fp32's range, so there is no loss scale."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


@dataclass(frozen=True)
class Trial:
    """Seconds of the fastest call of one candidate."""

    name: str
    seconds: float


def fastest(candidates: dict[str, Callable[[], object]], rounds: int = 3) -> tuple[str, list[Trial]]:
    """The fastest candidate and all times; they take turns, so that a busy moment hits them alike."""
    best = dict.fromkeys(candidates, float("inf"))
    for run in candidates.values():
        run()  # warm-up: allocations, kernel selection
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return min(best, key=lambda name: best[name]), [Trial(name, seconds) for name, seconds in best.items()]


@dataclass(frozen=True)
class Choice:
    """How a run computes; kept in its state, so that a resumed run goes on the same way."""

    bf16: bool
    attention: Kernel
    reason: str


def choose(
    run: Callable[[bool, Kernel], object],
    bf16: bool | None,
    attention: Kernel | None,
) -> Choice:
    """Measure `run(bf16, attention)`, a forward and backward pass, for every combination that is left open.

    The random state is put back, so that a probe does not change what a run draws.
    """
    kinds = {
        f"{'bf16' if half else 'fp32'} {kernel}": (half, kernel)
        for half in ([False, True] if bf16 is None else [bf16])
        for kernel in (KERNELS if attention is None else (attention,))
    }
    if len(kinds) == 1:
        half, kernel = next(iter(kinds.values()))
        return Choice(half, kernel, "as configured")
    rng = torch.get_rng_state()
    name, trials = fastest({name: partial(run, *kind) for name, kind in kinds.items()})
    torch.set_rng_state(rng)
    return Choice(*kinds[name], f"measured: {describe(trials)}")


def describe(trials: Iterable[Trial]) -> str:
    return ", ".join(f"{trial.name} {1000 * trial.seconds:.0f} ms" for trial in trials)
