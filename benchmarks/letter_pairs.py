"""Make data/quality/letter_pairs.txt anew: how likely each letter follows another, in 27 languages of Latin script.

Needs the word frequencies of the PyPI package wordfreq 3.1.1 (Speer 2022; CC BY-SA 4.0), which nothing else here uses:
python -m pip download wordfreq==3.1.1 --no-deps, then python -m benchmarks.letter_pairs wordfreq-3.1.1-py3-none-any.whl
"""

from __future__ import annotations

import gzip
import sys
import unicodedata
import zipfile
from pathlib import Path

import msgpack
import numpy as np

from data.quality.scripts import LETTER_STEP, LETTER_ZERO, table

OUT = Path("data/quality/letter_pairs.txt")
LANGUAGES = tuple("ca cs da de en es fi fil fr hu id is it lt lv ms nb nl pl pt ro sh sk sl sv tr vi".split())  # noqa: SIM905
SMOOTHING = 2e-4  # of a letter's followers, so that a pair that a language never has costs about 12 bits


def main(wheel: Path) -> None:
    lines = []
    with zipfile.ZipFile(wheel) as archive:
        for language in LANGUAGES:
            packed = archive.read(f"wordfreq/data/small_{language}.msgpack.gz")
            levels = np.round(-bits(msgpack.unpackb(gzip.decompress(packed))) / LETTER_STEP).astype(int)
            lines.append(f"{language} " + "".join(chr(LETTER_ZERO + level) for level in levels.ravel()))
    OUT.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")


def bits(buckets: list[list[str]]) -> np.ndarray:
    """log2 of the chance of each letter after each other one, 27 x 27; 0 is the edge of a word.

    The list is wordfreq's: its header, then the words whose frequency is 10 ** (-place / 100).
    """
    latin, counts = table().latin, np.zeros((27, 27))
    for place, words in enumerate(buckets[1:]):
        for word in words:
            composed = unicodedata.normalize("NFC", word)
            letters = [int(latin[ord(char)]) for char in composed if ord(char) < latin.size]
            if len(letters) == len(composed) and all(letters):
                for before, after in zip([0, *letters], [*letters, 0]):
                    counts[before, after] += 10 ** (-place / 100)
    chances = counts / counts.sum(axis=1, keepdims=True)
    return np.log2((1 - SMOOTHING * 27) * chances + SMOOTHING)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
