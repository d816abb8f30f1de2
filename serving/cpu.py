"""How many threads this process may use: what the container grants, shared among sessions."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


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
