"""Which rows share a model call: similar lengths together, so that little of a call is padding."""

from __future__ import annotations

from collections.abc import Sequence


def plan_calls(lengths: Sequence[int], max_rows: int, max_tokens: int) -> list[list[int]]:
    """Indices of the rows of each model call, every row once.

    Rows go by length; a call holds at most `max_rows` rows and, padding included, at most `max_tokens` tokens
    (a single longer row gets a call of its own).
    """
    if max_rows < 1 or max_tokens < 1:
        raise ValueError(f"max_rows {max_rows} and max_tokens {max_tokens}; expected at least 1")
    calls: list[list[int]] = []
    for at in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        full = not calls or len(calls[-1]) >= max_rows or (len(calls[-1]) + 1) * lengths[at] > max_tokens
        if full:
            calls.append([])
        calls[-1].append(at)
    return calls
