"""A bundle that answers: text -> tokens -> one model call -> logits -> label and score.

The sessions are those that export proved and benchmark timed. Shapes: N rows, C labels.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.cpu import cpu_features, int8_objection
from compression.sessions import EngineError, Logits, open_session
from data.tokens import encode, load_tokenizer, pad
from serving.cpu import cpu_quota
from serving.manifest import Bundle, Manifest, installed_runtime
from serving.plan import plan_calls
from training.decision import decide, score, softmax

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Answers:
    """What a model says of N rows: logits and probabilities [N, C], chosen label index [N], score [N]."""

    logits: Logits
    probabilities: NDArray[np.float64]
    chosen: NDArray[np.int64]
    score: NDArray[np.float64]
    labels: tuple[str, ...]

    def names(self) -> list[str]:
        return [self.labels[at] for at in self.chosen]


class Engine:
    """A verified bundle with its tokenizer and session loaded.

    `threads` is the total that this engine may use; None takes the whole CPU quota. `notes` says, for people, where
    this machine differs from the one that the bundle was tuned on. Raises EngineError with the reason when the
    bundle cannot run here; where OpenVINO is not installed, ONNX Runtime stands in and a note says so.
    Engines that share a `turn` call their models one at a time, so that together they use the threads of one.
    """

    def __init__(self, bundle: Bundle, threads: int | None = None, turn: threading.Lock | None = None) -> None:
        manifest = bundle.manifest
        self.bundle = bundle
        self.manifest: Manifest = manifest
        self.threads = threads if threads is not None else cpu_quota()
        if self.threads < 1:
            raise EngineError(f"{self.threads} threads for {manifest.name}; expected at least 1")
        self.turn = turn or threading.Lock()
        self.notes = check_cpu(manifest, cpu_features())
        self.runtime, fallback = choose_runtime(manifest)
        self.notes += fallback
        self.tokenizer = load_tokenizer(bundle.folder / "tokenizer.json")
        # What ONNX Runtime stands in for runs without bf16: that is a hint to OpenVINO, not a property of the graph.
        portable = {"bf16": "fp32", "int8+bf16": "int8"}
        precision = manifest.precision if not fallback else portable.get(manifest.precision, manifest.precision)
        self.session = open_session(self.runtime, bundle.model, precision, self.threads)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of each text, cut as in training."""
        prepare = self.manifest.preprocess
        return encode(self.tokenizer, texts, prepare.max_len, prepare.max_chars, prepare.tail)

    def logits(self, rows: Sequence[Ids]) -> Logits:
        """Logits [N, C] of encoded rows in one model call, padded to the longest."""
        ids, mask = pad(rows)
        with self.turn:
            logits = self.session.run(ids, mask)
        expected = (len(rows), len(self.manifest.labels))
        if logits.shape != expected:
            raise EngineError(f"model.onnx of {self.manifest.version} gave logits {logits.shape}; expected {expected}")
        return logits

    def answers(self, logits: Logits, threshold: float | None = None) -> Answers:
        """Labels and scores of logits [N, C]; `threshold` overrides the bundle's for two-label models."""
        manifest = self.manifest
        cut = manifest.threshold if threshold is None else threshold
        chosen = decide(logits, manifest.labels, manifest.positive, cut)
        scores = score(logits, manifest.labels, manifest.positive, chosen)
        return Answers(logits, softmax(logits), chosen, scores, manifest.labels)

    def predict(self, texts: Sequence[str], max_rows: int = 32, max_tokens: int = 8192) -> Answers:
        """Answers for any number of texts, in model calls of similar lengths."""
        rows = self.encode(texts)
        logits = np.empty((len(rows), len(self.manifest.labels)), dtype=np.float32)
        for call in plan_calls([len(row) for row in rows], max_rows, max_tokens):
            logits[call] = self.logits([rows[at] for at in call])
        return self.answers(logits)


def check_cpu(manifest: Manifest, features: Sequence[str]) -> list[str]:
    """What this CPU lacks of the one the bundle was tuned for, as notes. Raises EngineError where INT8 goes wrong."""
    if manifest.int8:
        objection = int8_objection(features, reduced_range=manifest.reduced_range)
        if objection:
            raise EngineError(
                f"bundle {manifest.name} {manifest.version}: {objection}; expected one of avx_vnni, avx512_vnni, "
                "amx_int8. Build the bundle with precision fp32, or quantize with a reduced range (7-bit weights)"
            )
    missing = sorted(set(manifest.cpu_features) - set(features))
    if not missing:
        return []
    return [f"tuned on a CPU with {', '.join(missing)}, which this one lacks: answers stay in tolerance, speed differs"]


def choose_runtime(manifest: Manifest) -> tuple[str, list[str]]:
    """The runtime to load and a note when it is not the bundle's own. Raises EngineError when neither can be used."""
    wanted = manifest.runtime
    found = installed_runtime(wanted.package)
    if found is not None:
        if not wanted.accepts(found):
            raise EngineError(
                f"bundle {manifest.version} needs {wanted.package} {wanted.range}, this machine has {found}: "
                f"install a version in that range or build the bundle again"
            )
        return wanted.package, []
    if wanted.package == "onnxruntime" or installed_runtime("onnxruntime") is None:
        raise EngineError(f"bundle {manifest.version} needs {wanted.package} {wanted.range}, which is not installed")
    return "onnxruntime", [
        f"{wanted.package} is not installed, ONNX Runtime answers instead (slower than the benchmark's figures); "
        "install the extra `openvino`"
    ]
