"""How many operations a second a device could do at best: what the achieved ones are compared with.

On GPUs the vendor's figure for dense products (no sparsity, accumulation in fp32 where it matters), by the device's
name; on CPUs, and on GPUs that the table does not know, the fastest of many square products in the run's own precision
and number of threads.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import torch

TERA = 1e12
SIZES = {"cpu": (512, 1024), "cuda": (4096, 8192)}  # of the products; which one is fastest depends on the caches
SECONDS = 0.1  # for each size
LEAST = 3  # products of a size, whatever they take

# TFLOP/s of dense tensor-core products (fp32: of plain cores), from the data sheets and white papers of NVIDIA:
# Blackwell HGX (eight GPUs' figure over eight, halved for sparsity), H200 and H100 data sheets (halved for sparsity),
# A100 and A10 data sheets, L4, L40S data sheets (halved for sparsity), Ada, GA102 and GeForce Blackwell white papers
# (accumulation in fp32), V100 and T4 data sheets. None: the device has no such products.
TABLE: dict[str, dict[str, float]] = {
    "B200": {"fp8": 4500, "fp16": 2250, "bf16": 2250, "tf32": 1125, "fp32": 75},
    "H200": {"fp8": 1979, "fp16": 989, "bf16": 989, "tf32": 494.7, "fp32": 67},
    "H100 NVL": {"fp8": 1671, "fp16": 835.5, "bf16": 835.5, "tf32": 417.5, "fp32": 60},
    "H100 PCIe": {"fp8": 1513, "fp16": 756, "bf16": 756, "tf32": 378, "fp32": 51},
    "H100": {"fp8": 1979, "fp16": 989, "bf16": 989, "tf32": 494.7, "fp32": 67},
    "A100": {"fp16": 312, "bf16": 312, "tf32": 156, "fp32": 19.5},
    "A10": {"fp16": 125, "bf16": 125, "tf32": 62.5, "fp32": 31.2},
    "L40S": {"fp8": 733, "fp16": 362, "bf16": 362, "tf32": 183, "fp32": 91.6},
    "L4": {"fp8": 242.5, "fp16": 121, "bf16": 121, "tf32": 60, "fp32": 30.3},
    "V100": {"fp16": 125, "fp32": 15.7},
    "T4": {"fp16": 65, "fp32": 8.1},
    "RTX 5090": {"fp8": 419, "fp16": 209.5, "bf16": 209.5, "tf32": 104.8, "fp32": 104.8},
    "RTX 4090": {"fp8": 330.3, "fp16": 165.2, "bf16": 165.2, "tf32": 82.6, "fp32": 82.6},
    "RTX 3090": {"fp16": 71, "bf16": 71, "tf32": 35.6, "fp32": 35.6},
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}

MIXED = {"adaptive": "bf16"}  # what most products of a mixture are


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one device, and where the figure is from; kept in a run's state, so that its MFU keeps its scale."""

    flops: float
    source: str


def peak_of(device: torch.device, precision: str) -> Peak:
    """The peak of a device for products in `precision`. What neither the table nor DTYPES knows is measured in bf16."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        known = listed(name, MIXED.get(precision, precision))
        if known is not None:
            return Peak(known, f"data sheet of {name}, dense {MIXED.get(precision, precision)}")
    dtype = DTYPES.get(precision, torch.bfloat16)
    flops = probe(device, dtype)
    threads = f", threads: {torch.get_num_threads()}" if device.type == "cpu" else ""
    return Peak(flops, f"fastest square product measured, {str(dtype).removeprefix('torch.')}{threads}")


def listed(name: str, precision: str) -> float | None:
    """FLOP/s by the table; None for what it does not have. H100 PCIe is not H100, nor A10 A100."""
    words = name.replace("-", " ")
    for model in sorted(TABLE, key=len, reverse=True):
        if re.search(rf"\b{model}\b", words, re.IGNORECASE):
            found = TABLE[model].get(precision)
            return None if found is None else found * TERA
    return None


def probe(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of many square products; draws no random numbers."""
    best = 0.0
    with torch.no_grad():
        for size in SIZES[device.type]:
            a = torch.full((size, size), 0.5, dtype=dtype, device=device)
            b, out = a.clone(), a.clone()
            torch.mm(a, b, out=out)  # the first one may compile a kernel
            seconds, count, begun = float("inf"), 0, time.perf_counter()
            while count < LEAST or time.perf_counter() - begun < SECONDS:
                settle(device)
                start = time.perf_counter()
                torch.mm(a, b, out=out)
                settle(device)
                seconds, count = min(seconds, time.perf_counter() - start), count + 1
            best = max(best, 2 * size**3 / seconds)
    return best


def settle(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
