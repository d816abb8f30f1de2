"""What this CPU can do, and why INT8 may be wrong on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")

# Instructions that decide which kernels ONNX Runtime and OpenVINO pick, and so the last bits of an answer.
RELEVANT = (
    "avx2", "avx512f", "avx512bw", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8",  # x86
    "asimddp", "i8mm", "bf16", "sve",  # ARM
)  # fmt: skip
VNNI = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})


def cpu_features() -> tuple[str, ...]:
    """The relevant instruction sets of this CPU, sorted; empty where the system does not tell."""
    return tuple(sorted(set(" ".join(_cpuinfo("flags", "Features")).split()) & set(RELEVANT)))


def int8_objection(features: Collection[str], machine: str | None = None, reduced_range: bool = False) -> str | None:
    """Why this CPU must not run an INT8 graph of full range, or None where it may.

    Without VNNI, x86 kernels add two uint8 x int8 products in 16 bits and saturate (onnxruntime#5849): answers are
    wrong without a warning. Weights of 7 bits (`reduced_range`) never saturate; ARM accumulates in 32 bits.
    """
    if reduced_range or (machine or platform.machine()).lower() not in ("x86_64", "amd64") or VNNI & set(features):
        return None
    found = ", ".join(sorted(features)) or "none that we know"
    return f"INT8 of full range saturates on a CPU without VNNI (this one has {found})"


def describe_machine(threads: int) -> dict[str, Any]:
    """Where figures were measured: CPU, instruction sets, cores, threads used."""
    names = _cpuinfo("model name")
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "features": list(cpu_features()),
        "cores": os.cpu_count(),
        "threads": threads,
    }


def _cpuinfo(*keys: str) -> list[str]:
    """The first value of one of the keys in /proc/cpuinfo, or nothing."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in keys:
            return [value.strip()]
    return []
