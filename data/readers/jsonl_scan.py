"""The compiled half of the JSON Lines reader: lines of flat objects to columns of bytes, without a Python object each.

`scan` believes a line only where it can prove that the strict parser (`data/strict_json.py`) would take it and with
which values: strings are UTF-8 with valid escapes and whole surrogate pairs, numbers follow the grammar, no key comes
twice. A line it is not sure of is left to that parser, so it never refuses one. Containers inside a record are only
skipped by their brackets and are marked for a strict look at what is left of the record.
"""

# The types of compiled functions are what numba infers from their first call.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numba import njit

TEXT, ID, SCALAR, DATE = 0, 1, 2, 3  # what a wanted field is
TAKEN, UNSURE, BLANK = 0, 1, 2  # what became of a line
MAX_KEYS = 64  # keys of one object that are compared with each other
FNV_PRIME = np.uint64(0x100000001B3)
FNV_BASIS = np.uint64(0xCBF29CE484222325)
MIX = np.uint64(0x9E3779B97F4A7C15)

EXACT, UNUSUAL, WRONG = 0, 1, 2  # a value is written as we would; otherwise; not sure that it is one

QUOTE, BACKSLASH, COMMA, COLON, LF = 34, 92, 44, 58, 10
SPACE_BYTE, LAST_ASCII = 32, 127
BLOCK = np.uint64(16)
OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET = 123, 125, 91, 93


def byte_table(members: bytes) -> np.ndarray:
    table = np.zeros(256, np.bool_)
    table[np.frombuffer(members, np.uint8)] = True
    return table


PLAIN = byte_table(bytes(c for c in range(32, 128) if c not in b'"\\'))  # stands for itself inside a string
SPACE = byte_table(b" \t\r")  # not LF: it ends the line
DIGIT = byte_table(b"0123456789")
# ASCII that is no space, and first bytes of characters of which none is a space (those begin with C2, E1, E2 or E3).
SOLID = byte_table(
    bytes(c for c in range(128) if not chr(c).isspace())
    + bytes(c for c in range(0xC3, 0xF5) if c not in (0xE1, 0xE2, 0xE3))
)
SHORT = np.zeros(256, np.uint8)  # escapes of one letter, by what they stand for
for _letter, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t'):
    SHORT[_letter] = _meaning
HEX = np.full(256, 255, np.uint8)
for _digit in b"0123456789abcdefABCDEF":
    HEX[_digit] = int(chr(_digit), 16)


