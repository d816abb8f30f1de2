"""An asked-for precision is held to its promise: where it is not faster than fp32 on this device, it is not used.

Each shape of linear layer (rows x inputs x outputs, forward and backward) is timed in every mode that the precision
may use; a layer begins with the fastest. Then a whole pass is timed against fp32's, for what lies between the layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from training.fp8 import fits
from training.mixed import Mode, give_mode, layers_of, make_plain, set_modes
from training.precision import (
    AMBIENT,
    ROUNDS,
    Choice,
    Kernel,
    Precision,
    Run,
    Scaling,
    check_precision,
    choose,
    clock,
    measure,
    native,
    undisturbed,
)

SURELY = 1.05  # times faster that a mode must be: what a tie would lose in noise
MAX_ROWS = 4096  # rows that a layer is timed with

# What the layers of a precision may compute in, the cheapest first, where the device has it.
OFFERED: dict[Precision, tuple[Mode, ...]] = {
    "fp32": ("fp32",),
    "tf32": ("tf32",),
    "bf16": ("bf16", "fp32"),
    "fp16": ("fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp32"),
    "adaptive": ("fp8", "fp16", "bf16", "fp32"),
}
Timer = Callable[[nn.Linear, int, Mode, Choice], float]


def settle(
    model: nn.Module,
    run: Run,
    width: int,
    rows: int,
    precision: Precision | None,
    attention: Kernel | None,
    *,
    emulate: bool = False,
    scaling: Scaling = "tensor",
    timer: Timer | None = None,
) -> Choice:
    """How a model computes that sees `rows` token places at once; `run` is a small forward and backward pass of it.

    `emulate` asks for a precision's rounding whatever it costs, also where the device lacks it. Raises DaymillError
    for a precision that the device lacks.
    """
    device = next(model.parameters()).device
    check_precision(precision, device, emulate)
    chosen = replace(choose(run, width, precision, attention, device), scaling=scaling)
    if precision in (None, "fp32"):
        return chosen
    if emulate:
        every: dict[str, list[str]] = (
            {name: list(OFFERED[precision]) for name, _ in layers_of(model)} if precision == "adaptive" else {}
        )
        lacking = [mode for mode in OFFERED[precision] if not native(mode, device)]
        how = f", {' and '.join(lacking)} emulated" if lacking else ""
        return replace(chosen, layers=every, reason=f"{precision} as configured, whatever it costs{how}")
    chosen = replace(chosen, layers=modes_of(model, chosen, rows, timer or seconds_of))
    return held_to_fp32(model, run, chosen)


def modes_of(model: nn.Module, choice: Choice, rows: int, timer: Timer) -> dict[str, list[str]]:
    """For `adaptive` the modes of every layer; else those of the layers whose first is not the precision's own."""
    if choice.precision == "tf32":  # one flag of the whole process
        return {}
    device = next(model.parameters()).device
    known: dict[tuple[int, int, bool], list[str]] = {}
    found = {}
    for name, layer in layers_of(model):
        shape = (layer.in_features, layer.out_features, fits(layer))
        if shape not in known:
            known[shape] = offered(layer, choice, rows, timer, device)
        own = choice.precision != "adaptive" and known[shape][0] == choice.precision
        if not own:
            found[name] = list(known[shape])
    return found


def offered(layer: nn.Linear, choice: Choice, rows: int, timer: Timer, device: torch.device) -> list[str]:
    """The modes that beat fp32 for this shape and fp32 itself, in the order of OFFERED; not `adaptive`: the fastest."""
    modes = [mode for mode in OFFERED[choice.precision] if native(mode, device) and (mode != "fp8" or fits(layer))]
    with undisturbed():
        seconds = {mode: timer(layer, min(rows, MAX_ROWS), mode, choice) for mode in modes}
    faster = [mode for mode in modes if mode == "fp32" or seconds[mode] * SURELY < seconds["fp32"]]
    if choice.precision == "adaptive":
        return list(faster)
    return [min(faster, key=lambda mode: seconds[mode])]


def seconds_of(layer: nn.Linear, rows: int, mode: Mode, choice: Choice) -> float:
    """Seconds of a forward and backward pass in this mode of a layer of this shape: the fastest of a few, the first of
    which warms up. fp32 is timed on fp32 activations, as a run in fp32 would compute."""
    device = layer.weight.device
    twin = nn.Linear(layer.in_features, layer.out_features, bias=False, device=device)
    moded = give_mode(twin, mode, choice.scaling)
    dtype = torch.float32 if mode == "fp32" else AMBIENT[choice.precision]
    x = torch.randn(rows, layer.in_features, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn(rows, layer.out_features, device=device, dtype=dtype)
    best = float("inf")
    for turn in range(ROUNDS + 1):
        start = clock(device)
        moded(x).backward(grad)
        spent = clock(device) - start
        if turn:
            best = min(best, spent)
    return best


def held_to_fp32(model: nn.Module, run: Run, choice: Choice) -> Choice:
    """The choice, or fp32 where the whole pass is not faster than fp32's."""
    device = next(model.parameters()).device
    seconds: dict[tuple[Precision, Kernel], float] = {}

    def moded(precision: Precision, kernel: Kernel) -> None:
        if precision == "fp32":
            make_plain(model)
        else:
            set_modes(model, choice)
        run(precision, kernel)

    try:
        with undisturbed():
            measure(moded, [("fp32", choice.attention), (choice.precision, choice.attention)], seconds, device)
    finally:
        make_plain(model)
    plain, ours = seconds["fp32", choice.attention], seconds[choice.precision, choice.attention]
    told = f"a pass takes {1000 * ours:.0f} ms, {1000 * plain:.0f} in fp32"
    if ours * SURELY >= plain:
        reason = f"{choice.precision} was asked for and is not faster than fp32 here ({told}): fp32 it is"
        return Choice("fp32", choice.attention, reason)
    others = Counter(modes[0] for modes in choice.layers.values())
    begin = ", ".join(f"{count} layers in {mode}" for mode, count in others.items())
    fastest = f"; {begin}, the fastest for their shapes" if begin else ""
    return replace(choice, reason=f"{choice.precision} as configured: {told}{fastest}")
