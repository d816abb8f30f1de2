"""What a text measures: every number that a quality rule can be about, taken in one pass and stored.

Nothing is decided here: a changed threshold decides anew over the stored numbers (data/quality/rules.py). All measures
hold for any script: a character of a script without spaces is a token of its own, and half a word. Shares are between
0 and 1; a measure is null where a text has nothing to measure, and then no rule about it applies.

Sources: Gopher (Rae et al. 2021, table A1), C4 (Raffel et al. 2020, section 2.2), FineWeb (Penedo et al. 2024, section
3.5), RedPajama-V2's quality annotations (Weber et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from data.quality import kernel
from data.quality.phrases import BOILERPLATE, LOREM_IPSUM, STOP_WORDS
from data.quality.scripts import table

MEANING = {
    "words": "tokens; two characters of a script without spaces make one (Gopher)",
}

COUNTS = frozenset(("lines", "sentences", "stop_words", "lorem_ipsum"))
MEASURES = pa.schema(
    [("chars", pa.int32())] + [(name, pa.int32() if name in COUNTS else pa.float32()) for name in kernel.COLUMNS]
)


def measure_batch(texts: Sequence[str | None]) -> pa.Table:
    """A row of MEASURES for each text, in order; a missing text measures as an empty one. White space at both ends
    of a text does not count."""
    stripped = [(text or "").strip() for text in texts]
    chars = np.fromiter(map(len, stripped), np.int64, len(stripped))
    offsets = np.concatenate([[0], np.cumsum(chars)])
    codes = np.frombuffer("".join(stripped).encode("utf-32-le", "surrogatepass"), np.uint32)
    out = np.empty((len(stripped), len(kernel.COLUMNS)), np.float32)
    characters, (keys, values) = table(), word_table()
    kernel.measure_texts(codes, offsets, characters.flags, characters.folded, characters.latin, keys, values, out)
    return as_table(chars, out)


def measure(text: str) -> dict[str, Any]:
    """The measures of one text by name. For many texts measure_batch is hundreds of times faster a text."""
    return measure_batch([text]).to_pylist()[0]


def as_table(chars: np.ndarray, measured: np.ndarray) -> pa.Table:
    columns = [pa.array(chars, pa.int32())]
    for place, name in enumerate(kernel.COLUMNS):
        column = np.ascontiguousarray(measured[:, place])
        if name in COUNTS:
            columns.append(pa.array(column.astype(np.int32)))
        else:
            columns.append(pa.array(column, pa.float32(), from_pandas=True))  # NaN becomes null
    return pa.table(columns, schema=MEASURES)


@cache
def word_table() -> tuple[np.ndarray, np.ndarray]:
    """Stop words, boilerplate and lorem ipsum by the hashes that the kernel gives to runs of tokens."""
    meant = {word: kernel.STOP + place for place, word in enumerate(STOP_WORDS)}
    meant |= dict.fromkeys(BOILERPLATE, kernel.PHRASE) | dict.fromkeys(LOREM_IPSUM, kernel.LOREM)
    keys, values = np.zeros(2048, np.uint64), np.zeros(2048, np.int64)
    for phrase, meaning in meant.items():
        key = gram_hash(phrase)
        place = int(key) % len(keys)
        while keys[place]:
            place = (place + 1) % len(keys)
        keys[place], values[place] = key, meaning
    return keys, values


def gram_hash(phrase: str) -> np.uint64:
    """The hash of a run of tokens, as in the kernel."""
    codes = np.frombuffer(phrase.encode("utf-32-le"), np.uint32)
    hashes, sizes, starts = (np.empty(len(codes), kind) for kind in (np.uint64, np.int64, np.int64))
    count = kernel.tokenize(codes, table().flags, table().folded, hashes, sizes, starts)
    return kernel.gram(hashes, count)
