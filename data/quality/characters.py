"""What the characters of a text are and how they stand together, counted by compiled code over many texts at once."""

from __future__ import annotations

import numpy as np
from numba import njit

from data.quality import scripts

COUNTS = (
    "spaces",  # white space
    "symbols",  # neither letters, digits and marks nor white space
    "broken",  # left by a wrong decoding
    "invisible",  # formatting characters that show nothing
    "digits",
    "uppers",
    "lowers",
    "curly",  # { and }
    "dots",  # #, the ellipsis, and runs of three full stops
    "in_runs",  # characters in runs of five and more of the same
    "unspaced",  # characters of scripts without spaces
    "han",
    "rare_han",
    "letter_words",  # runs of letters, in scripts with spaces
    "letters",  # ... and their letters
    "latin_letters",
    "home_row",  # Latin letters of the middle row of a keyboard
    "latin_words",  # of three letters and more
    "vowelless",  # ... without a vowel
    "inner_caps",  # runs of letters with a capital after a small letter
    "mixed_words",  # runs of letters of two alphabets
    "inner_symbols",  # symbols between two letters that do not join words
    "pairs",  # of neighbors in Latin words, their edges included
    "fit",  # log2 of the chance of those pairs in the language that they fit best
    "markup",  # characters in tags and entities
    "chunks",  # between white space
    "letter_chunks",  # ... with a letter
    "address",  # characters of chunks that are web or mail addresses
    "encoded",  # characters of chunks that are encoded data
)
(
    SPACES, SYMBOLS, BROKEN_CHARS, INVISIBLES, DIGITS, UPPERS, LOWERS, CURLY, DOTS, IN_RUNS, UNSPACED, HANS, RARE_HANS,
    LETTER_WORDS, LETTERS, LATIN_LETTERS, HOME_ROW, LATIN_WORDS, VOWELLESS, INNER_CAPS, MIXED_WORDS, INNER_SYMBOLS,
    PAIRS, FIT, MARKUP, CHUNKS, LETTER_CHUNKS, ADDRESS, ENCODED,
) = range(len(COUNTS))  # fmt: skip

ALNUM, LETTER, DIGIT, MARK, SPACE = scripts.ALNUM, scripts.LETTER, scripts.DIGIT, scripts.MARK, scripts.SPACE
ONE_TOKEN, UPPER, LOWER, BROKEN = scripts.ONE_TOKEN, scripts.UPPER, scripts.LOWER, scripts.BROKEN
UTF8_TAIL, HAN, RARE_HAN, INVISIBLE = scripts.UTF8_TAIL, scripts.HAN, scripts.RARE_HAN, scripts.INVISIBLE

RUN = 5
MARKS = 3  # that a letter of any script carries; more are stacked for show or by a wrong decoding
TAG_CHARS, ENTITY_CHARS = 2_000, 10
ENCODED_CHARS = 20  # of a chunk, from which on its make-up tells that it is encoded
SMALL, LARGE, FIGURE, SIGN = 1, 2, 3, 4

ASCII_KIND = np.zeros(128, np.uint8)
ASCII_KIND[33:127] = SIGN
ASCII_KIND[97:123], ASCII_KIND[65:91], ASCII_KIND[48:58] = SMALL, LARGE, FIGURE
VOWEL, HOME = np.zeros(27, np.bool_), np.zeros(27, np.bool_)
VOWEL[[ord(letter) - 96 for letter in "aeiouyw"]] = True  # w is one in Welsh
HOME[[ord(letter) - 96 for letter in "asdfghjkl"]] = True
# Between letters these are writing: elisions, compounds, abbreviations, addresses, alternatives.
JOINS = np.zeros(0x2100, np.bool_)
JOINS[[ord(char) for char in "'-./@:_&,;+=\u2019\u2010\u2011\u2013\u2014\u00b7\u00ad\u05f4"]] = True


