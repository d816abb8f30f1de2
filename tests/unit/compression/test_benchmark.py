"""Timing by turns, and the choice: fastest that passes parity and is small, with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest

from compression.benchmark import FILES, Plan, Row, check_files, choose, line_up, markdown, measure, speedups
from compression.export import GRAPHS, OFFERS, file_hash
from compression.graphs import build_graph
from compression.parity import ParityError
from compression.plot import draw
from compression.turns import Block, Cell, Contender, take_turns, workers
from compression.weights import read_weights
from data.errors import DaymillError
from tests.tiny_models import classifier, quantized

MACHINE = {"cpu": "Some CPU", "features": ["avx2", "avx_vnni"], "cores": 2, "threads": 2}
SPEED = {  # milliseconds at batch 1; batch 32 takes 20 times as long
    "onnxruntime-fp32-unpruned": 8.0,
    "onnxruntime-fp32-unpruned-fused": 6.0,
    "onnxruntime-fp32": 3.0,
    "openvino-fp32": 3.1,
    "openvino-bf16": 1.0,
    "onnxruntime-int8": 1.5,
    "openvino-int8": 2.0,
    "openvino-int8+bf16": 0.5,
}
TEAM = [("eager", "fp32", "unpruned", 10.0), ("eager", "bf16", "unpruned", 7.0)]


def rows(speed: dict[str, float] | None = None) -> list[Row]:
    timed = TEAM + [(o.engine, o.precision, o.graph, (speed or SPEED)[o.key]) for o in OFFERS]
    return [
        Row(engine, precision, graph, batch, 128, ms * factor, ms * factor * 1.1, 30)
        for engine, precision, graph, ms in timed
        for batch, factor in ((1, 1), (32, 20))
    ]


def parity(**failed: str) -> dict[str, Any]:
    reasons = {key.replace("_", "-"): reason for key, reason in failed.items()} | {
        "openvino-int8+bf16": "padding moves a logit"
    }
    return {
        offer.key: {
            "passed": offer.key not in reasons,
            "reason": reasons.get(offer.key, ""),
            "flip_share": 0.001,
            "rows": 9,
        }
        for offer in OFFERS
    }


def files() -> dict[str, Any]:
    size = {"unpruned": 100, "pruned": 60, "quantized": 16}
    return {graph.file: {"bytes": size[graph.source], "graph": graph.name} for graph in GRAPHS}


def test_the_fastest_that_passes_parity_and_is_small_is_chosen() -> None:
    choice = choose(rows(), parity(), files(), Plan(), 512)
    assert (choice["engine"], choice["precision"], choice["graph"]) == ("onnxruntime", "int8", "int8-fused.onnx")
    assert choice["speedup_b1"] == pytest.approx(6.667, abs=1e-3) == choice["speedup_b32"]
    assert choice["file_share"] == 0.16 and choice["released_flip_share"] == 0.001
    assert any("openvino-bf16: its file is 60%" in reason for reason in choice["refused"])
    assert any("openvino-int8+bf16: padding" in reason for reason in choice["refused"])


def test_a_wider_size_bar_lets_the_faster_engine_serve() -> None:
    choice = choose(rows(), parity(), files(), Plan(max_file_share=0.7), 512)
    assert (choice["engine"], choice["precision"], choice["graph"]) == ("openvino", "bf16", "pruned.onnx")


@pytest.mark.parametrize(("ms", "engine"), [(1.46, "onnxruntime"), (1.3, "openvino")])
def test_within_the_noise_the_portable_engine_serves(ms: float, engine: str) -> None:
    assert choose(rows(SPEED | {"openvino-int8": ms}), parity(), files(), Plan(), 512)["engine"] == engine


def test_the_unpruned_model_never_serves_and_failures_are_told() -> None:
    failed = dict.fromkeys(("onnxruntime_int8", "openvino_int8"), "logits differ")
    with pytest.raises(DaymillError, match=r"no engine may serve.*onnxruntime-int8: logits differ") as error:
        choose(rows(), parity(**failed), files(), Plan(), 512)
    assert "unpruned:" not in str(error.value)


def test_speedups_are_over_eager_fp32() -> None:
    gains = speedups(rows(), Plan().decisive(512))
    assert gains["eager", "fp32", "unpruned"] == [1.0, 1.0]
    assert gains["openvino", "bf16", "pruned"] == [10.0, 10.0]


def test_cells_beyond_the_model_are_left_out() -> None:
    assert Plan(seqs=(32, 256)).cells(64) == [Cell(1, 32), Cell(8, 32), Cell(32, 32)]
    assert Plan().decisive(64) == [Cell(1, 64), Cell(32, 64)]


def test_a_graph_changed_after_its_proof_is_refused(tmp_path: Path) -> None:
    (tmp_path / "int8.onnx").write_bytes(b"proven")
    proven = {"int8.onnx": {"sha256": file_hash(tmp_path / "int8.onnx")}}
    check_files(tmp_path, proven)
    (tmp_path / "int8.onnx").write_bytes(b"proveN")
    with pytest.raises(ParityError, match=r"changed after parity was proven: int8\.onnx"):
        check_files(tmp_path, proven)


def test_what_was_not_proven_is_not_timed(tmp_path: Path) -> None:
    verdicts = parity() | {"openvino-int8": {"rows": 0}}
    names = {contender.name for contender in line_up(tmp_path, tmp_path, verdicts)}
    assert "openvino int8 int8" not in names and "onnxruntime int8 int8-fused" in names
    assert {"eager fp32 unpruned", "eager bf16 unpruned", "openvino bf16 unpruned"} <= names


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    onnx.save(build_graph(read_weights(classifier()), "fused"), str(folder / "fp32.onnx"))
    onnx.save(build_graph(read_weights(quantized()), "fused"), str(folder / "int8.onnx"))
    return folder


def test_engines_take_turns_in_processes_of_their_own(graphs: Path) -> None:
    team = [Contender("onnxruntime", name, name, graphs / f"{name}.onnx") for name in ("fp32", "int8")]
    small, large = Cell(1, 8), Cell(4, 16)
    with workers(team, 1, 90) as started:
        pids = {worker.process.pid for worker in started}
        turns = list(take_turns(started, [small, large], [small], Block(3, 0.05), seconds=0))
        assert 5 < started[0].memory_mb() < 2000
    order = [(name.split()[1], cell) for name, cell, _ in turns]
    assert order[:4] == [("fp32", small), ("int8", small), ("fp32", large), ("int8", large)]
    assert order[4:] == [("fp32", small), ("int8", small)]
    assert all(len(ms) == 3 and min(ms) > 0 for *_, ms in turns)
    assert len(pids) == 2 and os.getpid() not in pids
    assert all(worker.process.returncode == 0 for worker in started)


def test_a_worker_that_cannot_load_says_why_and_nothing_is_left(tmp_path: Path, graphs: Path) -> None:
    team = [
        Contender("onnxruntime", "fp32", "fp32", graphs / "fp32.onnx"),
        Contender("onnxruntime", "fp32", "gone", tmp_path),
    ]
    with pytest.raises(DaymillError, match="onnxruntime fp32 gone: onnxruntime cannot load"), workers(team, 1, 90):
        raise AssertionError("unreachable")


def test_a_killed_coordinator_leaves_no_worker(graphs: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from compression.turns import Contender, workers
with workers([Contender("onnxruntime", "fp32", "fp32", Path({str(graphs / "fp32.onnx")!r}))] * 2, 1, 90) as team:
    print(*[worker.process.pid for worker in team], flush=True)
    team[0].send(batch=1, seq=4, calls=9, seconds=0.1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    pids = [int(pid) for pid in killed.stdout.split()]
    assert len(pids) == 2 and killed.returncode == -9
    end = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert "Traceback" not in killed.stderr


def test_measure_covers_the_grid_and_the_deciding_cells(graphs: Path) -> None:
    plan = Plan(batches=(1, 2), seqs=(4, 999), decide_batches=(1, 3), decide_seq=8, block=Block(3, 0.01), seconds=0)
    found, memory = measure([Contender("onnxruntime", "int8", "int8", graphs / "int8.onnx")], plan, 90, 64)
    assert {(row.batch, row.seq): row.calls for row in found} == {(1, 4): 3, (2, 4): 3, (1, 8): 6, (3, 8): 6}
    assert set(memory) == {"onnxruntime int8 int8"}


def test_table_and_plot_show_every_contender(tmp_path: Path) -> None:
    plan, choice = Plan(), choose(rows(), parity(), files(), Plan(), 512)
    memory = {f"{row.engine} {row.precision} {row.graph}": 100.0 for row in rows()}
    table = markdown(rows(), memory, files(), MACHINE)
    assert table.count("\n| ") == len(TEAM) + len(OFFERS) + 1 and "b32 x 128" in table and "avx_vnni" in table
    draw(rows(), plan, 512, files(), MACHINE, choice, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert set(FILES) == {graph.name for graph in GRAPHS}