@njit(cache=True, nogil=True)
def scan(buf, names, name_ends, roles, limit, columns, ends, valid, present, status, rows, odd, shapes):
    """Takes the lines of `buf` (its last byte is LF) apart; returns how many records it took.

    Wanted fields: `names` are their names one behind the other, ending at `name_ends`, of the kind `roles`. By line:
    `status`. By record r of those taken: `rows[r]` is its line, `shapes[r]` a hash of its keys in their order,
    `present[f, r]` whether it has the key of field f, `valid[f, r]` whether that has a value, whose bytes are
    `columns[f]` from `ends[f, r]` to `ends[f, r + 1]`. The last column is the compact JSON object of all other keys,
    `odd[r]` where it has to be written anew from its values. All have room for a record more than there are lines.
    """
    fields = len(roles)
    at = np.zeros(fields + 1, np.int64)  # bytes written by column
    saved = np.zeros(fields + 1, np.int64)
    keys = np.zeros(MAX_KEYS, np.uint64)
    extra = columns[fields]
    line = record = p = 0
    size = len(buf)
    while p < size:
        start = p
        saved[:] = at
        valid[:, record] = False
        present[:, record] = False
        odd[record] = False
        solid = False
        count = 0
        shape = FNV_BASIS
        state = UNSURE
        while SPACE[buf[p]]:
            p += 1
        if buf[p] == LF:
            state = BLANK
        elif buf[p] == OPEN_BRACE:
            extra[at[fields]] = OPEN_BRACE
            at[fields] += 1
            p += 1
            while SPACE[buf[p]]:
                p += 1
            more = buf[p] != CLOSE_BRACE
            good = True
            while more:
                if buf[p] != QUOTE or count == MAX_KEYS:
                    good = False
                    break
                key = p + 1
                p, hashed = key_end(buf, key)
                if buf[p] != QUOTE:
                    good = False
                    break
                for i in range(count):
                    if keys[i] == hashed:  # the same key again, or by a rare chance another: not sure
                        good = False
                if not good:
                    break
                keys[count] = hashed
                count += 1
                shape = (shape ^ hashed) * MIX
                field = wanted(buf, key, p, names, name_ends)
                key_stop = p
                p += 1
                while SPACE[buf[p]]:
                    p += 1
                if buf[p] != COLON:
                    good = False
                    break
                p += 1
                while SPACE[buf[p]]:
                    p += 1
                if field >= 0:
                    present[field, record] = True
                    first = at[field]
                    p, last, has = take_wanted(buf, p, columns[field], first, roles[field])
                    if last < 0:
                        good = False
                        break
                    at[field] = last
                    valid[field, record] = has
                    if roles[field] == TEXT and has and not solid:
                        for i in range(first, last):
                            if SOLID[columns[field][i]]:
                                solid = True
                                break
                else:
                    q = at[fields]
                    if q - 1 > saved[fields]:
                        extra[q] = COMMA
                        q += 1
                    for i in range(key - 1, key_stop + 1):
                        extra[q] = buf[i]
                        q += 1
                    extra[q] = COLON
                    p, q, how = copy_value(buf, p, extra, q + 1)
                    if how == WRONG:
                        good = False
                        break
                    if how == UNUSUAL:
                        odd[record] = True
                    at[fields] = q
                while SPACE[buf[p]]:
                    p += 1
                if buf[p] == COMMA:
                    p += 1
                    while SPACE[buf[p]]:
                        p += 1
                elif buf[p] == CLOSE_BRACE:
                    more = False
                else:
                    good = False
                    break
            if good and solid:
                extra[at[fields]] = CLOSE_BRACE
                at[fields] += 1
                p += 1
                while SPACE[buf[p]]:
                    p += 1
                if buf[p] == LF and p - start <= limit:
                    state = TAKEN
        while buf[p] != LF:
            p += 1
        p += 1
        status[line] = state
        if state == TAKEN:
            for f in range(fields + 1):
                ends[f, record + 1] = at[f]
            valid[fields, record] = True
            rows[record] = line
            shapes[record] = shape
            record += 1
        else:
            at[:] = saved
        line += 1
    return record


@njit(cache=True, nogil=True)
def key_end(buf, p):
    """Where a key without escapes ends, and its hash; the byte there is no quote where it is not such a key."""
    hashed = FNV_BASIS
    while True:
        c = buf[p]
        if PLAIN[c]:
            hashed = (hashed ^ np.uint64(c)) * FNV_PRIME
            p += 1
        elif c >= 128:
            length = character(buf, p)
            if length == 0:
                return p, hashed
            for i in range(length):
                hashed = (hashed ^ np.uint64(buf[p + i])) * FNV_PRIME
            p += length
        else:
            return p, hashed ^ (hashed >> np.uint64(29))


@njit(cache=True, nogil=True)
def wanted(buf, start, stop, names, name_ends):
    """Which wanted field a key names, or -1."""
    begin = 0
    for field in range(len(name_ends)):
        end = name_ends[field]
        if end - begin == stop - start:
            same = True
            for i in range(end - begin):
                if names[begin + i] != buf[start + i]:
                    same = False
                    break
            if same:
                return field
        begin = end
    return -1


@njit(cache=True, nogil=True)
def take_wanted(buf, p, out, q, role):
    """The value of a wanted field as a string's bytes: behind it, the end of its bytes (-1: unsure), has it one."""
    c = buf[p]
    if c == QUOTE:
        p, end, how = take_string(buf, p + 1, out, q)
        if how == WRONG or (role == DATE and end > q and not is_plain_date(out, q, end)):
            return p, -1, False
        return p, end, end > q
    if c == 110 and literal(buf, p) == 4:  # null
        return p + 4, q, False
    if role == SCALAR and (c == 116 or c == 102):  # true, false
        length = literal(buf, p)
        if length == 0:
            return p, -1, False
        for i in range(length):
            out[q + i] = buf[p + i]
        return p + length, q + length, True
    if role in (SCALAR, ID) and (c == 45 or DIGIT[c]):
        stop, whole, how = number_end(buf, p)
        if how != EXACT or not whole:
            return p, -1, False
        for i in range(p, stop):
            out[q] = buf[i]
            q += 1
        return stop, q, True
    return p, -1, False


