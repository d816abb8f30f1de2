"""Tokens of many texts and their runs, counted by compiled code: stop words, phrases, and what was there before."""

from __future__ import annotations

import numpy as np
from numba import njit

from data.quality import scripts
from data.quality.hashing import extended, find_place, look_up, mask_for, tokenize

MAX_GRAM = 10
MAX_STUTTER = 8
COUNTS = (
    "tokens",
    "token_chars",
    "sentences",
    "unique",  # distinct tokens
    "entropy",  # of the tokens' frequencies, bits
    "stop_words",  # distinct ones
    "stop_tokens",  # tokens that are stop words
    "boilerplate",  # tokens beside a boilerplate phrase
    "lorem_ipsum",  # its phrases
    "stuttered",  # tokens in runs of up to eight that stand right before them as well
    *(f"again_{n}" for n in range(2, MAX_GRAM + 1)),  # runs of n tokens that were there before
    *(f"covered_{n}" for n in range(2, MAX_GRAM + 1)),  # characters of the tokens in such runs, each counted once
    *(f"top_{n}" for n in range(2, MAX_GRAM + 1)),  # characters of the commonest run of n, all its times
)
(TOKENS, TOKEN_CHARS, SENTENCES, UNIQUE, ENTROPY, STOP_WORDS, STOP_TOKENS, BOILERPLATE, LOREM_IPSUM, STUTTERED) = range(
    10
)
AGAIN, COVERED, TOP = (COUNTS.index(name) - 2 for name in ("again_2", "covered_2", "top_2"))

SPACE, TERMINAL, CLOSER = scripts.SPACE, scripts.TERMINAL, scripts.CLOSER
# What a run of tokens in the table means: a stop word's number, or one of these. PREFIX is added where longer ones
# begin with it, and NOTHING is what is only a beginning.
PHRASE, LOREM, NOTHING, PREFIX = 100, 101, 102, 128
REACH = 10  # tokens on both sides that a boilerplate phrase speaks for, within its sentence


@njit(cache=True, nogil=True)
def count_words(codes, offsets, flags, folded, keys, values, out):  # type: ignore[no-untyped-def]
    """Fill a row of `out` (texts x COUNTS, float64, zeros) for each text codes[offsets[i] : offsets[i + 1]].

    `keys` and `values` are the table of words and phrases, by the hashes of their tokens.
    """
    longest = 1
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    hashes, grams = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    sizes, starts, ends = np.empty(longest, np.int64), np.empty(longest, np.int64), np.zeros(longest + 1, np.int64)
    sentences, marked = np.empty(longest, np.int64), np.empty(longest, np.bool_)
    firsts, places = np.empty(longest, np.int64), np.empty(longest, np.int64)
    size = np.int64(mask_for(longest)) + 1
    slots, stamps, counted = np.empty(size, np.uint64), np.zeros(size, np.int64), np.empty(size, np.int64)
    stamp = 0
    for text in range(offsets.size - 1):
        row, counts = codes[offsets[text] : offsets[text + 1]], out[text]
        tokens = tokenize(row, flags, folded, hashes, sizes, starts)
        if tokens == 0:
            continue
        counts[TOKENS] = tokens
        for at in range(tokens):
            ends[at + 1] = ends[at] + sizes[at]
        counts[TOKEN_CHARS] = ends[tokens]
        counts[SENTENCES] = find_sentences(row, flags, starts[:tokens], sentences)
        counts[STUTTERED] = count_stutter(hashes[:tokens])
        count_known(hashes[:tokens], keys, values, sentences, marked, counts)
        mask, weighted, runs = mask_for(tokens), 0.0, tokens
        for n in range(1, min(tokens, MAX_GRAM) + 1):
            # a run of n tokens can only come again if its first n - 1 do
            stamp += 1
            top, top_chars, reach = 1, 0, 0
            for at in range(runs):
                first = at if n == 1 else firsts[at]
                key = hashes[first] if n == 1 else extended(grams[first], hashes[first + n - 1])
                grams[first] = key
                place = places[at] = find_place(key, slots, stamps, counted, stamp, mask)
                counted[place] += 1
                times = counted[place]
                if n == 1:
                    firsts[at] = at
                    counts[UNIQUE] += times == 1
                    weighted += times * np.log2(times) - (times - 1) * np.log2(times - 1) if times > 1 else 0.0
                elif times > 1:
                    counts[AGAIN + n] += 1
                    counts[COVERED + n] += ends[first + n] - ends[max(reach, first)]
                    reach = first + n
                    chars = ends[first + n] - ends[first]
                    if times > top or (times == top and chars > top_chars):
                        top, top_chars = times, chars
            if n > 1:
                counts[TOP + n] = top * top_chars
            left = 0
            for at in range(runs):
                if counted[places[at]] > 1 and firsts[at] + n < tokens:
                    firsts[left] = firsts[at]
                    left += 1
            runs = left
        counts[ENTROPY] = max(0.0, np.log2(tokens) - weighted / tokens)


