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
from training.precision import Precision
from training.predict import predict_logits
from training.rows import Rows

Logits = NDArray[np.float32]

ROWS_AT_ONCE = 1024  # rows between two signs of life, batched by length among themselves


@dataclass(frozen=True)
class Teacher:
    """Rows by part, and the unpruned model's logits [N, C] for them.

    Recovery learns from the part "train" and is watched on "watch"; "test" says how far the result is.
    """

    rows: Mapping[str, Rows]
    logits: Mapping[str, Logits]

    @staticmethod
    def ask(
        model: Classifier,
        parts: Mapping[str, Rows],
        precision: Precision,
        done: Callable[[int], object] = lambda _: None,
    ) -> Teacher:
        """Answers to all rows, in bf16 where that pays: a soft target needs no fourth digit. `done(rows)` counts."""
        answers = {}
        for part, rows in parts.items():
            logits = []
            for start in range(0, len(rows), ROWS_AT_ONCE):
                logits.append(predict_logits(model, rows.tokens[start : start + ROWS_AT_ONCE], precision=precision))
                done(len(logits[-1]))
            answers[part] = np.concatenate(logits)
        return Teacher(parts, answers)

    def save(self, path: Path) -> None:
        """Write the logits with the ids and a fingerprint of their rows."""
        about = {part: {"ids": rows.ids, "hash": fingerprint(rows)} for part, rows in self.rows.items()}
        beside = path.with_name(f"{path.name}.writing")
        save_file(dict(self.logits), beside, metadata={"rows": json.dumps(about)})
        beside.replace(path)

    @staticmethod
    def load(path: Path, pools: Mapping[str, Rows]) -> Teacher:
        """Read the answers; their rows are found by id in the `pools` of each part.

        Raises DaymillError when a row is gone or has other tokens than those that were answered.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads(file.metadata()["rows"])
                logits = {part: file.get_tensor(part) for part in about}
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise DaymillError(f"{path}: not the teacher's answers ({error}); run the prune stage again") from error
        rows = {}
        for part, pool in pools.items():
            place = {key: at for at, key in enumerate(pool.ids)}
            ids = about.get(part, {}).get("ids")
            if ids is None or not all(key in place for key in ids):
                raise DaymillError(f"{path}: answers other rows than those of {part}; run the prune stage again")
            rows[part] = pool.take([place[key] for key in ids])
            if fingerprint(rows[part]) != about[part]["hash"]:
                raise DaymillError(f"{path}: the rows of {part} have changed since; run the prune stage again")
        return Teacher(rows, logits)


def draw(rows: Rows, count: int, seed: int) -> Rows:
    """`count` rows by lot (all in their order, where there are no more)."""
    if count >= len(rows):
        return rows
    return rows.take(np.random.default_rng(seed).permutation(len(rows))[:count])


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
