"""The largest batch by trial: the search finds it, and a child that takes too much is an answer, not an accident."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from data.errors import DaymillError
from training.batch_trial import OUT_OF_MEMORY, Job
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.largest_batch import (
    FINE,
    Try,
    judged,
    largest,
    left_of_cgroups,
    memory_to_spare,
    search,
    split_of,
    trial,
    watch,
)


@pytest.mark.parametrize("holds", [1, 2, 3, 7, 16, 17, 31, 100, 255, 256, 1000])
def test_the_search_finds_what_fits(holds: int) -> None:
    tries = search(lambda rows: Try(rows, rows <= holds, 1.0, 1.0), most=256)
    best = largest(tries)
    assert best is not None
    assert min(holds, 256) * FINE / (FINE + 1) - 1 < best.rows <= min(holds, 256)
    assert holds > FINE or best.rows == holds, "small answers are exact"
    assert len({each.rows for each in tries}) == len(tries) <= 16


def test_nothing_fits() -> None:
    tries = search(lambda rows: Try(rows, False, 1.0, 0.0, "over the limit"), most=256)
    assert len(tries) == 1 and largest(tries) is None


@pytest.mark.parametrize(
    ("together", "fits", "split"), [(64, 16, (16, 4)), (64, 15, (8, 8)), (8, 100, (8, 1)), (7, 5, (1, 7))]
)
def test_the_update_keeps_its_rows(together: int, fits: int, split: tuple[int, int]) -> None:
    assert split_of(together, fits) == split


def test_every_end_of_a_child_is_told_apart() -> None:
    told = json.dumps({"peak_mib": 300.0, "tokens_per_s": 50.0})
    assert judged(4, 0, 290.0, 400, told, "") == Try(4, True, 300.0, 50.0)
    assert judged(4, 0, 290.0, 299, told, "").why == "over the limit"
    assert judged(4, -9, 290.0, 400, "", "") == Try(4, False, 290.0, 0.0, "killed by the system for its memory")
    assert judged(4, OUT_OF_MEMORY, 290.0, 400, "", "").why == "an allocation was refused"
    with pytest.raises(DaymillError, match=r"4 rows broke: .*no such knob"):
        judged(4, 1, 290.0, 400, "", "Traceback\nno such knob\n")


GREEDY = "import time; x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(60)"


def test_a_child_over_the_limit_is_seen_at_once() -> None:
    begun = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", GREEDY], text=True)
    try:
        peak, why = watch(child, 100, longest_s=30)
    finally:
        child.kill()
        child.wait()
    assert why == "over the limit" and peak > 100 and time.monotonic() - begun < 20


def test_a_child_that_takes_too_long_does_not_fit() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], text=True)
    try:
        assert watch(child, 1000, longest_s=0.2)[1].startswith("took longer than")
    finally:
        child.kill()
        child.wait()


def job(limit_mib: int, length: int = 16) -> Job:
    config = PretrainConfig(tokens=1, length=length, precision="fp32", attention="plain")
    return Job(ModelConfig.from_depth(1, 300, max_len=length).to_json(), asdict(config), limit_mib, threads=1)


@pytest.mark.slow
def test_a_real_try_tells_its_memory_and_speed() -> None:
    found = trial(job(4000), 2, 100)
    assert found.fits and 100 < found.peak_mib < 4000 and found.tokens_per_s > 0


@pytest.mark.slow
def test_an_allocation_beyond_the_limit_is_refused_before_it_hurts() -> None:
    """Scores of 2 heads x 4,096 x 4,096 for each of 64 rows are 8.6 GB at once."""
    found = trial(job(1500, length=4096), 64, 100)
    assert not found.fits and found.why in ("an allocation was refused", "over the limit")
    assert found.peak_mib < 4000


def test_a_container_may_have_less_than_the_machine(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/box/inner\n")
    inner = tmp_path / "fs/box/inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("5\n")
    (inner.parent / "memory.max").write_text("1000\n")
    (inner.parent / "memory.current").write_text("700\n")
    (inner.parent / "memory.stat").write_text("anon 400\ninactive_file 200\n")
    assert left_of_cgroups(tmp_path / "fs", own) == [500]
    old = tmp_path / "old"
    old.write_text("4:memory:/box\n3:cpu:/box\n")
    group = tmp_path / "fs/memory/box"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("1000")
    (group / "memory.usage_in_bytes").write_text("400")
    assert left_of_cgroups(tmp_path / "fs", old) == [600]
    assert left_of_cgroups(tmp_path / "fs", tmp_path / "none") == []
    assert memory_to_spare() > 0
