"""Ingest killed with -9 anywhere goes on behind its last commit and ends with the bytes of an uninterrupted run."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from data.journal import CommitEvery, Damaged, Journal

ROOT = Path(__file__).resolve().parents[2]
POINTS = 20

# Forks a process a run, so that the imports are paid once. A run counts the calls of our own functions and ends itself
# with SIGKILL at a given one: a point that does not depend on the machine's speed and may lie anywhere.
SERVER = r"""
import json, os, signal, sys
from pathlib import Path
import data.fast_intake as fast_intake
import data.intake as intake
import data.readers.stream as stream
from data.ingest import Places, ingest
from data.journal import CommitEvery
from data.readers.item import Limits
from data.records import source_files
from data.validate import field_map

stream.BLOCK = 25_000
fast_intake.CHUNK, fast_intake.FIRST_CHUNK, intake.BATCH_ROWS = 25_000, 25_000, 100
intake.TYPED_ROWS = fast_intake.TYPED_ROWS = 50

def one(order):
    out, calls = Path(order["out"]), 0
    def count(frame, event, _):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(os.getcwd() + "/data/"):
            calls += 1
            if calls == order["kill_at"]:
                os.kill(os.getpid(), signal.SIGKILL)
    said = []
    sys.setprofile(count if order["kill_at"] or order["counted"] else None)  # counting takes as long as all else
    report = ingest(
        source_files(order["source"]), Places(out / "records", out / "quarantine.jsonl", out / "ledger.parquet"),
        field_map(), Limits(raw_bytes=200), shard_rows=200, work=out / "work", say=said.append,
        every=CommitEvery(rows=100), fast_from=order["fast_from"],
    )
    sys.setprofile(None)
    (out / "answer.json").write_text(json.dumps({"calls": calls, "said": said, "metrics": report.metrics()}))

def warm(path):  # compiled code is loaded once, before anything is forked
    path.write_text('{"id": "a", "text": "b"}\n' * 3)
    for _ in fast_intake.decide_lines(intake.Intake(field_map(), Limits()), "warm", path):
        pass

for line in sys.stdin:
    order = json.loads(line)
    if order["fast_from"] == 0 and not (warmed := Path(order["out"]).parent / "warm.jsonl").exists():
        warm(warmed)
    if not (child := os.fork()):
        try:
            one(order)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def mixed_source(folder: Path) -> Path:
    """About 1.5 MB in five files: good, bad, repeated and blank lines, ids and none, some compressed, some cut."""
    draw = random.Random(7)
    folder.mkdir()

    def lines(name: str, count: int) -> str:
        made = []
        for i in range(count):
            record: dict[str, Any] = {"id": f"{name}-{i}", "text": f"{name} {i} " + "word " * draw.randint(5, 120)}
            record |= {"label": draw.choice(["a", "b", None]), "date": f"2024-05-0{draw.randint(0, 9)}", "n": i}
            kind = draw.random()
            if kind < 0.05:
                record["id"] = f"a-{draw.randint(0, 400)}"
            elif kind < 0.15:
                del record["id"]
                record["text"] = f"one of few {draw.randint(0, 5)}"
                record["n"] = 0
            elif kind < 0.2:
                record["more"] = {"deep": [i, 1.5, "é"]}
            line = json.dumps(record, ensure_ascii=draw.random() < 0.5)
            made.append(draw.choice([line, line, line, line[:-3]]) if kind > 0.9 else line)
            made += [""] * (kind > 0.98)
        return "\n".join(made) + "\n"

    (folder / "a.jsonl").write_text(lines("a", 500), encoding="utf-8")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines("b", 400).encode(), mtime=0))
    (folder / "c.csv").write_text("id,text\n" + "".join(f"c-{i},text {i}\n" for i in range(150)) + "c-x,a,b\n")
    array = [{"id": f"d-{i % 125}", "text": "t" * (i % 90 + 1)} for i in range(150)]
    (folder / "d.json").write_text(json.dumps(array))
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(lines("e", 250).encode(), mtime=0)[:-1000])
    return folder


def outputs(out: Path) -> dict[str, bytes]:
    paths = [*(out / "records").iterdir(), out / "quarantine.jsonl", out / "ledger.parquet"]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fast_from", "count"), [(0, POINTS), (1 << 40, 3)], ids=["scanner", "strict parser"])
def test_killed_at_random_points_it_ends_with_the_same_bytes(tmp_path: Path, fast_from: int, count: int) -> None:
    source = mixed_source(tmp_path / "demo")
    command = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None

    def run(name: str, kill_at: int = 0, *, counted: bool = False) -> int:
        (tmp_path / name).mkdir(exist_ok=True)
        shutil.rmtree(tmp_path / name / "records", ignore_errors=True)  # as the stage does with what was being written
        order = {"source": str(source), "out": str(tmp_path / name), "fast_from": fast_from}
        order |= {"kill_at": kill_at, "counted": counted}
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    def answer(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / name / "answer.json").read_text())
        return found

    try:
        assert run("whole", counted=True) == 0
        whole = answer("whole")
        expected = outputs(tmp_path / "whole")
        assert len(expected) > 5 and whole["metrics"]["quarantined"] > 50 and whole["metrics"]["made_ids"] > 50
        draw = random.Random(fast_from)
        resumed = 0
        points = [draw.randint(1, whole["calls"]) for _ in range(count)]
        for number, point in enumerate([*points, whole["calls"] - 20]):  # the last one while the outputs are joined
            name = f"killed{number}"
            assert run(name, point) == -9
            assert run(name) == 0
            assert outputs(tmp_path / name) == expected
            assert answer(name)["metrics"] == whole["metrics"]
            resumed += any("goes on behind" in words for words in answer(name)["said"])
        assert resumed > count // 2
        for _ in range(3):  # killed again and again
            assert run("often", whole["calls"] // 4) == -9
        assert run("often") == 0
        assert outputs(tmp_path / "often") == expected
    finally:
        server.stdin.close()
        server.wait()


def test_a_journal_that_lost_bytes_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10, CommitEvery())
    assert journal.resume() is None
    journal.quarantine.append(b"refused\n")
    journal.commit({"n": 1})
    journal.close()
    again = Journal(tmp_path, 10, CommitEvery())
    assert again.resume() == {"n": 1}
    again.close()
    (tmp_path / "quarantine.jsonl").write_bytes(b"ref")
    with pytest.raises(Damaged, match="shorter"):
        Journal(tmp_path, 10, CommitEvery()).resume()
