"""The three stages as a user runs them: the same survivors whatever the machine does, and nothing lost when killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.projects import make_project, metrics, run_stages
from data.ledger import check_conservation
from data.samples.synthetic import TRUTH, make_synthetic
from data.shards import read_table

pytestmark = pytest.mark.slow
RECORDS = 600
# Expectations have tests of their own; importing their library takes longer than everything here.
KNOBS = {"clean.suites": [], "clean.input_suites": [], "score.learned.rows": 400, "score.labels.folds": 2}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "notes"
    make_synthetic(folder, RECORDS, 0.23, seed=3, exact=0.1, near=0.1)
    return folder


@pytest.fixture(scope="module")
def cleaned(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = make_project(tmp_path_factory.mktemp("plain") / "p", source, KNOBS)
    run_stages(project)
    return project


def survivors(project: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """The kept records sorted by id, as bytes, and what became of the others."""
    table = read_table(project / "artifacts/clean/records")
    table = table.take(pc.sort_indices(table["id"])).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    rows = pq.read_table(project / "artifacts/clean/ledger.parquet").to_pylist()
    return sink.getvalue().to_pybytes(), sorted(rows, key=lambda row: str(row["id"]))


def shuffled(source: Path, folder: Path) -> Path:
    lines = [line for line in (source / "notes.jsonl").read_bytes().split(b"\n") if line]
    random.Random(5).shuffle(lines)
    (folder / "notes").mkdir(parents=True)  # the same name: a record tells its source
    (folder / "notes/notes.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return folder / "notes"


@pytest.mark.parametrize(
    ("changes", "environment", "mixed"),
    [
        ({"ingest.shard_rows": 300, "data.workers": 2}, {"PYTHONHASHSEED": "1"}, False),
        ({"ingest.shard_rows": 85, "data.workers": 1}, {"PYTHONHASHSEED": "0"}, True),
    ],
    ids=["2 shards, 2 workers", "7 shards, shuffled"],
)
def test_survivors_are_the_same_bytes(
    source: Path,
    cleaned: Path,
    tmp_path: Path,
    changes: Mapping[str, Any],
    environment: Mapping[str, str],
    mixed: bool,
) -> None:
    project = make_project(tmp_path / "p", shuffled(source, tmp_path) if mixed else source, {**KNOBS, **changes})
    run_stages(project, environment=environment)
    assert survivors(project) == survivors(cleaned)


def test_noise_goes_and_what_is_sound_stays(source: Path, cleaned: Path) -> None:
    truth = {told["id"]: told for told in map(json.loads, (source / TRUTH).read_text().splitlines())}
    kept = set(read_table(cleaned / "artifacts/clean/records", ["id"])["id"].to_pylist())
    noisy = {row_id for row_id, told in truth.items() if told["noise"]}
    siblings = {row_id for row_id, told in truth.items() if told["sibling_of"]}
    assert len(noisy) == round(0.23 * RECORDS)
    assert len(noisy & kept) <= 0.04 * len(kept)
    assert siblings <= kept  # other numbers, other records
    copies = [told for told in truth.values() if told["duplicate"] == "exact"]
    assert copies and not any(told["id"] in kept and told["duplicate_of"] in kept for told in copies)


def test_another_threshold_decides_anew_and_measures_nothing(source: Path, cleaned: Path, tmp_path: Path) -> None:
    project = tmp_path / "p"
    shutil.copytree(cleaned, project, symlinks=True)
    before = (project / "artifacts/metrics/score.json").stat().st_mtime_ns
    text = (project / "params.yaml").read_text()
    assert "similarity: 0.8" in text
    (project / "params.yaml").write_text(text.replace("similarity: 0.8", "similarity: 1.0"))
    run_stages(project, ("clean",))
    assert metrics(project, "clean")["metrics"]["kept"] > metrics(cleaned, "clean")["metrics"]["kept"]
    assert (project / "artifacts/metrics/score.json").stat().st_mtime_ns == before


def test_killed_anywhere_it_ends_as_if_it_had_not_been(source: Path, cleaned: Path, tmp_path: Path) -> None:
    project = tmp_path / "p"
    shutil.copytree(cleaned, project, symlinks=True)
    for name in ("score", "clean"):
        shutil.rmtree(project / "artifacts" / name)
    rng, killed = random.Random(1), 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-m", "tasks.score"],
            cwd=project,
            env=os.environ | {"PYTHONPATH": str(project)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            time.sleep(rng.uniform(0.5, 5))
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
    assert killed
    run_stages(project, ("score", "clean"))
    assert survivors(project) == survivors(cleaned)
    check_conservation(metrics(project, "clean")["rows_in"], project / "artifacts/clean/ledger.parquet")
