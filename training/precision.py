"""In which numbers a run computes: one vocabulary, what a device can do of it, and the choice where it is left open.

bf16 products are 2-4 times faster where the CPU has AVX512-BF16 or AMX, and slower elsewhere or on tiny models; no
flag says which. The choice changes the last bits of the weights, so two runs on one machine must choose alike,
whoever else is busy: it is measured in CPU time of one thread, the plainer way stays unless the other one is clearly
faster, and narrow models, where it is a near tie, are not measured at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

import torch

from data.errors import DaymillError

Precision = Literal["fp32", "bf16", "fp16", "tf32", "fp8", "adaptive"]
Kernel = Literal["plain", "sdpa"]
Scaling = Literal["tensor", "row"]
Run = Callable[[Precision, Kernel], object]  # a small forward and backward pass
KERNELS: tuple[Kernel, ...] = ("plain", "sdpa")

# What activations are between layers, and every product that no layer's own mode covers; None: as the weights are.
AMBIENT: dict[Precision, torch.dtype | None] = {
    "fp32": None,
    "tf32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,
    "adaptive": torch.bfloat16,
}
NEEDS = {"tf32": (8, 0), "fp8": (8, 9)}  # CUDA compute capability

CLEARLY = 1.15  # times faster that bf16 or another kernel must be
NARROW = 192  # widths below it compute in fp32: products too small for bf16 to pay (0.9 of fp32's speed at 128)
ROUNDS = 3
HOPELESS = 4.0  # times slower than the fastest: tried once, if that took longer than PATIENCE_S
PATIENCE_S = 1.0


@dataclass(frozen=True)
class Choice:
    """How a run computes; kept in its state, so that a resumed run goes on the same way.

    `layers` names the modes that a layer may compute in, beginning with the first; a layer that it does not name
    computes in the run's own precision.
    """

    precision: Precision
    attention: Kernel
    reason: str
    layers: dict[str, list[str]] = field(default_factory=dict)
    scaling: Scaling = "tensor"  # of fp8


def autocast(precision: Precision, device: torch.device | str = "cpu") -> torch.autocast:
    """Products in the precision's own dtype with weights in fp32, on the device that the model is on."""
    dtype = AMBIENT[precision]
    return torch.autocast(torch.device(device).type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def native(precision: Precision, device: torch.device | str) -> bool:
    """Whether the device computes this precision itself; elsewhere its rounding can be emulated."""
    device = torch.device(device)
    if precision not in NEEDS:
        return True
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= NEEDS[precision]


def check_precision(precision: Precision | None, device: torch.device | str, emulate: bool) -> None:
    """Raises DaymillError for a precision that the device lacks, unless its rounding alone was asked for."""
    if precision is None or emulate:
        return
    if not native(precision, device):
        major, minor = NEEDS[precision]
        raise DaymillError(
            f"precision {precision} needs a GPU of compute capability {major}.{minor} or newer; this run computes on "
            f"{device}. Choose auto or bf16, or set emulate: true for its rounding without its speed"
        )
    if precision == "fp8" and find_spec("torchao") is None:
        raise DaymillError('precision fp8 needs torchao: pip install "daymill[fp8]"; or choose bf16')


def choose(
    run: Run, width: int, precision: Precision | None, attention: Kernel | None, device: torch.device | str = "cpu"
) -> Choice:
    """Settle what is left open (None) by measuring `run`, among the precisions that round and nothing else.

    The random state is put back, so that a probe does not change what a run draws.
    """
    if precision is not None and attention is not None:
        return Choice(precision, attention, "as configured")
    if width < NARROW:
        return Choice(precision or "fp32", attention or KERNELS[0], f"not measured below a width of {NARROW}")
    seconds: dict[tuple[Precision, Kernel], float] = {}
    with undisturbed():
        open_ones = [precision] if precision is not None else plain_precisions(device)
        candidates: list[tuple[Precision, Kernel]] = [(each, attention or KERNELS[0]) for each in open_ones]
        measure(run, candidates, seconds, device)
        chosen, kernel = preferred(candidates, seconds)
        if attention is None:
            measure(run, [(chosen, other) for other in KERNELS[1:]], seconds, device)
            chosen, kernel = preferred([(chosen, each) for each in KERNELS], seconds)
    times = (f"{p} {k} {1000 * s:.0f} ms" for (p, k), s in seconds.items())
    how = "on one thread" if torch.device(device).type == "cpu" else f"on {device}"
    return Choice(chosen, kernel, f"measured {how}: {', '.join(times)}")


def plain_precisions(device: torch.device | str) -> list[Precision]:
    """What `auto` chooses from, the plainest first."""
    return [each for each in ("fp32", "tf32", "bf16") if native(each, device)]  # type: ignore[arg-type]


@contextmanager
def undisturbed() -> Iterator[None]:
    """One thread, whose CPU time others do not change; random state and thread count are put back."""
    rng, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(rng)


@contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """fp32 products on CUDA with 10 bits of mantissa; the flag is the process's, so it is put back."""
    before = torch.backends.cuda.matmul.fp32_precision
    if enabled:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def measure(
    run: Run,
    candidates: list[tuple[Precision, Kernel]],
    seconds: dict[tuple[Precision, Kernel], float],
    device: torch.device | str = "cpu",
) -> None:
    """Seconds of the fastest of a few calls of each candidate, which take turns; the first call warms up.

    A candidate that is far behind is not called again: on a CPU without bf16 products a pass may take twenty times
    fp32's, and a minute.
    """
    tried: list[tuple[Precision, Kernel]] = list(candidates)
    for turn in range(ROUNDS + 1):
        told = {}
        for candidate in tried:
            with tf32(candidate[0] == "tf32"):
                start = clock(device)
                run(*candidate)
                told[candidate] = clock(device) - start
        limit = max(PATIENCE_S, HOPELESS * min(told.values()))
        tried = [candidate for candidate in tried if told[candidate] <= limit]
        for candidate, spent in told.items():
            if turn or candidate not in tried:
                seconds[candidate] = min(spent, seconds.get(candidate, spent))


def clock(device: torch.device | str) -> float:
    """CPU time of this thread; where the work is a GPU's, the time when it is through."""
    if torch.device(device).type != "cuda":
        return time.thread_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def preferred(
    candidates: list[tuple[Precision, Kernel]], seconds: dict[tuple[Precision, Kernel], float]
) -> tuple[Precision, Kernel]:
    """The first candidate, unless a later one is clearly faster."""
    best = candidates[0]
    for candidate in candidates[1:]:
        if seconds[candidate] * CLEARLY < seconds[best]:
            best = candidate
    return best
