"""Which language a text is in: py3langid's model (langid.py, Lui and Baldwin 2012), 140 languages, compiled.

The probabilities are the package's own, normalized as it does with `norm_probs`; walking its automaton and adding up
its table here is ten times faster, and adds in one fixed order.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

UNDETERMINED = "und"
NO_LANGUAGE = "zxx"
MAX_CHARS = 1_000  # of a text; more never changed the answer by much and costs its length
MIN_BYTES = 20  # of UTF-8: three words of English, seven Han characters; below, a guess would be no better than chance


class Model(NamedTuple):
    """The automaton over bytes (next state by state and byte, feature by state or -1) and the log chances."""

    rows: NDArray[np.int64]  # where a state's 256 next states begin
    following: NDArray[np.uint32]
    feature: NDArray[np.int32]
    chances: NDArray[np.float16]  # [features, classes]
    priors: NDArray[np.float32]
    classes: list[str]
    aliases: list[tuple[int, int]]  # classes that are the same language: the first takes the second's share


def identify(texts: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Language (ISO 639 code, "zxx" for no language, "und" where a text is too short) and its probability, float32."""
    read = [as_bytes(text) for text in texts]
    model = load()
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in read])]).astype(np.int64)
    ends, features, counts = walk(
        np.frombuffer(b"".join(read), np.uint8), offsets, model.rows, model.following, model.feature, len(model.chances)
    )
    met = np.zeros(len(model.chances), np.bool_)
    met[features] = True
    used, columns = np.flatnonzero(met), np.cumsum(met)[features] - 1
    weights = csr_matrix((np.log1p(counts), columns, ends), shape=(len(read), len(used)))
    # half precision saves 30 MB a process; only the features of this batch are widened
    scores = weights @ model.chances[used].astype(np.float32) + model.priors
    best, chance = np.full(len(read), -1), np.full(len(read), np.nan, np.float32)
    lengths = np.diff(offsets)
    known = (lengths >= MIN_BYTES) & (np.diff(ends) > 0)
    likely = normalized(scores[known], lengths[known], model.aliases)
    best[known], chance[known] = likely.argmax(axis=1), likely.max(axis=1, initial=0)
    names = [model.classes[number] if number >= 0 else UNDETERMINED for number in best]
    return pa.array(names, pa.string()), pa.array(chance, pa.float32(), from_pandas=True)


def normalized(scores: NDArray[Any], lengths: NDArray[Any], aliases: Sequence[tuple[int, int]]) -> NDArray[np.float32]:
    """Probabilities; a temperature of the root of the bytes keeps them calibrated across lengths, as in the package."""
    tempered = scores / np.sqrt(lengths)[:, None]
    chances = np.exp(tempered - tempered.max(axis=1, keepdims=True, initial=-np.inf))
    chances /= chances.sum(axis=1, keepdims=True)
    for first, second in aliases:
        chances[:, first] += chances[:, second]
        chances[:, second] = 0
    return chances.astype(np.float32)


def as_bytes(text: str) -> bytes:
    """The start of a text as the model reads it."""
    start = text[:MAX_CHARS]
    if start.isupper():
        start = start.lower()
    return (start if start.isascii() else unicodedata.normalize("NFC", start)).encode("utf-8", "surrogatepass")


@cache
def load() -> Model:
    """The model from the installed package (no pickle: arrays in a compressed file); about a second, once a process."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    package = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    first: dict[str, int] = {}
    aliases = [(first.setdefault(name, at), at) for at, name in enumerate(package.nb_classes)]
    return Model(
        rows=np.asarray(package.tk_row, np.int64) * 256,
        following=np.asarray(package.tk_nextmove, np.uint32),
        feature=np.asarray(package.tk_output, np.int32),
        chances=package.nb_ptc,
        priors=package.nb_pc,
        classes=list(package.nb_classes),
        aliases=[pair for pair in aliases if pair[0] != pair[1]],
    )


@njit(cache=True, nogil=True)
def walk(codes, offsets, rows, following, feature, features):  # type: ignore[no-untyped-def]
    """How often each text meets each feature: where the texts' stretches end, features and counts, as a CSR matrix."""
    ends = np.zeros(offsets.size, np.int64)
    found, counts = np.empty(codes.size, np.int64), np.empty(codes.size, np.float32)
    place_of, total = np.full(features, -1, np.int64), 0
    for text in range(offsets.size - 1):
        state, begin = 0, total
        for place in range(offsets[text], offsets[text + 1]):
            state = following[rows[state] + codes[place]]
            met = feature[state]
            if met >= 0:
                at = place_of[met]
                if at < begin:
                    at = place_of[met] = total
                    found[total], counts[total] = met, 0
                    total += 1
                counts[at] += 1
        ends[text + 1] = total
    return ends, found[:total], counts[:total]
