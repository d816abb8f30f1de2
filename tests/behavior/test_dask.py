"""Near duplicates on a real Dask cluster: one scheduler, two worker processes, the bytes of one machine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.dedup.config import FindConfig
from data.dedup.find import find
from data.dedup.protect import Protector
from data.dedup.sign import SignTask, sign_shard
from data.engine import Dask, KeyedPart, meet_of, met_rows
from data.errors import DaymillError
from data.scoring import measure
from data.shards import RECORD_SCHEMA, shard_files
from data.workers import Local

pytestmark = pytest.mark.slow

WORDS = [
    first + second for first in ("ba", "ke", "li", "mo", "nu", "po", "ra", "si") for second in ("ta", "ve", "xi", "zo")
]
NO_PAGE = ["--no-dashboard"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler on loopback and its two workers, each a process in a folder of its own."""
    home = tmp_path_factory.mktemp("cluster")
    address_file = home / "scheduler.json"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str, *arguments: str) -> None:
        folder = home / f"{kind}-{len(started)}"
        folder.mkdir()
        command = [sys.executable, "-m", "dask", kind, *arguments, *NO_PAGE]
        with (folder / "log").open("wb") as log:
            started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(address_file))
        for _ in range(2):
            start(
                "worker", "--scheduler-file", str(address_file), "--nthreads", "1", "--host", "127.0.0.1",
                "--no-nanny", "--death-timeout", "60",
            )  # fmt: skip
        import distributed

        client = distributed.Client(scheduler_file=str(address_file), timeout=60, set_as_default=False)
        client.wait_for_workers(2, timeout=60)
        address = client.scheduler.address
        client.close()
        yield address, started[1:]
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in reversed(started):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def write_shards(folder: Path, seed: int, shards: int, rows: int) -> list[Path]:
    """Records of 60 words: originals, near copies, exact copies, other doses, a text of nothing in every shard."""
    rng = random.Random(seed)
    texts: list[str] = []
    folder.mkdir(parents=True)
    for shard in range(shards):
        own = [""]
        while len(own) < rows:
            kind = rng.random()
            if kind < 0.5 or not texts:
                own.append(" ".join([*rng.choices(WORDS, k=60), "5 mg"]))
            else:
                words = rng.choice(texts).split(" ")
                if kind < 0.7:
                    words[rng.randrange(len(words))] = rng.choice(WORDS)
                elif kind < 0.9:
                    words[-2:] = [str(rng.randrange(1, 99)), "mg"]
                own.append(" ".join(words))
            texts.append(own[-1])
        columns = {name: pa.nulls(rows, pa.string()) for name in RECORD_SCHEMA.names}
        columns |= {"id": pa.array([f"{shard}-{row}" for row in range(rows)]), "text": pa.array(own)}
        pq.write_table(pa.table(columns, schema=RECORD_SCHEMA), folder / f"part-{shard:05d}.parquet")
    return shard_files(folder)


def bytes_of(table: pa.Table, path: Path) -> bytes:
    pq.write_table(table, path)
    return path.read_bytes()


def test_the_pairs_are_byte_identical_to_those_of_one_machine(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # relative paths, as the stages use them: the workers live elsewhere
    monkeypatch.setattr("data.engine.KEYS", 2_000)  # so that the shuffle has several partitions behind it
    shards = write_shards(Path("records"), 5, 3, 150)
    config, protector = FindConfig(), Protector()
    here = find(shards, config, Local(1), Path("here"), protector)
    engine = Dask(cluster[0])
    try:
        there = find(shards, config, engine, Path("there"), protector, meet=meet_of(engine))
    finally:
        engine.close()
    assert here.table.num_rows > 50 and here.report["vetoed"]
    assert there.report == here.report
    assert bytes_of(there.table, tmp_path / "there.parquet") == bytes_of(here.table, tmp_path / "here.parquet")


def test_the_measures_are_byte_identical_to_those_of_one_machine(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(Path("records"), 8, 3, 60)
    here = measure(Path("records"), Path("here"), Local(1), lambda _rows: None)
    engine = Dask(cluster[0])
    try:
        there = measure(Path("records"), Path("there"), engine, lambda _rows: None)
    finally:
        engine.close()
    assert len(here) == 3
    assert [out.read_bytes() for _, out in here] == [out.read_bytes() for _, out in there]


def test_the_join_is_a_p2p_shuffle(tmp_path: Path) -> None:
    parts = [KeyedPart(tmp_path, 0, tmp_path / "met.npy", band) for band in range(3)]
    graph = met_rows(parts, 4).optimize().__dask_graph__()
    assert any("shuffle-barrier" in str(key) for key in graph)


def test_answers_keep_their_order_and_errors_their_words(cluster: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    engine = Dask(cluster[0])
    try:
        assert list(engine.map(str, list(range(20)))) == [str(number) for number in range(20)]
        with pytest.raises(DaymillError, match="is not a readable Parquet file"):
            list(engine.map(sign_shard, [SignTask(Path(__file__), Path("nowhere"), 5, 20, 6)]))
    finally:
        engine.close()


def test_a_scheduler_that_goes_away_is_said_in_words(tmp_path: Path) -> None:
    import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, host="127.0.0.1", protocol="tcp"
    ) as small:
        engine = Dask(small.scheduler_address)
        answers = engine.map(waits, [tmp_path, tmp_path])
        with pytest.raises(DaymillError, match="waits: the Dask scheduler is gone"):
            small.scheduler.loop.add_callback(small.scheduler.close)
            next(answers)
        (tmp_path / "enough").touch()


def waits(folder: Path) -> None:
    while not (folder / "enough").exists():
        time.sleep(0.05)


def test_workers_of_other_code_are_refused(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data.engine.platform.python_version", lambda: "2.7")
    with pytest.raises(DaymillError, match="2 of 2 workers run other code"):
        Dask(cluster[0])


def test_no_scheduler_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data.engine.CONNECT_S", 1.0)
    with pytest.raises(DaymillError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        Dask("tcp://127.0.0.1:9")


def test_the_work_of_a_worker_that_dies_is_done_by_the_other(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    shards = write_shards(tmp_path / "records", 6, 4, 100)
    here = find(shards, FindConfig(), Local(1), tmp_path / "here", Protector())
    engine = Dask(cluster[0])
    victim = cluster[1][0]
    told: list[int] = []

    def kill_once(rows: int) -> None:
        told.append(rows)
        if len(told) == 2:  # the first shard is done, the others are not
            victim.kill()
            victim.wait()

    try:
        there = find(
            shards, FindConfig(), engine, tmp_path / "there", Protector(), advance=kill_once, meet=meet_of(engine)
        )
    finally:
        engine.close()
    assert len(told) > 2 and there.table.equals(here.table)