@njit(cache=True, nogil=True)
def count_characters(codes, offsets, flags, latin, chances, out):  # type: ignore[no-untyped-def]
    """Fill a row of `out` (texts x COUNTS, float64, zeros) for each text codes[offsets[i] : offsets[i + 1]]."""
    fits = np.empty(chances.shape[1])
    for text in range(offsets.size - 1):
        row, counts = codes[offsets[text] : offsets[text + 1]], out[text]
        count_kinds(row, flags, counts)
        count_letters(row, flags, latin, chances, fits, counts)
        count_markup(row, counts)
        count_chunks(row, flags, counts)


@njit(cache=True, nogil=True)
def count_kinds(row, flags, counts):  # type: ignore[no-untyped-def]
    """What each character is alone, runs of the same one, and UTF-8 that was read as a western charset."""
    run = stacked = 0
    for place in range(row.size):
        code = row[place]
        flag = flags[code] if code < flags.size else 0
        counts[SPACES] += flag & SPACE != 0
        counts[SYMBOLS] += flag & (ALNUM | SPACE | MARK) == 0
        counts[INVISIBLES] += flag & INVISIBLE != 0
        counts[DIGITS] += flag & DIGIT != 0
        counts[UPPERS] += flag & UPPER != 0
        counts[LOWERS] += flag & LOWER != 0
        counts[UNSPACED] += flag & ONE_TOKEN != 0
        counts[HANS] += flag & HAN != 0
        counts[RARE_HANS] += flag & RARE_HAN != 0
        counts[CURLY] += code == 123 or code == 125
        third_stop = code == 46 and place > 1 and row[place - 1] == 46 and row[place - 2] == 46
        counts[DOTS] += code == 35 or code == 0x2026 or (third_stop and (place == 2 or row[place - 3] != 46))
        if flag & SPACE == 0:
            run = run + 1 if place and row[place - 1] == code else 1
            if run >= RUN:
                counts[IN_RUNS] += RUN if run == RUN else 1
        stacked = stacked + 1 if flag & MARK else 0
        if flag & BROKEN or stacked > MARKS:
            counts[BROKEN_CHARS] += 1
        elif 0xC2 <= code <= 0xF4:  # the first byte of a character in UTF-8, if the right tail follows
            tail = 1 if code < 0xE0 else 2 if code < 0xF0 else 3
            whole, controls = place + tail < row.size, 0
            for step in range(1, tail + 1):
                if whole:
                    after = row[place + step]
                    whole = after < flags.size and flags[after] & UTF8_TAIL != 0
                    controls += whole and flags[after] & BROKEN != 0
            if whole:
                counts[BROKEN_CHARS] += 1 + tail - controls  # controls are counted where they stand


@njit(cache=True, nogil=True)
def count_letters(row, flags, latin, chances, fits, counts):  # type: ignore[no-untyped-def]
    """Runs of letters with their marks: the words of scripts with spaces."""
    fits[:] = 0.0
    place = 0
    while place < row.size:
        code = row[place]
        flag = flags[code] if code < flags.size else 0
        if not flag & ALNUM or flag & (DIGIT | ONE_TOKEN):
            place += 1
            continue
        start, letters, base_letters, vowels = place, 0, 0, 0
        script, capital, two_scripts = 0, False, False
        while place < row.size:
            code = row[place]
            flag = flags[code] if code < flags.size else 0
            if flag & (DIGIT | ONE_TOKEN) or not flag & (ALNUM | MARK):
                break
            if flag & ALNUM:
                letters += 1
                base = latin[code]
                base_letters += base > 0
                vowels += VOWEL[base]
                counts[HOME_ROW] += HOME[base]
                if flag & UPPER and place > start and flags[row[place - 1]] & LOWER:
                    capital = True
                if flag & LETTER and code != 0xB5:  # the micro sign is a Greek letter in Latin text
                    kind = 1 if code < 0x250 or 0x1E00 <= code < 0x1F00 else 2 if code < 0x530 else 3
                    two_scripts = two_scripts or 0 < script != kind
                    script = kind
            place += 1
        counts[LETTER_WORDS] += 1
        counts[LETTERS] += letters
        counts[LATIN_LETTERS] += base_letters
        counts[INNER_CAPS] += capital
        counts[MIXED_WORDS] += two_scripts
        if base_letters == letters and letters >= 3:
            counts[LATIN_WORDS] += 1
            counts[VOWELLESS] += vowels == 0
        if base_letters == letters and letters >= 2:
            counts[PAIRS] += letters + 1
            before = 0
            for at in range(start, place):
                after = latin[row[at]]
                if after:
                    fits += chances[before * 27 + after]
                    before = after
            fits += chances[before * 27]
        if place + 1 < row.size:
            code, after = row[place], row[place + 1]
            flag = flags[code] if code < flags.size else 0
            symbol = flag & (ALNUM | SPACE | INVISIBLE | ONE_TOKEN) == 0 and not (code < JOINS.size and JOINS[code])
            counts[INNER_SYMBOLS] += symbol and after < flags.size and flags[after] & LETTER != 0
    counts[FIT] = fits.max()


