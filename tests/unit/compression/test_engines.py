"""Sessions and engines: one interface, exact refusals, honest CPU facts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from compression.cpu import cpu_features, describe_machine, int8_objection
from compression.engines import EagerSession, open_engine
from compression.graphs import build_graph
from compression.quantize import save_quantized
from compression.sessions import EngineError, open_session
from compression.weights import read_weights
from tests.tiny_models import batch, card, classifier, quantized
from training.checkpoint import save_checkpoint


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "m.onnx"
    onnx.save(build_graph(read_weights(classifier()), "plain"), str(path))
    return path


def test_all_engines_answer_alike(tmp_path: Path, graph: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", classifier(), card(), "{}")
    ids, mask = batch(4, 9)
    wanted = EagerSession(classifier()).run(ids, mask)
    for engine, path, precision, tolerance in (
        ("eager", tmp_path / "checkpoint", "fp32", 1e-6),
        ("eager", tmp_path / "checkpoint", "bf16", 0.3),
        ("onnxruntime", graph, "fp32", 2e-5),
        ("openvino", graph, "fp32", 2e-5),
        ("openvino", graph, "bf16", 0.3),
    ):
        found = open_engine(engine, path, precision, 1).run(ids, mask)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, atol=tolerance, err_msg=f"{engine} {precision}")


def test_eager_loads_quantized_checkpoints(tmp_path: Path) -> None:
    model = quantized()
    save_quantized(tmp_path / "checkpoint", model, card(), "{}")
    ids, mask = batch(4, 9)
    found = open_engine("eager", tmp_path / "checkpoint", "fp32", 1).run(ids, mask)
    np.testing.assert_array_equal(found, EagerSession(model).run(ids, mask))


@pytest.mark.parametrize(
    ("engine", "precision", "complaint"),
    [
        ("tensorrt", "fp32", "unknown engine"),
        ("onnxruntime", "bf16", "no precision"),
        ("eager", "int8", "no precision"),
    ],
)
def test_what_an_engine_cannot_do_is_said(graph: Path, engine: str, precision: str, complaint: str) -> None:
    with pytest.raises(EngineError, match=complaint):
        open_engine(engine, graph, precision, 1)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_broken_file_is_an_error_of_ours(tmp_path: Path, engine: str) -> None:
    (tmp_path / "m.onnx").write_bytes(b"not a graph")
    with pytest.raises(EngineError, match="cannot load"):
        open_session(engine, tmp_path / "m.onnx", "fp32", 1)


def test_sessions_come_without_torch(graph: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from compression.sessions import open_session; import compression.cpu\n"
        f"open_session('onnxruntime', Path({str(graph)!r}), 'fp32', 1)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("features", "machine", "reduced", "refused"),
    [
        (("avx2", "avx512f"), "x86_64", False, True),
        (("avx2",), "AMD64", False, True),
        (("avx2",), "x86_64", True, False),
        (("avx2", "avx_vnni"), "x86_64", False, False),
        (("avx512_vnni",), "x86_64", False, False),
        (("amx_int8",), "x86_64", False, False),
        (("asimddp",), "aarch64", False, False),
    ],
)
def test_int8_of_full_range_needs_vnni(features: tuple[str, ...], machine: str, reduced: bool, refused: bool) -> None:
    assert bool(int8_objection(features, machine, reduced)) is refused


def test_cpu_facts_come_from_cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("model name\t: Some CPU 9000\nflags\t\t: fpu avx2 avx_vnni sse\n\nmodel name\t: Other\n")
    monkeypatch.setattr("compression.cpu.CPUINFO", info)
    assert cpu_features() == ("avx2", "avx_vnni")
    assert describe_machine(2)["cpu"] == "Some CPU 9000"
    monkeypatch.setattr("compression.cpu.CPUINFO", tmp_path / "none")
    assert cpu_features() == ()
