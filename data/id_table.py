"""The compiled half of the set of seen ids: their 128-bit digests in one open table, 21 to 32 bytes an id.

The digest is SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012) under a fixed key: among a billion ids an
accidental equality has a chance of 1e-21.
"""

# The types of compiled functions are what numba infers from their first call.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numba import njit

KEY_LOW, KEY_HIGH = np.uint64(0x0706050403020100), np.uint64(0x0F0E0D0C0B0A0908)
LOAD = 0.75  # of the slots, how many may be taken
GROWTH = 1.5
FIRST_SLOTS = 1 << 16


class IdTable:
    """A set of digests; ids come as Arrow gives them: bytes and where each ends."""

    def __init__(self, slots: int = FIRST_SLOTS) -> None:
        self.slots = np.zeros((slots, 2), np.uint64)
        self.count = 0

    def admit(self, data: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Whether each id is new, in order. `ends` has one entry more than there are ids, the first is the start."""
        count = len(ends) - 1
        if self.count + count > LOAD * len(self.slots):
            wider = np.zeros((int(max(GROWTH * len(self.slots), (self.count + count) / LOAD)) + 1, 2), np.uint64)
            move(self.slots, wider)
            self.slots = wider
        new = np.empty(count, np.bool_)
        self.count += admit(data, ends, self.slots, new)
        return new


@njit(cache=True, nogil=True)
def admit(data, ends, slots, new):
    added = 0
    for i in range(len(ends) - 1):
        low, high = siphash128(data, ends[i], ends[i + 1])
        if low == 0 and high == 0:  # marks an empty slot
            low = np.uint64(1)
        new[i] = insert(slots, low, high)
        added += new[i]
    return added


@njit(cache=True, nogil=True)
def move(slots, wider):
    for i in range(len(slots)):
        if slots[i, 0] != 0 or slots[i, 1] != 0:
            insert(wider, slots[i, 0], slots[i, 1])


@njit(cache=True, nogil=True)
def insert(slots, low, high):
    place = np.int64(((high >> np.uint64(32)) * np.uint64(len(slots))) >> np.uint64(32))
    while slots[place, 0] != 0 or slots[place, 1] != 0:
        if slots[place, 0] == low and slots[place, 1] == high:
            return False
        place += 1
        if place == len(slots):
            place = 0
    slots[place, 0] = low
    slots[place, 1] = high
    return True


@njit(cache=True, nogil=True)
def siphash128(data, start, stop):
    """The two halves of the digest of data[start:stop]."""
    v0 = KEY_LOW ^ np.uint64(0x736F6D6570736575)
    v1 = KEY_HIGH ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = KEY_LOW ^ np.uint64(0x6C7967656E657261)
    v3 = KEY_HIGH ^ np.uint64(0x7465646279746573)
    size = stop - start
    for block in range(size // 8 + 1):
        word = np.uint64(0)
        first = start + 8 * block
        for i in range(min(8, stop - first)):
            word |= np.uint64(data[first + i]) << np.uint64(8 * i)
        if block == size // 8:
            word |= np.uint64(size & 255) << np.uint64(56)
        v3 ^= word
        for _ in range(2):
            v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@njit(cache=True, nogil=True)
def sip_round(v0, v1, v2, v3):
    v0 += v1
    v1 = rotated(v1, 13) ^ v0
    v0 = rotated(v0, 32)
    v2 += v3
    v3 = rotated(v3, 16) ^ v2
    v0 += v3
    v3 = rotated(v3, 21) ^ v0
    v2 += v1
    v1 = rotated(v1, 17) ^ v2
    v2 = rotated(v2, 32)
    return v0, v1, v2, v3


@njit(cache=True, nogil=True)
def rotated(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))