@njit(cache=True, nogil=True)
def count_markup(row, counts):  # type: ignore[no-untyped-def]
    """Characters of tags, from < to >, and of entities, from & to ;."""
    place = 0
    while place < row.size - 1:
        code, after, end = row[place], row[place + 1], 0
        if code == 60 and (after == 47 or after == 33 or (after < 128 and 0 < ASCII_KIND[after] < FIGURE)):
            end = place + 1
            while end < row.size and end - place < TAG_CHARS and row[end] != 62 and row[end] != 60:
                end += 1
            end = end + 1 if end < row.size and row[end] == 62 else 0
        elif code == 38:
            end = place + 1
            while end < row.size and end - place < ENTITY_CHARS and row[end] < 128:
                if row[end] != 35 and not 0 < ASCII_KIND[row[end]] < SIGN:
                    break
                end += 1
            end = end + 1 if end < row.size and row[end] == 59 and end - place > 2 else 0
        if end:
            counts[MARKUP] += end - place
        place = max(place + 1, end)


@njit(cache=True, nogil=True)
def count_chunks(row, flags, counts):  # type: ignore[no-untyped-def]
    """What stands between white space: words in the eyes of Gopher, addresses, encoded data.

    A long chunk of ASCII is encoded where its kinds of characters change every fourth one (base64, uuencode) or where
    all are hexadecimal; escapes (=3D, %20, \\x41, \\u0041) are encoded wherever they stand.
    """
    place = 0
    while place < row.size:
        code = row[place]
        if code < flags.size and flags[code] & SPACE:
            place += 1
            continue
        start, letter, address, ascii_only = place, False, False, True
        changes = figures = large = hexes = signs = escaped = last = 0
        while place < row.size:
            code = row[place]
            flag = flags[code] if code < flags.size else 0
            if flag & SPACE:
                break
            letter = letter or flag & LETTER != 0
            ascii_only = ascii_only and code < 128
            if code < 128:
                kind = ASCII_KIND[code]
                changes += kind != last and last != 0
                last = kind
                large += kind == LARGE
                figures += kind == FIGURE
                signs += kind == SIGN
                hexes += kind == FIGURE or 97 <= code <= 102 or 65 <= code <= 70
                address = address or code == 64
                if place + 2 < row.size and row[place + 1] < 128 and row[place + 2] < 128:
                    first, second = row[place + 1], row[place + 2]
                    address = address or (code == 58 and first == 47 and second == 47)
                    if code == 92:
                        escaped += 4 if first == 120 else 6 if first == 117 else 0
                    elif code == 61 or code == 37:
                        high = ASCII_KIND[first] == FIGURE or 65 <= first <= 70
                        escaped += 3 if high and (ASCII_KIND[second] == FIGURE or 65 <= second <= 70) else 0
            place += 1
        length = place - start
        counts[CHUNKS] += 1
        counts[LETTER_CHUNKS] += letter
        if not address and length > 4:
            address = row[start] | 32 == 119 and row[start + 1] | 32 == 119 and row[start + 3] == 46
        if address:
            counts[ADDRESS] += length
        elif length < ENCODED_CHARS or not ascii_only:
            counts[ENCODED] += min(length, escaped)
        else:
            varied = 4 * changes >= length and 4 * signs <= 3 * length and large + figures > 1
            counts[ENCODED] += length if varied or (figures and hexes == length) else min(length, escaped)
