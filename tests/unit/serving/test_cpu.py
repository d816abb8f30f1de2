"""CPU quota: what a container grants counts, not what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving import cpu


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 CPUs whose cgroup files are in tmp_path/cgroup."""
    monkeypatch.setattr(cpu, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(cpu, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    (tmp_path / "cgroup" / "cpu").mkdir(parents=True)
    (tmp_path / "membership").write_text("0::/pod/container\n")
    return tmp_path


def group(machine: Path, name: str, limit: str) -> None:
    folder = machine / "cgroup" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(limit + "\n")


def test_no_quota_gives_the_affinity(machine: Path) -> None:
    group(machine, "pod/container", "max 100000")
    assert cpu.cpu_quota() == 16


def test_v2_quota_of_the_group(machine: Path) -> None:
    group(machine, "pod/container", "250000 100000")
    assert cpu.cpu_quota() == 2


def test_v2_takes_the_tightest_group_up_to_the_root(machine: Path) -> None:
    group(machine, "pod/container", "800000 100000")
    group(machine, "pod", "300000 100000")
    assert cpu.cpu_quota() == 3


def test_v1_quota(machine: Path) -> None:
    (machine / "cgroup/cpu/cpu.cfs_quota_us").write_text("400000\n")
    (machine / "cgroup/cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cpu.cpu_quota() == 4


def test_v1_without_limit(machine: Path) -> None:
    (machine / "cgroup/cpu/cpu.cfs_quota_us").write_text("-1\n")
    (machine / "cgroup/cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cpu.cpu_quota() == 16


def test_less_than_one_cpu_is_one_thread(machine: Path) -> None:
    group(machine, "pod/container", "50000 100000")
    assert cpu.cpu_quota() == 1


@pytest.mark.parametrize(
    ("total", "sessions", "expected"), [(2, 2, [1, 1]), (5, 2, [3, 2]), (2, 1, [2]), (2, 3, [1] * 3)]
)
def test_threads_of_sessions_add_up(total: int, sessions: int, expected: list[int]) -> None:
    assert cpu.split_threads(total, sessions) == expected