@njit(cache=True, nogil=True)
def take_string(buf, p, out, q):
    """A string behind its opening quote, escapes resolved: behind it, the end of its bytes, EXACT or WRONG."""
    while True:
        p, q = copy_plain(buf, p, out, q)
        c = buf[p]
        while PLAIN[c]:
            out[q] = c
            q += 1
            p += 1
            c = buf[p]
        if c == QUOTE:
            return p + 1, q, EXACT
        if c >= 128:
            length = character(buf, p)
            if length == 0:
                return p, q, WRONG
            for _ in range(length):
                out[q] = buf[p]
                q += 1
                p += 1
        elif c == BACKSLASH:
            c = buf[p + 1]
            if SHORT[c]:
                out[q] = SHORT[c]
                q += 1
                p += 2
            elif c == 117:
                code = four_digits(buf, p + 2)
                p += 6
                if 0xD800 <= code < 0xDC00 and buf[p] == BACKSLASH and buf[p + 1] == 117:
                    low = four_digits(buf, p + 2)
                    if low < 0xDC00 or low > 0xDFFF:
                        return p, q, WRONG
                    p += 6
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                if code < 0 or 0xD800 <= code <= 0xDFFF:
                    return p - 6, q, WRONG
                if code < 0x80:
                    out[q] = code
                    q += 1
                else:
                    if code < 0x800:
                        out[q] = 0xC0 | (code >> 6)
                        q += 1
                    else:
                        if code < 0x10000:
                            out[q] = 0xE0 | (code >> 12)
                            q += 1
                        else:
                            out[q] = 0xF0 | (code >> 18)
                            out[q + 1] = 0x80 | ((code >> 12) & 0x3F)
                            q += 2
                        out[q] = 0x80 | ((code >> 6) & 0x3F)
                        q += 1
                    out[q] = 0x80 | (code & 0x3F)
                    q += 1
            else:
                return p, q, WRONG
        else:
            return p, q, WRONG


@njit(cache=True, nogil=True)
def copy_plain(buf, p, out, q):
    """Copies bytes that stand for themselves by 16 at a time, in a form that compiles to vector instructions."""
    at, to = np.uint64(p), np.uint64(q)  # unsigned: no check for indices below zero
    last = np.uint64(len(buf))
    while at + BLOCK <= last:
        special = np.uint8(0)
        for i in range(BLOCK):  # reads alone, so that no write can be in its way
            c = buf[at + i]
            special |= (c < SPACE_BYTE) | (c > LAST_ASCII) | (c == QUOTE) | (c == BACKSLASH)
        if special:
            break
        for i in range(BLOCK):
            out[to + i] = buf[at + i]
        at += BLOCK
        to += BLOCK
    return np.int64(at), np.int64(to)


@njit(cache=True, nogil=True)
def four_digits(buf, p):
    """The value of four hexadecimal digits, or -1. Stops at the first byte that is none, so never behind the line."""
    code = 0
    for i in range(4):
        digit = HEX[buf[p + i]]
        if digit == 255:
            return -1
        code = code * 16 + np.int64(digit)
    return code


@njit(cache=True, nogil=True)
def copy_value(buf, p, out, q):
    """A value as it stands: behind it, the end of its bytes, and whether these are what we would have written."""
    c = buf[p]
    if c == QUOTE:
        return copy_string(buf, p, out, q)
    if c in (OPEN_BRACE, OPEN_BRACKET):
        depth = 0
        while True:  # whether what lies between is right is for the strict parser to say
            c = buf[p]
            if c == QUOTE:
                p, q, how = copy_string(buf, p, out, q)
                if how == WRONG:
                    return p, q, WRONG
                continue
            if c == LF:
                return p, q, WRONG
            if c in (OPEN_BRACE, OPEN_BRACKET):
                depth += 1
            elif c in (CLOSE_BRACE, CLOSE_BRACKET):
                depth -= 1
            out[q] = c
            q += 1
            p += 1
            if depth == 0:
                return p, q, UNUSUAL
    how = EXACT
    if c == 45 or DIGIT[c]:
        stop, _, how = number_end(buf, p)
    else:
        stop = p + literal(buf, p)
        if stop == p:
            how = WRONG
    for i in range(p, stop):
        out[q] = buf[i]
        q += 1
    return stop, q, how


