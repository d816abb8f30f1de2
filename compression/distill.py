"""The unpruned model as a teacher: what it answers to every row, computed once, and how far a student is from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from data.errors import DaymillError
from training.decision import softmax
from training.model import Classifier
from training.predict import predict_logits
from training.rows import Rows

Logits = NDArray[np.float32]

ROWS_AT_ONCE = 1024  # rows between two signs of life, batched by length among themselves


@dataclass(frozen=True)
class Teacher:
    """Logits [N, C] of the unpruned model by split, in the order of the split's rows."""

    logits: Mapping[str, Logits]

    @staticmethod
    def ask(
        model: Classifier, splits: Mapping[str, Rows], bf16: bool, done: Callable[[int], object] = lambda _: None
    ) -> Teacher:
        """Answers to all rows, in bf16 where that pays: a soft target needs no fourth digit. `done(rows)` counts."""
        answers = {}
        for name, rows in splits.items():
            parts = []
            for start in range(0, len(rows), ROWS_AT_ONCE):
                parts.append(predict_logits(model, rows.tokens[start : start + ROWS_AT_ONCE], bf16=bf16))
                done(len(parts[-1]))
            answers[name] = np.concatenate(parts)
        return Teacher(answers)

    def save(self, path: Path, splits: Mapping[str, Rows]) -> None:
        """Write the logits with a fingerprint of the rows they belong to."""
        prints = {name: fingerprint(rows) for name, rows in splits.items()}
        beside = path.with_name(f"{path.name}.writing")
        save_file(dict(self.logits), beside, metadata={"rows": json.dumps(prints)})
        beside.replace(path)

    @staticmethod
    def load(path: Path, splits: Mapping[str, Rows]) -> Teacher:
        """Read the logits of these rows. Raises DaymillError when the file belongs to other rows."""
        try:
            with safe_open(path, framework="numpy") as file:
                prints = json.loads(file.metadata()["rows"])
                logits = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise DaymillError(f"{path}: not the teacher's answers ({error}); run the prune stage again") from error
        for name, rows in splits.items():
            if prints.get(name) != fingerprint(rows):
                raise DaymillError(f"{path}: holds answers to other rows than split {name}; run the prune stage again")
        return Teacher(logits)


def fingerprint(rows: Rows) -> str:
    """Hash of the rows' ids and tokens, in order."""
    digest = blake2b(digest_size=16)
    for key, tokens in zip(rows.ids, rows.tokens):
        digest.update(key.encode() + b"\0" + tokens.tobytes())
    return digest.hexdigest()


def logit_gap(student: Logits, teacher: Logits) -> dict[str, float]:
    """Mean absolute difference of logits [N, C], and KL(teacher || student) in nats, mean over rows.

    F1 on an easy task hides damage that these show.
    """
    if student.shape != teacher.shape:
        raise ValueError(f"logits {student.shape} of the student, {teacher.shape} of the teacher")
    p, q = softmax(teacher), softmax(student)
    tiny = np.finfo(np.float64).tiny
    kl = (p * (np.log(np.maximum(p, tiny)) - np.log(np.maximum(q, tiny)))).sum(-1)
    return {"mean_abs": float(np.abs(student - teacher).mean()), "kl": float(kl.mean())}
