"""A day's files against everything that was seen before, by the index on disk and the parameters of `score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import DaymillError
from data.intake import Intake
from data.readers.item import Limits
from data.validate import field_map
from tasks.params import PARAMS_FILE, load, plain, read

if TYPE_CHECKING:
    from data.dedup.index import Index
    from data.dedup.index_kind import IndexConfig

INDEX = Path(".cache/seen")  # remembers beyond a run, so it is no output of a stage
VERDICTS = ("new", "seen", "apart", "known", "changed")
BATCH = 20_000  # records of one addition


@dataclass(frozen=True)
class Look:
    """What one record turned out to be, and the earlier records that say so.

    `known`: in the index under this id. `changed`: its id is there with another text. `seen`: an earlier record says
    the same. `apart`: as near as that, but a protected difference forbids a merge. `new`: none of it.
    """

    id: str
    verdict: str
    pairs: list[dict[str, Any]]  # earlier, similarity, veto; most similar first

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "verdict": self.verdict, "pairs": self.pairs}


@dataclass
class Sum:
    """Counts over the files."""

    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    refused: int = 0
    added: int = 0


def look(
    root: Path, files: Sequence[Path], index_path: Path | None, threshold: float | None, add: bool, told: Sum
) -> Iterator[Look]:
    """Each record of the files, decided against what the index held before; then, with `add`, all of them are added.

    Records that ingest would refuse are counted in `told`, and passed over. Raises DaymillError for a file that is not
    there, and where there is no index and none is to be added to.
    """
    from data.dedup.index import changed_ids

    index = opened(root, index_path or root / INDEX, add)
    changed: list[str] = []
    least = index.config.find.jaccard if threshold is None else threshold
    for ids, texts in batches(root, files, told):
        pairs: dict[str, list[dict[str, Any]]] = {row_id: [] for row_id in ids}
        for row in index.query(texts, ids).to_pylist():
            pairs[row.pop("id")].append(row)
        for row_id, standing in zip(ids, index.standing(texts, ids), strict=True):
            verdict = verdict_of(pairs[row_id], least) if standing == "new" else standing
            decided = Look(row_id, verdict, pairs[row_id])
            changed += [row_id] if verdict == "changed" else []
            told.verdicts[decided.verdict] += 1
            yield decided
    if add:
        if changed:
            raise DaymillError(changed_ids(index.path, changed))
        for ids, texts in batches(root, files, Sum()):
            told.added += index.add(texts, ids).new


def verdict_of(pairs: Sequence[dict[str, Any]], threshold: float) -> str:
    near = [pair["veto"] for pair in pairs if pair["similarity"] >= threshold]
    return "seen" if None in near else "apart" if near else "new"


def opened(root: Path, path: Path, add: bool) -> Index:
    """The index at a path, made as params.yaml says; a new one where there is none and records are to be added."""
    from data.dedup.index import Index
    from data.dedup.index_kind import MANIFEST

    config = index_config(root)
    if not (path / MANIFEST).exists() and add:
        return Index.create(path, config)
    return Index.open(path, config)


def index_config(root: Path) -> IndexConfig:
    """As the stage `score` looks for near duplicates."""
    from data.dedup.config import FindConfig
    from data.dedup.index_kind import IndexConfig
    from data.dedup.protect import ProtectConfig
    from tasks.score import Score

    knobs = load("score", Score, root / PARAMS_FILE).near_duplicates
    return IndexConfig(
        FindConfig(knobs.jaccard, knobs.recall, knobs.floor, knobs.max_bucket),
        ProtectConfig(knobs.protect, knobs.protect_words, knobs.protect_patterns, knobs.substitution),
    )


def batches(root: Path, files: Sequence[Path], told: Sum) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and texts as ingest would take them."""
    names = field_map(plain(read(root / PARAMS_FILE).get("ingest", {}).get("fields") or {}))
    intake = Intake(names, Limits())
    ids: list[str] = []
    texts: list[str] = []
    for path in files:
        if not path.is_file():
            raise DaymillError(f"{path} is no file; name files of records, such as notes.jsonl")
        for batch in intake.decide(path.name, path):
            told.refused += len(batch.refused)
            ids += [record.id for record in batch.kept]
            texts += [record.text for record in batch.kept]
            while len(ids) >= BATCH:
                yield ids[:BATCH], texts[:BATCH]
                ids, texts = ids[BATCH:], texts[BATCH:]
    intake.complain()
    if ids:
        yield ids, texts
