"""Engines: both runtimes give the graph's answers, threads are counted, and refusals say why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compression.sessions import EngineError
from serving import engine as engines
from serving.cpu import split_threads
from serving.engine import Engine
from serving.goldens import verify_goldens
from serving.manifest import Bundle, Manifest
from tests.tiny_bundle import TEXTS, TRUTH, make_bundle


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("engine") / "bundle")


def altered(bundle: Bundle, **changes: object) -> Bundle:
    return Bundle(bundle.folder, Manifest.model_validate(bundle.manifest.model_dump() | changes))


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_both_runtimes_tell_the_labels(tmp_path: Path, runtime: str) -> None:
    engine = Engine(make_bundle(tmp_path / "bundle", engine=runtime), threads=1)
    answers = engine.predict(TEXTS, max_rows=7)
    assert engine.runtime == runtime and answers.names() == list(TRUTH)
    np.testing.assert_allclose(answers.probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(answers.score, answers.probabilities[:, 1])


def test_alone_in_a_batch_and_padded_a_row_answers_the_same(built: Bundle) -> None:
    engine = Engine(built, threads=2)
    rows = engine.encode(["win money now", "see you " * 40, ""])
    together = engine.logits(rows)
    alone = np.concatenate([engine.logits([row]) for row in rows])
    np.testing.assert_allclose(together, alone, atol=1e-6)


BF16 = {"avx512_bf16", "amx_bf16", "bf16"}


@pytest.mark.skipif(not BF16 & set(engines.cpu_features()), reason="this CPU has no bf16: OpenVINO computes in fp32")
def test_bf16_runs_on_openvino_within_its_tolerance(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", engine="openvino", precision="bf16")
    assert bundle.manifest.tolerance == 0.1
    engine = Engine(bundle, threads=1)
    assert verify_goldens(engine) <= 0.1
    hint = engine.session.compiled.get_property("INFERENCE_PRECISION_HINT")  # type: ignore[attr-defined]
    assert "bfloat16" in str(hint) or "bf16" in str(hint)


def test_openvino_keeps_fp32_where_bf16_was_not_chosen(tmp_path: Path) -> None:
    engine = Engine(make_bundle(tmp_path / "bundle", engine="openvino"), threads=1)
    hint = engine.session.compiled.get_property("INFERENCE_PRECISION_HINT")  # type: ignore[attr-defined]
    assert "float32" in str(hint) or "f32" in str(hint)
    assert engine.session.compiled.get_property("INFERENCE_NUM_THREADS") == 1  # type: ignore[attr-defined]


def test_int8_is_refused_without_vnni(built: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    int8 = altered(built, precision="int8", cpu_features=["avx2", "avx512_vnni"])
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(engines, "cpu_features", lambda: ("avx2",))
    with pytest.raises(EngineError, match="without VNNI"):
        Engine(int8, threads=1)
    reduced = altered(built, precision="int8", reduced_range=True, cpu_features=["avx2", "avx512_vnni"])
    assert Engine(reduced, threads=1).notes
    monkeypatch.setattr(engines, "cpu_features", lambda: ("avx2", "avx512_vnni"))
    assert Engine(int8, threads=1).notes == []


def test_another_cpu_is_noted(built: Bundle) -> None:
    notes = Engine(altered(built, cpu_features=["amx_bf16"]), threads=1).notes
    assert len(notes) == 1 and "amx_bf16" in notes[0]


def test_a_runtime_out_of_range_is_refused(built: Bundle) -> None:
    runtime = built.manifest.runtime.model_dump() | {"minimum": "99.0", "below": "100"}
    with pytest.raises(EngineError, match=r">=99.0,<100"):
        Engine(altered(built, runtime=runtime), threads=1)


def test_without_openvino_onnxruntime_stands_in_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path / "bundle", engine="openvino")
    real = engines.installed_runtime
    monkeypatch.setattr(engines, "installed_runtime", lambda name: None if name == "openvino" else real(name))
    engine = Engine(bundle, threads=1)
    assert engine.runtime == "onnxruntime" and "openvino is not installed" in engine.notes[0]
    verify_goldens(engine)
    monkeypatch.setattr(engines, "installed_runtime", lambda _: None)
    with pytest.raises(EngineError, match="not installed"):
        Engine(bundle, threads=1)


def test_a_broken_graph_is_an_error_for_people(built: Bundle, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(built.folder, tmp_path / "broken"))
    (broken / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match="onnxruntime cannot load"):
        Engine(Bundle(broken, built.manifest), threads=1)


def test_the_threads_of_two_sessions_add_up_to_the_quota(built: Bundle) -> None:
    """onnxruntime#10273, counted by the kernel: each session's threads are its own and the one that calls it."""
    code = (
        "import os, sys; from pathlib import Path; from serving.bundle import open_bundle;"
        "from serving.engine import Engine; import onnxruntime;"
        "bundle = open_bundle(Path(sys.argv[1])); count = lambda: len(os.listdir('/proc/self/task'));"
        "before = count(); engines = [Engine(bundle, int(n)) for n in sys.argv[2:]];"
        "[e.logits(e.encode(['win'] * 64)) for e in engines]; print(count() - before + len(engines))"
    )

    def threads(*shares: int) -> int:
        command = [sys.executable, "-c", code, str(built.folder), *map(str, shares)]
        env = os.environ | {"TOKENIZERS_PARALLELISM": "false"}  # as the server sets it
        return int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)

    assert threads(*split_threads(2, 2)) == 2
    assert threads(*split_threads(4, 2)) == 4


def test_serving_imports_no_torch(built: Bundle) -> None:
    code = (
        "import sys; from pathlib import Path; import serving.server, serving.gate, serving.releases, serving.client;"
        "from serving.bundle import open_bundle; from serving.engine import Engine, open_session;"
        "bundle = open_bundle(Path(sys.argv[1])); Engine(bundle, 1).predict(['a']);"
        "open_session('openvino', bundle.model, 'fp32', 1); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(built.folder)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"