@njit(cache=True, nogil=True)
def count_stutter(hashes):  # type: ignore[no-untyped-def]
    """Tokens in runs of up to eight that stand right before them as well, each counted once."""
    stuttered, reach = 0, 0
    for at in range(1, hashes.size):
        for n in range(min(MAX_STUTTER, at, hashes.size - at), 0, -1):
            same = 0
            while same < n and hashes[at + same] == hashes[at + same - n]:
                same += 1
            if same == n:
                stuttered += max(0, at + n - max(reach, at))
                reach = max(reach, at + n)
                break
    return stuttered


@njit(cache=True, nogil=True)
def count_known(hashes, keys, values, sentences, marked, counts):  # type: ignore[no-untyped-def]
    """Stop words, phrases, and the tokens that stand beside a boilerplate phrase."""
    stops = np.uint64(0)
    marked[: hashes.size] = False
    for at in range(hashes.size):
        key, n, more = hashes[at], 1, True
        while more:
            found = look_up(keys, values, key)
            more = found >= PREFIX and at + n < hashes.size
            meaning = found % PREFIX if found >= 0 else NOTHING
            if meaning == LOREM:
                counts[LOREM_IPSUM] += 1
            elif meaning == PHRASE:
                for near in range(max(0, at - REACH), min(hashes.size, at + n + REACH)):
                    marked[near] = marked[near] or sentences[near] == sentences[at]
            elif meaning < PHRASE:
                stops |= np.uint64(1) << np.uint64(meaning)
                counts[STOP_TOKENS] += 1
            if more:
                key = extended(key, hashes[at + n])
                n += 1
    counts[BOILERPLATE] = marked[: hashes.size].sum()
    while stops:
        counts[STOP_WORDS] += np.float64(stops & np.uint64(1))
        stops >>= np.uint64(1)


@njit(cache=True, nogil=True)
def find_sentences(row, flags, starts, sentences):  # type: ignore[no-untyped-def]
    """Fill the number of each token's sentence; return how many there are.

    A sentence ends at its mark, if white space or a closing quote or bracket follows or the mark is none of ASCII, and
    at an empty line.
    """
    sentence, token, begun, newline = 0, 0, False, False
    for place in range(row.size):
        code = row[place]
        flag = flags[code] if code < flags.size else 0
        if token < starts.size and starts[token] == place:
            sentences[token] = sentence
            token += 1
            begun = True
        ends = code == 10 and newline
        if flag & TERMINAL:
            after = row[place + 1] if place + 1 < row.size else 32
            ends = ends or code > 127 or (after < flags.size and flags[after] & (SPACE | CLOSER) != 0)
        newline = code == 10 or (newline and flag & SPACE != 0)
        if ends and begun:
            sentence += 1
            begun = False
    return sentence + begun
