"""Whether two texts differ by a content word, replaced or any: found by aligning their tokens, in bounded time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from data.dedup.lists import words
from data.quality.scripts import TOKEN

# A word of form: replacing it by another such word changes no content.
STOP_WORDS = words("""
    a an the this that these those and or but so of in on at to for from by with as is are was were be been being am do
    does did has have had will would shall should can could may might must it its he she they him his her their we us
    our you your i me my who whom which what there here then than also just very too if when while
""")
ANCHOR = 3
# Between two anchors at most this many tokens of a side are aligned; more is another text, not an edit.
GAP = 400


def substituted(a: str, b: str) -> bool:
    """Whether some place has content words in both (normalized) texts, and other ones. Insertion alone is none."""
    left, right = TOKEN.findall(a), TOKEN.findall(b)
    for x, y in _gaps(left, right):
        if len(x) > GAP or len(y) > GAP:
            return True
        for op, start, end, other_start, other_end in SequenceMatcher(None, x, y, autojunk=False).get_opcodes():
            if op == "replace" and _content(x[start:end]) and _content(y[other_start:other_end]):
                return True
    return False


def other_words(a: str, b: str) -> bool:
    """Whether two (normalized) texts say other content words, or the same in another order: an added one counts too."""
    left, right = ([token for token in TOKEN.findall(text) if token not in STOP_WORDS] for text in (a, b))
    return left != right


def _content(tokens: Sequence[str]) -> bool:
    return any(token not in STOP_WORDS for token in tokens)


def _gaps(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """What lies between the runs that both have once and in the same order, where both sides have something."""
    at, bt = 0, 0
    for i, j in [*_anchors(a, b), (len(a), len(b))]:
        if i < at or j < bt:
            continue  # overlaps what the last anchor already covered
        x, y = _trim(a[at:i], b[bt:j])
        if x and y:
            yield x, y
        at, bt = min(i + ANCHOR, len(a)), min(j + ANCHOR, len(b))


def _trim(x: Sequence[str], y: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Both without what they begin and end with in common."""
    shorter = min(len(x), len(y))
    start = next((k for k in range(shorter) if x[k] != y[k]), shorter)
    end = next((k for k in range(shorter - start) if x[-1 - k] != y[-1 - k]), shorter - start)
    return x[start : len(x) - end], y[start : len(y) - end]


def _anchors(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Positions of runs of ANCHOR tokens that stand once in each: the longest sequence in which both ascend."""
    places = [_once(tokens) for tokens in (a, b)]
    pairs = [(i, places[1][run]) for run, i in places[0].items() if run in places[1]]
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        at = bisect_left(tails, j)
        before.append(last[at - 1] if at else -1)
        if at == len(tails):
            tails.append(j)
            last.append(index)
        else:
            tails[at] = j
            last[at] = index
    chain = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def _once(tokens: Sequence[str]) -> dict[tuple[str, ...], int]:
    """Runs that stand once, with their places, in the order of the text."""
    runs = list(zip(*(tokens[shift:] for shift in range(ANCHOR)), strict=False))
    counts = Counter(runs)
    return {run: place for place, run in enumerate(runs) if counts[run] == 1}
