"""score and clean killed with -9 anywhere: what stands under its name is whole, and the next run ends with the bytes of
an uninterrupted one and loses no record."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.ledger import Ledger
from data.shards import RECORD_SCHEMA, ShardWriter

ROOT = Path(__file__).resolve().parents[2]
POINTS = 4
ROWS = 260

# Forks a process a run, so that the imports are paid once. A run counts the calls of our own functions and ends itself
# with SIGKILL at a given one: a point that does not depend on the machine's speed and may lie anywhere.
SERVER = r"""
import json, os, signal, sys
from pathlib import Path
from tasks.clean import Clean, main as clean
from tasks.params import load
from tasks.score import Score, main as score
from tasks.stage import Context

warm = False
HERE = os.getcwd()
OURS = tuple(os.getcwd() + room for room in ("/data/", "/tasks/"))

def one(order):
    os.chdir(order["folder"])
    calls = 0
    def count(frame, event, _):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls += 1
            if calls == order["kill_at"]:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(count)
    for name, model, main in (("score", Score, score), ("clean", Clean, clean)):
        work = Path("work", name)
        work.mkdir(parents=True, exist_ok=True)
        main(load(name, model), Context(name, Path.cwd(), work, (Path("artifacts/score"), Path("artifacts/clean"))))
    sys.setprofile(None)
    Path("calls").write_text(str(calls))
    os.chdir(HERE)

answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    if not warm:  # once, before anything is forked: modules, compiled functions
        one(json.loads(line) | {"kill_at": 0})
        warm = True
        print(0, file=answers, flush=True)
        continue
    if not (child := os.fork()):
        try:
            one(json.loads(line))
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
"""


def write_records(folder: Path) -> None:
    """Records of every fate: kept, empty, noise, equal and nearly equal ones, contradicted and missing labels."""
    draw = random.Random(3)
    words = [f"{first}{last}" for first in ("har", "sta", "mor", "let") for last in ("bor", "tion", "ning", "ter")]
    rows: list[dict[str, Any]] = []
    for number in range(ROWS):
        text = " ".join(draw.choices(words, k=40)) + "."
        row = {"id": f"r{number:03d}", "text": text, "label": draw.choice(["a", "b", None]), "source": "demo/a.jsonl"}
        kind = number % 13
        if kind == 1:
            row["text"] = "" if number % 2 else "!!! ??? *** ###"
        elif kind == 2 and number > 13:
            row["text"] = rows[number - 5]["text"].upper()
        elif kind == 3 and number > 13:
            row["text"] = rows[number - 9]["text"] + " thanks"
        rows.append(row | {"extra": "{}"})
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in RECORD_SCHEMA.names}
    with ShardWriter(folder / "artifacts/ingest/records", shard_rows=70) as writer:
        writer.write(pa.table(columns, schema=RECORD_SCHEMA))
    with Ledger(folder / "artifacts/ingest/ledger.parquet") as ledger:
        for row in rows:
            ledger.add(source=row["source"], verdict="kept", stage="ingest", id=row["id"])


def outputs(folder: Path) -> dict[str, bytes]:
    """What stands under its name; what was being written is hidden, and the next run removes it."""
    found = [path for path in (folder / "artifacts").rglob("*") if path.is_file()]
    named = [(path.relative_to(folder), path) for path in found if "ingest" not in path.parts]
    return {
        place.as_posix(): path.read_bytes()
        for place, path in named
        if not any(part.endswith(".writing") for part in place.parts)
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_points_nothing_is_lost(tmp_path: Path) -> None:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")  # none to fork
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, cwd=ROOT, env=os.environ | one_thread, text=True, **pipes)
    assert server.stdin is not None and server.stdout is not None

    def run(name: str, kill_at: int = 0) -> int:
        folder = tmp_path / name
        if not folder.exists():
            write_records(folder)
            shutil.copytree(ROOT / "expectations", folder / "expectations")
            params = (ROOT / "params.yaml").read_text(encoding="utf-8")
            knobs = {
                "  workers: null ": "  workers: 1 ",
                "    rows: 4000 ": "    rows: 0 ",
            }  # in one process; learned: off
            for shipped, ours in knobs.items():
                assert params.count(shipped) == 1
                params = params.replace(shipped, ours)
            (folder / "params.yaml").write_text(params, encoding="utf-8")
        server.stdin.write(json.dumps({"folder": str(folder), "kill_at": kill_at}) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    try:
        assert run("whole") == 0
        expected = outputs(tmp_path / "whole")
        calls = int((tmp_path / "whole/calls").read_text())
        ledger = pq.read_table(tmp_path / "whole/artifacts/clean/ledger.parquet")
        assert ledger.num_rows == ROWS
        assert len(set(ledger["rule"].to_pylist())) >= 4
        draw = random.Random(0)
        published = 0
        for number, point in enumerate(sorted(draw.randint(1, calls) for _ in range(POINTS))):
            name = f"killed{number}"
            assert run(name, point) == -9
            left = outputs(tmp_path / name)
            assert all(expected[place] == content for place, content in left.items())
            published += bool(left)
            assert run(name) == 0
            assert outputs(tmp_path / name) == expected
        assert published > 0
    finally:
        server.stdin.close()
        server.wait()
