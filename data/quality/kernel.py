"""One pass over the code points of many texts that takes every measure: compiled, since a text has a thousand of them.

Words, lines and sentences are found on the way and kept as hashes, so that repetition is counted without making a
single string. What each measure means stands in data/quality/measures.py, in the order of COLUMNS here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from data.quality import scripts

COLUMNS = (
    "words",
    "lines",
    "sentences",
    "symbol_ratio",
    "broken_ratio",
    "invisible_ratio",
    "digit_ratio",
    "upper_ratio",
    "space_ratio",
    "mean_word_length",
    "mean_sentence_words",
    "unique_words",
    "word_entropy",
    "stop_words",
    "stop_word_share",
    "alpha_words",
    "symbol_words",
    "inner_symbols",
    "inner_caps",
    "char_runs",
    "vowelless_words",
    "home_row",
    "mixed_script_words",
    "rare_han",
    "bullet_lines",
    "ellipsis_lines",
    "terminal_lines",
    "short_lines",
    "newline_ratio",
    "repeated_lines",
    "repeated_paragraphs",
    "repeated_ngrams",
    "top_2gram",
    "top_3gram",
    "top_4gram",
    "repeated_5grams",
    "repeated_6grams",
    "repeated_7grams",
    "repeated_8grams",
    "repeated_9grams",
    "repeated_10grams",
    "boilerplate",
    "lorem_ipsum",
    "curly_ratio",
    "markup_ratio",
    "url_ratio",
    "encoded_ratio",
    "open_end",
)
AT = {name: place for place, name in enumerate(COLUMNS)}
NONE = np.float32(np.nan)  # of a measure that a text has nothing for: no rule judges it

# Repetition is only judged where there is enough of a text to repeat itself.
MIN_LINES, MIN_TOKENS = 4, 20
MIN_LETTERS = 20  # for shares of letters: fewer say nothing
PHRASE_REACH = 10  # tokens on both sides that a boilerplate phrase speaks for, within its sentence
MAX_PHRASE = 6
STOP, PHRASE, LOREM = 0, 1_000, 2_000  # what the second column of the word table means

PRIME = np.uint64(0x9E3779B97F4A7C15)
SHORT_LINE = 30

ALNUM, LETTER, DIGIT, MARK = scripts.ALNUM, scripts.LETTER, scripts.DIGIT, scripts.MARK
SPACE, ONE_TOKEN, UPPER, LOWER = scripts.SPACE, scripts.ONE_TOKEN, scripts.UPPER, scripts.LOWER
TERMINAL, CLOSER, BULLET, BROKEN = scripts.TERMINAL, scripts.CLOSER, scripts.BULLET, scripts.BROKEN
UTF8_TAIL, HAN, RARE_HAN, INVISIBLE = scripts.UTF8_TAIL, scripts.HAN, scripts.RARE_HAN, scripts.INVISIBLE
ASCII_CLASS = np.zeros(128, np.uint8)  # 1 lower, 2 upper, 3 digit, 4 other visible, 0 none
ASCII_CLASS[33:127] = 4
ASCII_CLASS[97:123], ASCII_CLASS[65:91], ASCII_CLASS[48:58] = 1, 2, 3
VOWEL, HOME = np.zeros(27, np.bool_), np.zeros(27, np.bool_)
VOWEL[[ord(letter) - 96 for letter in "aeiouyw"]] = True  # w: Welsh
HOME[[ord(letter) - 96 for letter in "asdfghjkl"]] = True
# Between letters these are writing: elisions, compounds, abbreviations, addresses, alternatives.
JOINERS = np.zeros(0x2100, np.bool_)
JOINERS[[ord(char) for char in "'-./@:_&,;+=\u2019\u2010\u2011\u2013\u2014\u00b7\u00ad\u05f4"]] = True


@njit(cache=True, nogil=True)
def mixed(value: np.uint64) -> np.uint64:
    """SplitMix64's last steps: every bit of the input moves every bit of the output."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def tokenize(codes, flags, folded, hashes, sizes, starts):  # type: ignore[no-untyped-def]
    """Fill hash, length in characters and start of every token; return how many there are.

    A token is a run of word characters with their marks, or one character of a script without spaces.
    """
    count, inside = 0, False
    for place in range(codes.size):
        code = codes[place]
        flag = flags[code] if code < flags.size else 0
        if flag & ONE_TOKEN:
            hashes[count], sizes[count], starts[count] = mixed(np.uint64(code) + PRIME), 1, place
            count += 1
            inside = False
        elif flag & ALNUM or code == 95 or (inside and flag & MARK):
            letter = np.uint64(folded[code])
            if not inside:
                hashes[count], sizes[count], starts[count] = np.uint64(0), 0, place
                count += 1
                inside = True
            hashes[count - 1] = mixed((hashes[count - 1] + letter + np.uint64(1)) * PRIME)
            sizes[count - 1] += 1
        else:
            inside = False
    return count


