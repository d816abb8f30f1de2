"""Golden inputs with the outputs of the bundle's own engine: replayed before a server says it is ready.

No record is shipped: token ids beside their tokenizer are as good as the text, so the realistic goldens have the
lengths of test rows and tokens drawn from all of them together; the texts are made up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.engine import Engine, Ids
from serving.manifest import GOLDENS, BundleError

# Edges of encoding and length that a model meets in service, and three everyday sentences.
MADE_UP = (
    "",
    " \n\t ",
    "Hello, are we still on for lunch on Thursday?",
    "CONGRATULATIONS!!! You have been selected, claim your $1,000,000 prize now",
    "The minutes of the meeting are attached; please send corrections by Monday.",
    "Zażółć gęślą jaźń, 你好，世界, مرحبا بالعالم, 🙂🙃",
    "no\x00control\x1bcharacters\x7f",
    "<|pad|><|end|> tokens spelled out",
    "word " * 4000,
)


def make_goldens(engine: Engine, texts: Sequence[str], rows: int = 8) -> dict[str, Any]:
    """goldens.json: `rows` mixtures as long as test rows from the shortest to the longest, and the made-up texts.

    Each has its token ids and the logits [C] of the engine, one row a model call. The same texts in any order give
    the same goldens.
    """
    inputs: list[dict[str, Any]] = [{"ids": ids} for ids in mixtures(engine.encode(sorted(texts)), rows)]
    inputs += [{"text": text, "ids": ids.tolist()} for text, ids in zip(MADE_UP, engine.encode(MADE_UP))]
    for golden in inputs:
        golden["logits"] = [round(float(value), 6) for value in engine.logits([_ids(golden)])[0]]
    return {"goldens": inputs}


def mixtures(encoded: Sequence[Ids], rows: int) -> list[list[int]]:
    """Token ids of `rows` made-up inputs: lengths from quantiles of the encoded texts, tokens from all of them."""
    if not encoded:
        return []
    pool, lengths = np.concatenate(encoded), np.sort([len(ids) for ids in encoded])
    draw = np.random.default_rng(0)
    picked = lengths[np.linspace(0, len(lengths) - 1, rows).round().astype(int)]
    return [draw.choice(pool, size=int(length)).tolist() for length in picked]


def verify_goldens(engine: Engine) -> float:
    """Replay a bundle's goldens and return the largest logit difference.

    Logits are compared, not labels: on an easy task a broken model can still give every label.
    Raises BundleError where a text encodes to other tokens or a logit is further off than the manifest's tolerance.
    """
    goldens = load_goldens(engine.bundle.folder)
    where = f"bundle {engine.manifest.version} on {engine.runtime}"
    worst = 0.0
    for at, golden in enumerate(goldens):
        ids = _ids(golden)
        if "text" in golden and not np.array_equal(engine.encode([golden["text"]])[0], ids):
            raise BundleError(f"{where}: golden {at} encodes to other tokens than at build time")
        expected = np.asarray([golden["logits"]], dtype=np.float32)
        found = engine.logits([ids])
        difference = float(np.abs(found - expected).max())
        if not difference <= engine.manifest.tolerance:  # also true of NaN
            raise BundleError(
                f"{where}: golden {at} is off by {difference:.4g} in a logit; tolerance {engine.manifest.tolerance:g}"
            )
        worst = max(worst, difference)
    return worst


def load_goldens(folder: Path) -> list[dict[str, Any]]:
    goldens: list[dict[str, Any]] = json.loads((folder / GOLDENS).read_text(encoding="utf-8"))["goldens"]
    if not goldens:
        raise BundleError(f"bundle {folder}: {GOLDENS} holds no golden; a server could not check its answers")
    return goldens


def _ids(golden: dict[str, Any]) -> Ids:
    return np.asarray(golden["ids"], dtype=np.int32)
