"""The compiled half of batching: best-fit decreasing into rows of one capacity, and cuts of sorted rows."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import njit

BLOCK = 64


@njit(cache=True, nogil=True)
def best_fit(sizes, capacity, window, row, place):
    """Put every size into a row; returns how many rows there are.

    Within each window of sizes the largest come first (of equal ones the earlier), and each goes to the row with the
    least space that still holds it, the one opened last where several have that space. Sizes are 1 to `capacity`.
    `row[i]` is the row of size i, `place[i]` where in it the size begins; both are written.
    """
    count = len(sizes)
    rows = 0
    begins = np.zeros(capacity + 2, np.int64)
    order = np.empty(min(window, count), np.int64)
    head = np.empty(capacity + 1, np.int64)  # of the rows with this much space, the one to take
    behind = np.empty(min(window, count), np.int64)  # of a row: the next one with as much space
    some = np.zeros(
        capacity // BLOCK + 1, np.int64
    )  # rows with a space of each block of spaces, so that blocks are skipped
    for start in range(0, count, window):
        stop = min(count, start + window)
        begins[:] = 0
        for i in range(start, stop):  # counting sort, the largest first
            begins[capacity - sizes[i] + 1] += 1
        for s in range(capacity + 1):
            begins[s + 1] += begins[s]
        for i in range(start, stop):
            at = capacity - sizes[i]
            order[begins[at]] = i
            begins[at] += 1
        head[:] = -1
        some[:] = 0
        first = rows
        for at in range(stop - start):
            i = order[at]
            size = sizes[i]
            space = size
            while space <= capacity and head[space] < 0:
                space += 1
                while space % BLOCK == 0 and space <= capacity and some[space // BLOCK] == 0:
                    space += BLOCK
            if space > capacity:
                chosen, space = rows - first, capacity
                rows += 1
            else:
                chosen = head[space]
                head[space] = behind[chosen]
                some[space // BLOCK] -= 1
            row[i] = first + chosen
            place[i] = capacity - space
            left = space - size
            behind[chosen] = head[left]
            head[left] = chosen
            some[left // BLOCK] += 1
    return rows


@njit(cache=True, nogil=True)
def fullest(sizes, max_tokens):
    """Where batches of neighbors end when each takes rows until rows x longest would exceed `max_tokens`."""
    count = len(sizes)
    ends = np.empty(count, np.int64)
    batches = begin = longest = 0
    for at in range(count):
        longest = max(longest, sizes[at])
        if at > begin and (at + 1 - begin) * longest > max_tokens:
            ends[batches] = at
            batches += 1
            begin, longest = at, sizes[at]
    if count:
        ends[batches] = count
        batches += 1
    return ends[:batches]


@njit(cache=True, nogil=True)
def cheapest(sizes, max_tokens, cost):
    """Where the batches of ascending sizes end so that rows x longest, plus `cost` a batch, add up to the least.

    A batch of several rows stays within `max_tokens`. Of equally cheap plans the one with larger last batches.
    """
    count = len(sizes)
    total = np.empty(count + 1, np.int64)  # of the cheapest plan of the first rows
    begin = np.empty(count + 1, np.int64)  # of its last batch
    total[0] = 0
    for end in range(1, count + 1):
        longest = sizes[end - 1]
        total[end], begin[end] = total[end - 1] + longest + cost, end - 1
        first = end - 2
        while first >= 0 and (end - first) * longest <= max_tokens:
            price = total[first] + (end - first) * longest + cost
            if price <= total[end]:
                total[end], begin[end] = price, first
            first -= 1
    batches, at = 0, count
    while at > 0:
        batches, at = batches + 1, begin[at]
    ends = np.empty(batches, np.int64)
    at = count
    for batch in range(batches - 1, -1, -1):
        ends[batch] = at
        at = begin[at]
    return ends


@njit(cache=True, nogil=True)
def fill(tokens, counted, source, length, row, place, ids, targets, docs):
    """Copy every piece to its place: `length[i]` tokens from `source[i]`, and what their successors count as.

    Pieces must come by row and place; documents are numbered within a row from 0.
    """
    number, before = 0, -1
    for i in range(len(source)):
        number = number + 1 if row[i] == before else 0
        before = row[i]
        for k in range(length[i]):
            ids[row[i], place[i] + k] = tokens[source[i] + k]
            targets[row[i], place[i] + k] = counted[source[i] + k + 1]
            docs[row[i], place[i] + k] = number