@njit(cache=True, nogil=True)
def longer(key, n, last):  # type: ignore[no-untyped-def]
    """The hash of a run of n tokens from that of its first n - 1 and of its last token."""
    return mixed(((key + np.uint64(n)) * PRIME) ^ last)


@njit(cache=True, nogil=True)
def gram(hashes, count):  # type: ignore[no-untyped-def]
    """The hash of a run of `count` tokens."""
    key = hashes[0]
    for token in range(1, count):
        key = longer(key, token + 1, hashes[token])
    return key


@njit(cache=True, nogil=True)
def look_up(keys, values, key):  # type: ignore[no-untyped-def]
    """The value of a key in a table of a power of two of places, or -1."""
    mask = np.uint64(keys.size - 1)
    place = key & mask
    while keys[place] != 0:
        if keys[place] == key:
            return values[place]
        place = (place + np.uint64(1)) & mask
    return -1


@njit(cache=True, nogil=True)
def repetition(grams, count, sizes, n, slots, stamps, counts, stamp, mask, result):  # type: ignore[no-untyped-def]
    """Of `count` runs of n tokens: runs seen before, characters that such runs cover, characters of the top run."""
    again, covered, top, top_chars, reach, chars = 0, 0, 1, 0, 0, 0
    for token in range(n - 1):
        chars += sizes[token]
    for first in range(count):
        chars += sizes[first + n - 1]
        key = grams[first]
        place = key & mask
        while stamps[place] == stamp and slots[place] != key:
            place = (place + np.uint64(1)) & mask
        if stamps[place] != stamp:
            stamps[place], slots[place], counts[place] = stamp, key, 1
        else:
            counts[place] += 1
            again += 1
            if counts[place] > top or (counts[place] == top and chars > top_chars):
                top, top_chars = counts[place], chars
            for token in range(max(reach, first), first + n):
                covered += sizes[token]
            reach = first + n
        chars -= sizes[first]
    result[0], result[1], result[2] = again, covered, top * top_chars if top > 1 else 0


