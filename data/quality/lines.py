"""Lines and paragraphs of many texts, counted by compiled code: how they begin and end, and which were there before."""

from __future__ import annotations

import numpy as np
from numba import njit

from data.quality import scripts
from data.quality.hashing import extended, find_place, mask_for

COUNTS = (
    "newlines",
    "lines",  # that are not empty
    "bullets",  # lines that begin with a bullet
    "ellipses",  # lines that end with an ellipsis
    "terminals",  # lines that end as sentences do
    "short",  # lines of 30 characters and fewer; one of a script without spaces counts as two
    "line_chars",
    "repeated_chars",  # characters of lines that were there before
    "paragraphs",  # between empty lines
    "repeated_paragraphs",
    "open_end",  # 1 where the text does not end as a sentence does
)
(
    NEWLINES, LINES, BULLETS, ELLIPSES, TERMINALS, SHORT, LINE_CHARS, REPEATED_CHARS, PARAGRAPHS, REPEATED_PARAGRAPHS,
    OPEN_END,
) = range(len(COUNTS))  # fmt: skip

SPACE, ONE_TOKEN = scripts.SPACE, scripts.ONE_TOKEN
TERMINAL, CLOSER, BULLET = scripts.TERMINAL, scripts.CLOSER, scripts.BULLET
SHORT_CHARS = 30  # FineWeb's
NO_CODE = 1 << 32  # keeps a paragraph's hash apart from a line's


@njit(cache=True, nogil=True)
def count_lines(codes, offsets, flags, out):  # type: ignore[no-untyped-def]
    """Fill a row of `out` (texts x COUNTS, float64, zeros) for each text codes[offsets[i] : offsets[i + 1]]."""
    longest = 1
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    places = np.int64(mask_for(longest + 2)) + 1
    slots, stamps, counted = np.empty(places, np.uint64), np.zeros(places, np.int64), np.empty(places, np.int64)
    for text in range(offsets.size - 1):
        row, counts = codes[offsets[text] : offsets[text + 1]], out[text]
        mask = mask_for(row.size + 2)
        paragraph, end = np.uint64(0), -1
        while end < row.size:
            begin = end + 1
            end = line_end(row, begin)
            counts[NEWLINES] += end < row.size
            key, length = count_line(row[begin:end], flags, counts)
            if length:
                place = find_place(key, slots, stamps, counted, text + 1, mask)
                counts[REPEATED_CHARS] += length if counted[place] else 0
                counted[place] += 1
                paragraph = extended(paragraph, key)
            if (length == 0 or end >= row.size) and paragraph != 0:
                counts[PARAGRAPHS] += 1
                place = find_place(extended(paragraph, NO_CODE), slots, stamps, counted, text + 1, mask)
                counts[REPEATED_PARAGRAPHS] += counted[place] > 0
                counted[place] += 1
                paragraph = np.uint64(0)
            if end + 1 < row.size and row[end] == 13 and row[end + 1] == 10:
                end += 1
        counts[OPEN_END] = row.size == 0 or not ends_sentence(row, flags)


@njit(cache=True, nogil=True)
def line_end(row, begin):  # type: ignore[no-untyped-def]
    """The place of the next line end (those of str.splitlines), or the end of the text."""
    for place in range(begin, row.size):
        code = row[place]
        if 10 <= code <= 13 or 28 <= code <= 30 or code == 0x85 or code == 0x2028 or code == 0x2029:
            return place
    return row.size


@njit(cache=True, nogil=True)
def count_line(line, flags, counts):  # type: ignore[no-untyped-def]
    """Count a line by its looks; return its hash and its length without white space at its ends."""
    begin, end = 0, line.size
    while begin < end and line[begin] < flags.size and flags[line[begin]] & SPACE:
        begin += 1
    while end > begin and line[end - 1] < flags.size and flags[line[end - 1]] & SPACE:
        end -= 1
    line, key, wide = line[begin:end], np.uint64(0), 0
    if line.size == 0:
        return key, 0
    for code in line:
        key = extended(key, code)
        wide += code < flags.size and flags[code] & ONE_TOKEN != 0
    dots = line.size >= 3 and line[-1] == 46 and line[-2] == 46 and line[-3] == 46
    counts[LINES] += 1
    counts[LINE_CHARS] += line.size
    counts[BULLETS] += line[0] < flags.size and flags[line[0]] & BULLET != 0
    counts[ELLIPSES] += dots or line[-1] == 0x2026
    counts[TERMINALS] += ends_sentence(line, flags)
    counts[SHORT] += line.size + wide <= SHORT_CHARS
    return key, line.size


@njit(cache=True, nogil=True)
def ends_sentence(line, flags):  # type: ignore[no-untyped-def]
    """Whether the last character, quotes and brackets left out, ends a sentence."""
    place = line.size - 1
    while place > 0 and line[place] < flags.size and flags[line[place]] & (CLOSER | SPACE):
        place -= 1
    return line[place] < flags.size and flags[line[place]] & TERMINAL != 0
