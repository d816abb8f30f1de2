"""Everything that can answer with a model, behind one call: eager PyTorch beside the ONNX runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from compression.quantize import load_quantized
from compression.sessions import EngineError, Ids, Logits, Session, open_session
from training.checkpoint import load_card, load_checkpoint
from training.model import Classifier

EAGER_PRECISIONS = ("fp32", "bf16")


def open_engine(engine: str, path: Path, precision: str, threads: int) -> Session:
    """An engine by name: "eager" takes a checkpoint folder, "onnxruntime" and "openvino" an ONNX file.

    Raises EngineError for what the engine cannot load.
    """
    if engine != "eager":
        return open_session(engine, path, precision, threads)
    if precision not in EAGER_PRECISIONS:
        raise EngineError(f"eager has no precision {precision!r}; expected one of {list(EAGER_PRECISIONS)}")
    torch.set_num_threads(threads)
    return EagerSession(load_classifier(path), precision)


class EagerSession:
    """A torch model as it was trained, on CPU."""

    runtime = "torch"

    def __init__(self, model: nn.Module, precision: str = "fp32") -> None:
        self.model = model.eval()
        if precision == "bf16":
            self.model = self.model.to(torch.bfloat16)

    def run(self, ids: Ids, mask: Ids) -> Logits:
        with torch.inference_mode():
            logits = self.model(torch.from_numpy(ids), torch.from_numpy(mask))
        return np.asarray(logits.float().numpy(), dtype=np.float32)


def load_classifier(folder: Path) -> Classifier:
    """The classifier of a checkpoint folder, quantized or not."""
    if load_card(folder).quantization is not None:
        return load_quantized(folder)[0]
    model, card = load_checkpoint(folder)
    if not isinstance(model, Classifier):
        raise EngineError(f"{folder}: task is {card.task!r}; expected a classifier")
    return model