@njit(cache=True, nogil=True)
def measure_texts(codes, offsets, flags, folded, latin, word_keys, word_values, out):  # type: ignore[no-untyped-def]
    """Fill a row of `out` (texts x COLUMNS, float32) for each text codes[offsets[i]:offsets[i + 1]], already stripped."""
    longest = 1
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    hashes, grams = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    sizes, starts = np.empty(longest, np.int64), np.empty(longest, np.int64)
    sentence_of, marked = np.empty(longest, np.int64), np.zeros(longest, np.bool_)
    table_size = 64
    while table_size < 2 * longest + 2:
        table_size *= 2
    slots, stamps = np.empty(table_size, np.uint64), np.zeros(table_size, np.int64)
    counts, result, stamp = np.empty(table_size, np.int64), np.zeros(3, np.int64), 0

    for text in range(offsets.size - 1):
        row = codes[offsets[text] : offsets[text + 1]]
        measures = out[text]
        measures[:] = 0
        size = row.size
        tokens = tokenize(row, flags, folded, hashes, sizes, starts)
        mask = np.uint64(63)
        while mask + np.uint64(1) < np.uint64(2 * tokens + 2):
            mask = mask * np.uint64(2) + np.uint64(1)

        # characters: what each is, and what it does beside its neighbors
        spaces = symbols = broken = invisible = digits = uppers = lowers = curly = unspaced = marks = 0
        letters = runs = run = letter_words = word_letters = word_caps = capped = mixed_words = inner = 0
        latin_letters = home = vowelless = latin_words = latin_run = vowels = han = rare = hashes_dots = 0
        entity = tag = markup = 0
        script, scripts_mixed, in_word = 0, False, False
        stacked = 0
        for place in range(size):
            code = row[place]
            flag = flags[code] if code < flags.size else 0
            spaces += (flag & SPACE) != 0
            digits += (flag & DIGIT) != 0
            uppers += (flag & UPPER) != 0
            lowers += (flag & LOWER) != 0
            unspaced += (flag & ONE_TOKEN) != 0
            invisible += (flag & INVISIBLE) != 0
            han += (flag & HAN) != 0
            rare += (flag & RARE_HAN) != 0
            symbols += not flag & (ALNUM | SPACE | MARK)
            curly += code == 123 or code == 125
            hashes_dots += code == 35 or code == 0x2026
            if code == 46 and place + 2 < size and row[place + 1] == 46 and row[place + 2] == 46:
                hashes_dots += place == 0 or row[place - 1] != 46
            stacked = stacked + 1 if flag & MARK else 0
            if flag & BROKEN or stacked > 3:
                broken += 1
            elif 0xC2 <= code <= 0xF4:  # the first byte of UTF-8 read as a western charset, if its tail follows
                tail = 1 if code < 0xE0 else 2 if code < 0xF0 else 3
                whole = place + tail < size
                for step in range(1, tail + 1):
                    if whole:
                        after = row[place + step]
                        whole = after < flags.size and flags[after] & UTF8_TAIL != 0
                if whole:
                    broken += 1
                    for step in range(1, tail + 1):
                        broken += (flags[row[place + step]] & BROKEN) == 0
            if flag & SPACE == 0:
                run = run + 1 if place and row[place - 1] == code else 1
                if run >= 5:
                    runs += 5 if run == 5 else 1
            # runs of letters: words of scripts with spaces
            if flag & ALNUM and not flag & (DIGIT | ONE_TOKEN):
                if not in_word:
                    in_word, word_letters, script, scripts_mixed, word_caps = True, 0, 0, False, 0
                    latin_run = vowels = 0
                word_letters += 1
                base = latin[code] if code < latin.size else 0
                kind = 1 if code < 0x250 or 0x1E00 <= code < 0x1F00 else 2 if code < 0x530 else 3
                if code != 0xB5 and flag & LETTER:
                    scripts_mixed = scripts_mixed or (script != 0 and kind != script)
                    script = kind
                if flag & UPPER and place and flags[min(row[place - 1], flags.size - 1)] & LOWER:
                    word_caps = 1
                if base:
                    latin_letters += 1
                    latin_run += 1
                    home += HOME[base]
                    vowels += VOWEL[base]
            elif not (in_word and flag & MARK):
                if in_word and 0 < place < size - 1 and not flag & (ALNUM | SPACE | INVISIBLE):
                    after = row[place + 1]
                    if after < flags.size and flags[after] & LETTER and not (code < JOINERS.size and JOINERS[code]):
                        inner += 1
                if in_word:
                    letter_words += 1
                    letters += word_letters
                    capped += word_caps
                    mixed_words += scripts_mixed
                    if latin_run >= 3 and latin_run == word_letters:
                        latin_words += 1
                        vowelless += vowels == 0
                in_word = False
            marks += (flag & MARK) != 0
            # markup: tags and entities
            if code == 60 and place + 1 < size and tag == 0:
                after = row[place + 1]
                if after == 47 or after == 33 or (after < 128 and (ASCII_CLASS[after] == 1 or ASCII_CLASS[after] == 2)):
                    end = place + 1
                    while end < size and end - place < 2_000 and row[end] != 62 and row[end] != 60:
                        end += 1
                    if end < size and row[end] == 62:
                        tag = end - place + 1
            elif code == 38 and tag == 0:
                end = place + 1
                while (
                    end < size
                    and end - place < 10
                    and row[end] < 128
                    and (0 < ASCII_CLASS[row[end]] < 4 or row[end] == 35)
                ):
                    end += 1
                if end < size and row[end] == 59 and end - place > 2:
                    tag = end - place + 1
            if tag:
                tag -= 1
                markup += 1
        if in_word:
            letter_words += 1
            letters += word_letters
            capped += word_caps
            mixed_words += scripts_mixed
            if latin_run >= 3 and latin_run == word_letters:
                latin_words += 1
                vowelless += vowels == 0

        # chunks between white space: words in the eyes of Gopher and C4, addresses, encoded data
        chunks = alpha = url = encoded = 0
        place = 0
        while place < size:
            code = row[place]
            if code < flags.size and flags[code] & SPACE:
                place += 1
                continue
            start, has_letter, address, escaped = place, False, False, 0
            turns = lower = upper = digit = hexes = other = wide = 0
            last = 0
            while place < size:
                code = row[place]
                flag = flags[code] if code < flags.size else 0
                if flag & SPACE:
                    break
                has_letter = has_letter or flag & LETTER != 0
                if code < 128:
                    kind = ASCII_CLASS[code]
                    turns += kind != last and last != 0
                    last = kind
                    lower += kind == 1
                    upper += kind == 2
                    digit += kind == 3
                    other += kind == 4
                    hexes += kind == 3 or 97 <= code <= 102 or 65 <= code <= 70
                    if code == 58 and place + 2 < size and row[place + 1] == 47 and row[place + 2] == 47:
                        address = True
                    address = address or code == 64
                    if place + 2 < size and (code == 61 or code == 37 or code == 92):  # =3D %20 \x41 \u0041
                        first, second = row[place + 1], row[place + 2]
                        if code == 92:
                            escaped += 4 if first == 120 else 6 if first == 117 else 0
                        elif first < 128 and second < 128:
                            hexed = (48 <= first <= 57 or 65 <= first <= 70) and (
                                48 <= second <= 57 or 65 <= second <= 70
                            )
                            escaped += 3 if hexed else 0
                else:
                    wide += 1
                place += 1
            length = place - start
            chunks += 1
            alpha += has_letter
            if length > 4 and not address:
                address = (row[start] | 32) == 119 and (row[start + 1] | 32) == 119 and row[start + 3] == 46
            if address:
                url += length
            elif length >= 20 and wide == 0:
                if (digit and hexes == length) or (
                    4 * turns >= length and 4 * other <= 3 * length and upper + digit > 1
                ):
                    encoded += length
                else:
                    encoded += min(length, escaped)
            else:
                encoded += min(length, escaped)

        # lines, paragraphs and sentences; a sentence ends at its mark or with its paragraph
        lines = bullets = ellipses = terminals = short = newlines = line_chars = repeated = 0
        paragraphs = repeated_paragraphs = sentences = 0
        paragraph = np.uint64(0)
        stamp += 1
        paragraph_stamp_key = np.uint64(0x5851F42D4C957F2D)
        token, sentence, open_sentence = 0, 0, False
        place = 0
        line_mask = np.uint64(table_size - 1)
        while place <= size:
            begin = place
            while place < size:
                code = row[place]
                if code == 10 or code == 13 or code == 11 or code == 12 or 28 <= code <= 30 or code == 0x85:
                    break
                if code == 0x2028 or code == 0x2029:
                    break
                place += 1
            end = place
            if place < size:
                newlines += not (row[place] == 13 and place + 1 < size and row[place + 1] == 10)
            place += 1
            while begin < end and row[begin] < flags.size and flags[row[begin]] & SPACE:
                begin += 1
            while end > begin and row[end - 1] < flags.size and flags[row[end - 1]] & SPACE:
                end -= 1
            carriage = place <= size and end == begin and place >= 2 and row[place - 1] == 10 and row[place - 2] == 13
            if begin < end:
                lines += 1
                key, wide = np.uint64(0), 0
                for at in range(begin, end):
                    code = row[at]
                    key = mixed((key + np.uint64(code) + np.uint64(1)) * PRIME)
                    flag = flags[code] if code < flags.size else 0
                    wide += (flag & ONE_TOKEN) != 0
                    while token < tokens and starts[token] <= at:
                        sentence_of[token] = sentence
                        open_sentence = True
                        token += 1
                    if flag & TERMINAL and open_sentence:
                        after = row[at + 1] if at + 1 < end else 32
                        after_flag = flags[after] if after < flags.size else 0
                        if code > 128 or after_flag & (SPACE | CLOSER):
                            sentence += 1
                            open_sentence = False
                length = end - begin
                line_chars += length
                first, last_place = row[begin], end - 1
                bullets += first < flags.size and flags[first] & BULLET != 0
                dots = row[end - 1] == 46 and length >= 3 and row[end - 2] == 46 and row[end - 3] == 46
                ellipses += dots or row[end - 1] == 0x2026
                while last_place > begin and row[last_place] < flags.size and flags[row[last_place]] & CLOSER:
                    last_place -= 1
                terminals += row[last_place] < flags.size and flags[row[last_place]] & TERMINAL != 0
                short += length + wide <= SHORT_LINE
                paragraph = mixed((paragraph + key) * PRIME)
                slot = key & line_mask
                while stamps[slot] == stamp and slots[slot] != key:
                    slot = (slot + np.uint64(1)) & line_mask
                if stamps[slot] == stamp:
                    repeated += length
                else:
                    stamps[slot], slots[slot] = stamp, key
            if (begin >= end and not carriage or place > size) and paragraph != 0:
                paragraphs += 1
                key = mixed(paragraph ^ paragraph_stamp_key)
                slot = key & line_mask
                while stamps[slot] == stamp and slots[slot] != key:
                    slot = (slot + np.uint64(1)) & line_mask
                if stamps[slot] == stamp:
                    repeated_paragraphs += 1
                else:
                    stamps[slot], slots[slot] = stamp, key
                paragraph = np.uint64(0)
                if open_sentence:
                    sentence += 1
                    open_sentence = False
        sentences = sentence

        # words: stop words, phrases, and runs that were there before
        token_chars, stops_seen, stop_tokens, lorem = 0, np.uint64(0), 0, 0
        for at in range(tokens):
            token_chars += sizes[at]
            grams[at] = hashes[at]
            marked[at] = False
        unique, entropy = 0, 0.0
        for n in range(1, 11):
            grams_n = tokens - n + 1
            if grams_n <= 0:
                break
            if n > 1:
                for at in range(grams_n):
                    grams[at] = longer(grams[at], n, hashes[at + n - 1])
            if n <= MAX_PHRASE:
                for at in range(grams_n):
                    found = look_up(word_keys, word_values, grams[at])
                    if found < 0:
                        continue
                    if found >= LOREM:
                        lorem += 1
                    elif found >= PHRASE:
                        for near in range(max(0, at - PHRASE_REACH), min(tokens, at + n + PHRASE_REACH)):
                            marked[near] = marked[near] or sentence_of[near] == sentence_of[at]
                    else:
                        stops_seen |= np.uint64(1) << np.uint64(found)
                        stop_tokens += 1
            stamp += 1
            if n == 1:
                for at in range(tokens):
                    slot = hashes[at] & mask
                    while stamps[slot] == stamp and slots[slot] != hashes[at]:
                        slot = (slot + np.uint64(1)) & mask
                    if stamps[slot] != stamp:
                        stamps[slot], slots[slot], counts[slot] = stamp, hashes[at], 0
                        unique += 1
                    counts[slot] += 1
                for at in range(tokens):
                    slot = hashes[at] & mask
                    while slots[slot] != hashes[at]:
                        slot = (slot + np.uint64(1)) & mask
                    entropy -= np.log2(counts[slot] / tokens) / tokens
            elif tokens >= MIN_TOKENS:
                repetition(grams, grams_n, sizes, n, slots, stamps, counts, stamp, mask, result)
                if n == 4:
                    measures[31] = result[0] / grams_n
                if n <= 4:
                    measures[30 + n] = min(1.0, result[2] / token_chars)
                else:
                    measures[30 + n] = result[1] / token_chars
        boilerplate = 0
        for at in range(tokens):
            boilerplate += marked[at]
        seen = 0
        while stops_seen:
            seen += np.int64(stops_seen & np.uint64(1))
            stops_seen >>= np.uint64(1)

        words = tokens - unspaced / 2.0
        visible = max(1, size - spaces)
        measures[0], measures[1], measures[2] = words, lines, sentences
        measures[3] = symbols / visible
        measures[4] = min(1.0, broken / max(1, size))
        measures[5] = invisible / max(1, size)
        measures[6] = digits / visible
        measures[7] = uppers / (uppers + lowers) if uppers + lowers >= MIN_LETTERS else NONE
        measures[8] = spaces / max(1, size)
        measures[9] = letters / letter_words if letter_words else NONE
        measures[10] = words / max(1, sentences)
        measures[11] = unique / tokens if tokens else NONE
        measures[12] = entropy
        measures[13], measures[14] = seen, stop_tokens / max(1, tokens)
        measures[15] = alpha / chunks if chunks else 0.0
        measures[16] = hashes_dots / max(1.0, words)
        measures[17], measures[18] = inner / max(1, letter_words), capped / max(1, letter_words)
        measures[19] = runs / visible
        measures[20] = vowelless / latin_words if latin_words >= 5 else NONE
        measures[21] = home / latin_letters if latin_letters >= MIN_LETTERS else NONE
        measures[22] = mixed_words / max(1, letter_words)
        measures[23] = rare / han if han >= 5 else NONE
        measures[24], measures[25] = bullets / max(1, lines), ellipses / max(1, lines)
        measures[26], measures[27] = terminals / max(1, lines), short / max(1, lines)
        measures[28] = newlines / max(1.0, words)
        measures[29] = repeated / line_chars if lines >= MIN_LINES else 0.0
        measures[30] = repeated_paragraphs / paragraphs if paragraphs >= MIN_LINES else 0.0
        measures[41], measures[42] = boilerplate / max(1, tokens), lorem
        measures[43], measures[44] = curly / visible, markup / max(1, size)
        measures[45], measures[46] = url / visible, min(1.0, encoded / visible)
        last_place = size - 1
        while last_place > 0 and row[last_place] < flags.size and flags[row[last_place]] & (CLOSER | SPACE):
            last_place -= 1
        measures[47] = not (size > 0 and row[last_place] < flags.size and flags[row[last_place]] & TERMINAL)
