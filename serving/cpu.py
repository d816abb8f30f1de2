"""What this machine may spend and can do: CPUs granted by the cgroup, and the instructions that kernels care about."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CPUINFO = Path("/proc/cpuinfo")
MEMBERSHIP = Path("/proc/self/cgroup")

# Instructions that decide which kernels ONNX Runtime and OpenVINO pick, and so the last bits of an answer.
RELEVANT = (
    "avx2", "avx512f", "avx512bw", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8",  # x86
    "asimddp", "i8mm", "bf16", "sve",  # ARM
)  # fmt: skip
VNNI = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})


def cpu_quota() -> int:
    """Whole CPUs this process may use: its affinity, cut by the cgroup's quota (v2, then v1); at least 1.

    Runtimes count the machine's cores and oversubscribe a container (onnxruntime#10273).
    """
    if hasattr(os, "sched_getaffinity"):
        cpus = float(len(os.sched_getaffinity(0)))
    else:
        cpus = float(os.cpu_count() or 1)
    quotas = [quota for quota in (_quota_v2(), _quota_v1()) if quota is not None]
    return max(1, int(min([cpus, *quotas])))


def split_threads(total: int, sessions: int) -> list[int]:
    """Threads of each session, adding up to `total` (to `sessions` where there are more sessions than CPUs)."""
    if sessions < 1:
        raise ValueError(f"{sessions} sessions; expected at least 1")
    base, extra = divmod(max(total, sessions), sessions)
    return [base + (at < extra) for at in range(sessions)]


def cpu_features() -> tuple[str, ...]:
    """The relevant instruction sets of this CPU, sorted; empty where the system does not tell."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return tuple(sorted(set(value.split()) & set(RELEVANT)))
    return ()


def int8_objection(features: Collection[str], machine: str | None = None, reduced_range: bool = False) -> str | None:
    """Why this CPU must not run an INT8 graph of full range, or None where it may.

    Without VNNI, x86 kernels add two uint8 x int8 products in 16 bits and saturate (onnxruntime#5849): answers are
    wrong without a warning. Weights of 7 bits (`reduced_range`) never saturate; ARM accumulates in 32 bits.
    """
    if reduced_range or (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return None
    if VNNI & set(features):
        return None
    found = ", ".join(sorted(features)) or "none that we know"
    return f"INT8 would saturate in 16 bits on this CPU: it has no VNNI (found: {found})"


def _quota_v2() -> float | None:
    """CPUs of cpu.max, the tightest from this process's group up to the root."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    group = CGROUP / own.strip("/")
    quotas = []
    for folder in (group, *group.parents):
        if folder == CGROUP.parent:
            break
        limit, _, period = _read(folder / "cpu.max").partition(" ")
        if limit.isdigit() and period.strip().isdigit():
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def _quota_v1() -> float | None:
    limit, period = (_read(CGROUP / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(limit) / int(period) if limit.isdigit() and period.isdigit() else None  # -1 means no limit


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
