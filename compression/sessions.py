"""ONNX graphs that answer: one small interface over the runtimes that may serve. Torch-free: the server uses it.

Shapes: N rows, T tokens, C labels.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from data.errors import DaymillError

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


# Rewritings of ONNX Runtime that cost time on CPUs: SkipLayerNormalization is slower than Add + LayerNormalization.
SLOWER = ["SkipLayerNormFusion"]


class EngineError(DaymillError):
    """This machine cannot run a graph as asked."""


class Session(Protocol):
    """One loaded graph: ids and mask [N, T] -> logits [N, C]. `runtime` is its package."""

    runtime: str

    def run(self, ids: Ids, mask: Ids) -> Logits: ...


def open_session(engine: str, path: Path, precision: str, threads: int) -> Session:
    """Load a graph on "onnxruntime" or "openvino" with exactly `threads` threads.

    `precision` is "fp32", "int8" (what is not quantized stays fp32), or, on OpenVINO, "bf16" and "int8+bf16".
    Raises EngineError for an unknown engine or precision and for a graph that the runtime refuses.
    """
    if engine not in PRECISIONS:
        raise EngineError(f"unknown engine {engine!r}; expected one of {sorted(PRECISIONS)}")
    if precision not in PRECISIONS[engine]:
        raise EngineError(f"{engine} has no precision {precision!r}; expected one of {list(PRECISIONS[engine])}")
    try:
        return OrtSession(path, threads) if engine == "onnxruntime" else OpenVinoSession(path, precision, threads)
    except Exception as error:  # both runtimes raise types of their own, some of them plain RuntimeError
        raise EngineError(f"{engine} cannot load {path}: {' '.join(str(error).split())[:400]}") from error


class OrtSession:
    """ONNX Runtime on CPU; the calling thread is one of `threads`."""

    runtime = "onnxruntime"

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Threads that spin between calls steal the cores of everyone else in the container.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(
            str(path),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=SLOWER,
        )

    def run(self, ids: Ids, mask: Ids) -> Logits:
        outputs: list[Any] = self.session.run(["logits"], {"ids": ids, "mask": mask})
        return np.asarray(outputs[0], dtype=np.float32)


class OpenVinoSession:
    """OpenVINO on CPU, one stream of `threads` threads.

    The precision of what is not quantized is set here and not left to the runtime, which would take bf16 wherever
    the CPU has it.
    """

    runtime = "openvino"

    def __init__(self, path: Path, precision: str, threads: int) -> None:
        import openvino

        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if precision.endswith("bf16") else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        self.compiled = openvino.Core().compile_model(str(path), "CPU", config)
        self.request = self.compiled.create_infer_request()
        self.lock = threading.Lock()  # an infer request holds its own inputs and outputs

    def run(self, ids: Ids, mask: Ids) -> Logits:
        with self.lock:
            self.request.infer({"ids": ids, "mask": mask}, share_inputs=True)
            return np.array(self.request.get_tensor("logits").data, dtype=np.float32)


PRECISIONS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("fp32", "int8"),
    "openvino": ("fp32", "bf16", "int8", "int8+bf16"),
}