@njit(cache=True, nogil=True)
def copy_string(buf, p, out, q):
    """A string with its quotes and escapes; UNUSUAL where it has escapes that we would write in another way."""
    how = EXACT
    out[q] = buf[p]
    q += 1
    p += 1
    while True:
        c = buf[p]
        while PLAIN[c]:
            out[q] = c
            q += 1
            p += 1
            c = buf[p]
        if c == QUOTE:
            out[q] = c
            return p + 1, q + 1, how
        if c >= 128:
            length = character(buf, p)
            if length == 0:
                return p, q, WRONG
        elif c == BACKSLASH and buf[p + 1] != LF:
            length = 2
            if SHORT[buf[p + 1]] == 0 or buf[p + 1] == 47:
                how = UNUSUAL
        else:
            return p, q, WRONG
        for _ in range(length):
            out[q] = buf[p]
            q += 1
            p += 1


@njit(cache=True, nogil=True)
def character(buf, p):
    """Bytes of the UTF-8 character of several bytes at p, or 0 where it is none (RFC 3629)."""
    c, second = buf[p], buf[p + 1]
    if second < 0x80 or second > 0xBF:
        return 0
    if 0xC2 <= c <= 0xDF:
        return 2
    if c < 0xE0 or c > 0xF4 or buf[p + 2] & 0xC0 != 0x80:
        return 0
    if c <= 0xEF:
        if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F):
            return 0
        return 3
    if (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F) or buf[p + 3] & 0xC0 != 0x80:
        return 0
    return 4


@njit(cache=True, nogil=True)
def literal(buf, p):
    """Length of the literal at p (null, true, false), or 0. A byte behind the line is never read."""
    for word in (b"null", b"true", b"false"):
        same = 0
        while same < len(word) and buf[p + same] == word[same]:
            same += 1
        if same == len(word):
            return same
    return 0


@njit(cache=True, nogil=True)
def number_end(buf, p):
    """Behind a number, whether it is an integer, and whether its digits are those that we would write.

    Up to 15 significant digits a decimal is the shortest that stands for its double; integers up to 18 stay.
    """
    negative = buf[p] == 45
    if negative:
        p += 1
    if not DIGIT[buf[p]]:
        return p, False, WRONG
    zero = buf[p] == 48
    first = p
    p += 1
    while DIGIT[buf[p]]:
        p += 1
    digits = p - first
    if zero and digits > 1:
        return p, False, WRONG
    how = UNUSUAL if digits > 18 or (negative and zero) else EXACT
    if buf[p] != 46 and buf[p] | 32 != 101:
        return p, True, how
    how = UNUSUAL
    if buf[p] == 46:
        p += 1
        begin = p
        leading = 0  # zeros behind the point
        while DIGIT[buf[p]]:
            if buf[p] == 48 and p - begin == leading:
                leading += 1
            p += 1
        behind = p - begin
        if behind == 0:
            return p, False, WRONG
        shortest = buf[p - 1] != 48 or behind == 1
        if shortest and digits + behind <= 15 and (not zero or leading <= 3):
            how = EXACT
    if buf[p] | 32 == 101:
        how = UNUSUAL
        p += 1
        if buf[p] == 43 or buf[p] == 45:
            p += 1
        if not DIGIT[buf[p]]:
            return p, False, WRONG
        while DIGIT[buf[p]]:
            p += 1
    return p, False, how


@njit(cache=True, nogil=True)
def is_plain_date(out, q, end):
    """Whether it is YYYY-MM-DD and a day of the calendar, which stays as it is; other dates are read elsewhere."""
    if end - q != 10 or out[q + 4] != 45 or out[q + 7] != 45:
        return False
    for i in range(10):
        if i != 4 and i != 7 and not DIGIT[out[q + i]]:
            return False
    year, month, day = np.int64(0), np.int64(0), np.int64(0)
    for i in range(4):
        year = year * 10 + np.int64(out[q + i]) - 48
    month = (np.int64(out[q + 5]) - 48) * 10 + np.int64(out[q + 6]) - 48
    day = (np.int64(out[q + 8]) - 48) * 10 + np.int64(out[q + 9]) - 48
    if year < 1 or month < 1 or month > 12 or day < 1:
        return False
    if month == 2:
        return day <= (29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28)
    return day <= (30 if month in (4, 6, 9, 11) else 31)
