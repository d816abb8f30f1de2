"""Hashes of tokens and of runs of tokens, the same on every machine, and look-ups in tables of them.

numba notices a change here only in this file's own functions: delete data/quality/__pycache__ after one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from data.quality import scripts

PRIME = np.uint64(0x9E3779B97F4A7C15)
ALNUM, MARK, ONE_TOKEN = scripts.ALNUM, scripts.MARK, scripts.ONE_TOKEN
UNDERSCORE = 95


@njit(cache=True, nogil=True)
def mixed(value):  # type: ignore[no-untyped-def]
    """SplitMix64's last steps (Steele et al. 2014): every bit of the input moves every bit of the output."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def extended(key, more):  # type: ignore[no-untyped-def]
    """The hash of a sequence from that of all but its last item, and that item."""
    return mixed(key * PRIME + np.uint64(more) + np.uint64(1))


@njit(cache=True, nogil=True)
def tokenize(codes, flags, folded, hashes, sizes, starts):  # type: ignore[no-untyped-def]
    """Fill hash, length in characters and start of every token; return how many there are.

    A token is a run of word characters with their marks, or one character of a script without spaces.
    """
    count, inside = 0, False
    for place in range(codes.size):
        code = codes[place]
        flag = flags[code] if code < flags.size else 0
        if flag & ONE_TOKEN or flag & ALNUM or code == UNDERSCORE or (inside and flag & MARK):
            if not inside or flag & ONE_TOKEN:
                hashes[count], sizes[count], starts[count] = np.uint64(0), 0, place
                count += 1
            hashes[count - 1] = extended(hashes[count - 1], folded[code])
            sizes[count - 1] += 1
            inside = flag & ONE_TOKEN == 0
        else:
            inside = False
    return count


@njit(cache=True, nogil=True)
def look_up(keys, values, key):  # type: ignore[no-untyped-def]
    """The value of a key in a table with a power of two of places (key 0: free), or -1."""
    mask = np.uint64(keys.size - 1)
    place = key & mask
    while keys[place] != 0:
        if keys[place] == key:
            return values[place]
        place = (place + np.uint64(1)) & mask
    return -1


@njit(cache=True, nogil=True)
def find_place(key, slots, stamps, counted, stamp, mask):  # type: ignore[no-untyped-def]
    """The place of a key in a counting table, which is emptied by a new stamp; a new key starts with the count 0."""
    place = key & mask
    while stamps[place] == stamp and slots[place] != key:
        place = (place + np.uint64(1)) & mask
    if stamps[place] != stamp:
        stamps[place], slots[place], counted[place] = stamp, key, 0
    return np.int64(place)


@njit(cache=True, nogil=True)
def mask_for(items):  # type: ignore[no-untyped-def]
    """The mask of the smallest power of two with twice as many places as items."""
    places = np.uint64(64)
    while places < np.uint64(2 * items + 2):
        places = places * np.uint64(2)
    return places - np.uint64(1)
