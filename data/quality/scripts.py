"""What each character is: one table for every measure, so that a text is looked at once whatever its script."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Thai to Myanmar, Khmer, kana, Han (with its extensions): one character, one token.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")

# Flags of the table. A character may carry several.
ALNUM, LETTER, DIGIT, MARK = 1, 2, 4, 8
SPACE, ONE_TOKEN, UPPER, LOWER = 16, 32, 64, 128
TERMINAL, CLOSER, BULLET, BROKEN = 256, 512, 1024, 2048
UTF8_TAIL, HAN, RARE_HAN, INVISIBLE = 4096, 8192, 16384, 32768

# Ends of sentences: Latin, Greek and Arabic question marks, danda, Han, Ethiopic, Armenian, Khmer, Burmese.
TERMINALS = ".!?\u2026\u203d\u061f\u06d4\u0964\u0965\u3002\uff01\uff1f\uff0e\uff61\u1362\u0589\u17d4\u104b\u037e"
CLOSERS = "\"')]}*_>\u2019\u201d\u00bb\u203a\u300d\u300f\u3011\u300b\uff09\uff3d"
# C4's bullets (Raffel et al. 2020) and FineWeb's.
BULLETS = "-*\u2022\u2023\u25b6\u25c0\u25e6\u25a0\u25a1\u25aa\u25ab\u2013\u2014\u00b7\u25cf\u25cb"
CODES = 0x32400  # the last character of any script lies below; what lies above is nothing to any measure


# letter_pairs.txt writes -log2 of a chance in steps of a fifth of a bit, as characters from "0" on.
LETTER_STEP, LETTER_ZERO = 0.2, 48


class Table(NamedTuple):
    """By code point: flags (uint16), folded code point (uint32), base letter a-z as 1 to 26 or 0 (uint8)."""

    flags: np.ndarray
    folded: np.ndarray
    latin: np.ndarray


@cache
def table() -> Table:
    """The table; built once a process, in a fifth of a second."""
    flags = np.zeros(CODES, np.uint16)
    folded = np.arange(CODES, dtype=np.uint32)
    latin = np.zeros(CODES, np.uint8)
    flags[0x20000:] = ALNUM | LETTER  # nothing but Han
    for code in range(0x20000):
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Cn":
            continue
        flag = ALNUM * char.isalnum() | SPACE * char.isspace() | DIGIT * (category == "Nd")
        if category[0] == "L":
            flag |= LETTER
            if category == "Ll":
                flag |= LOWER
            elif category in {"Lu", "Lt"}:
                flag |= UPPER
        elif category[0] == "M":
            flag |= MARK
        elif category == "Cf":
            flag |= INVISIBLE
        flags[code] = flag
        lower = char.lower()
        if len(lower) == 1 and lower != char:
            folded[code] = ord(lower)
        if flag & LETTER and code < 0x2100:
            base = unicodedata.normalize("NFD", lower)[0]
            if "a" <= base <= "z":
                latin[code] = ord(base) - 96
    unspaced = re.compile(f"[{UNSPACED}]")
    flags[[code for code in range(CODES) if unspaced.match(chr(code))]] |= ONE_TOKEN
    for chars, flag in ((TERMINALS, TERMINAL), (CLOSERS, CLOSER), (BULLETS, BULLET)):
        flags[[ord(char) for char in chars]] |= flag
    # Replacement and control characters; tab, line ends and the separators of old records are none.
    flags[[0xFFFD, *range(9), 0x0B, *range(0x0E, 0x20), *range(0x7F, 0xA0)]] |= BROKEN
    flags[list(_read_as_western(range(0x80, 0xC0)))] |= UTF8_TAIL
    han = [*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000), *range(0xF900, 0xFB00), *range(0x20000, 0x32400)]
    flags[han] |= HAN | RARE_HAN
    flags[sorted(_common_han())] &= ~np.uint16(RARE_HAN)
    latin[[ord(char) for char in "ßæøœđłıħ"]] = [ord(base) - 96 for base in "saoodlih"]
    latin[[ord(char) for char in "ÆØŒĐŁĦ"]] = [ord(base) - 96 for base in "aoodlh"]
    return Table(flags, folded, latin)


@cache
def letter_pairs() -> np.ndarray:
    """log2 of the chance of a letter after another: [27 * 27 pairs, 27 languages] float32; letter 0 is a word's edge.

    Made by benchmarks/letter_pairs.py from the word frequencies of 27 languages of Latin script.
    """
    lines = Path(__file__).with_name("letter_pairs.txt").read_text(encoding="ascii").splitlines()
    levels = np.array([[ord(char) - LETTER_ZERO for char in line.split(" ")[1]] for line in lines], np.float32)
    return np.ascontiguousarray(-LETTER_STEP * levels.T, np.float32)


def _read_as_western(values: range) -> set[int]:
    """The code points that bytes become when they are read as Latin-1 or Windows-1252."""
    read = set(values)
    for value in values:
        try:
            read.add(ord(bytes([value]).decode("cp1252")))
        except UnicodeDecodeError:
            continue  # five bytes mean nothing in Windows-1252
    return read


def _common_han() -> set[int]:
    """Characters of the first levels of GB 2312, Big5 and JIS X 0208: everyday writing."""
    common: set[int] = set()
    for codec, leads in (("gb2312", range(0xB0, 0xD8)), ("big5", range(0xA4, 0xC7)), ("euc_jp", range(0xB0, 0xD0))):
        for lead in leads:
            for trail in range(0x40, 0xFF):
                decoded = bytes([lead, trail]).decode(codec, "ignore")
                if len(decoded) == 1:
                    common.add(ord(decoded))
    # JIS and Big5 rows hold other signs too; they are no Han, so clearing their flag changes nothing
    return {code for code in common if code < CODES}
