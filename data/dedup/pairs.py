"""Two given texts decided as the redundancy level decides: the library half of `daymill pairs`.

Everything here is plain Python on one pair, and so the reference that the kernels for millions are tested against.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data.dedup.protect import Protector
from data.errors import DaymillError
from data.quality.scripts import TOKEN
from data.readers.item import Bad, FileNotes, Item, Limits
from data.readers.jsonl import read_jsonl
from data.readers.stream import blocks
from data.text import normalize

SHINGLE = 5
THRESHOLD = 0.8
SHOWN = 5  # bad lines named in an error


@dataclass(frozen=True)
class PairDecision:
    """Whether two texts are one. `similarity` is None where a text has too few tokens for a shingle, or is empty;
    `veto` is the kind of protected difference that keeps them apart however similar they are."""

    verdict: Literal["same", "different", "undefined"]
    similarity: float | None
    veto: str | None


@dataclass(frozen=True)
class Answer:
    """The decision on one line of a file of pairs; `case` is what the line calls itself."""

    case: Any
    decision: PairDecision

    def json_line(self) -> str:
        """The line that `daymill pairs --json` prints for the pair."""
        said = self.decision
        shown = {"case": self.case, "verdict": said.verdict, "similarity": said.similarity, "veto": said.veto}
        return json.dumps(shown, ensure_ascii=False)


def decide_pair(
    a: str, b: str, protector: Protector, threshold: float = THRESHOLD, shingle: int = SHINGLE
) -> PairDecision:
    """Same where the normalized texts are equal, or similar from the threshold on with no protected difference.

    An empty text is neither the same as another nor different from it.
    """
    left, right = normalize(a), normalize(b)
    if not left or not right:
        return PairDecision("undefined", None, None)
    if left == right:
        return PairDecision("same", 1.0, None)
    similarity = jaccard(shingles(left, shingle), shingles(right, shingle))
    veto = protector.veto(a, b)
    same = similarity is not None and similarity >= threshold and veto is None
    return PairDecision("same" if same else "different", similarity, veto)


def shingles(normalized: str, size: int = SHINGLE) -> set[tuple[str, ...]]:
    """The distinct runs of `size` tokens of a normalized text; none where it has fewer."""
    tokens = TOKEN.findall(normalized)
    return set(zip(*(tokens[shift:] for shift in range(size)), strict=False))


def jaccard(a: set[tuple[str, ...]], b: set[tuple[str, ...]]) -> float | None:
    """|A and B| / |A or B|; None where a set is empty, for nothing is not similar to anything."""
    if not a or not b:
        return None
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


def decide_file(path: Path, protector: Protector, threshold: float = THRESHOLD) -> Iterator[Answer | Bad]:
    """Decide each line {"case", "a", "b"} of a JSON Lines file; a line that is none is yielded as refused.

    Raises DaymillError where there is no file, it ends damaged, or the threshold is no share.
    """
    if not 0 <= threshold <= 1:
        raise DaymillError(f"threshold is {threshold:g}; expected a number between 0 and 1")
    if not path.is_file():
        raise DaymillError(f"{path} is no file; give a JSON Lines file of pairs, each line with case, a and b")
    notes = FileNotes()
    for item in read_jsonl(blocks(path, notes), Limits(), notes):
        yield _decide_line(item, protector, threshold)


def bad_lines(refused: Sequence[Bad], path: Path) -> DaymillError:
    """What was wrong with which lines; nothing of their texts."""
    shown = "; ".join(f"line {bad.line}: {bad.note}" for bad in refused[:SHOWN])
    more = f"; and {len(refused) - SHOWN:,} more" if len(refused) > SHOWN else ""
    return DaymillError(f'{path}: {shown}{more}. Expected an object such as {{"case": "1", "a": "text", "b": "text"}}')


def render_table(answers: Iterable[Answer]) -> str:
    """A table for people: case, verdict, similarity, veto."""
    rows = [("case", "verdict", "similarity", "veto")]
    for answer in answers:
        said = answer.decision
        similarity = "-" if said.similarity is None else f"{said.similarity:.3f}"
        rows.append((_name(answer.case), said.verdict, similarity, said.veto or "-"))
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{case:<{width}}  {verdict:<9}  {score:>10}  {veto}" for case, verdict, score, veto in rows)


def _decide_line(item: Item, protector: Protector, threshold: float) -> Answer | Bad:
    if isinstance(item, Bad):
        return item
    value = item.value
    wrong = _wrong(value)
    if wrong is not None:
        return Bad(item.line, item.offset, b"", len(item.raw), "pair", wrong)
    return Answer(value.get("case", item.line), decide_pair(value["a"], value["b"], protector, threshold))


def _wrong(value: Any) -> str | None:
    """What a line lacks to be a pair."""
    if not isinstance(value, dict):
        return "is no JSON object"
    for side in ("a", "b"):
        if side not in value:
            return f'has no "{side}"'
        if not isinstance(value[side], str):
            return f'"{side}" is no string'
    return None


def _name(case: Any) -> str:
    return case if isinstance(case, str) else json.dumps(case, ensure_ascii=False)
