"""A day's new records against all earlier ones: an index on disk with the verdicts of one search over everything.

Such a search also compares records that a chain of pairs connects, so that it tells more pairs of the same records.

What the index knows lies in a few segments (`data.dedup.segment`), levels of a log-structured merge: an addition writes
a new one, and neighbors of like size become one. A manifest names the segments that count and is replaced last, so that
an addition that was killed has not happened. Answers do not depend on how records were batched.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from data.dedup.fresh import fresh_part
from data.dedup.index_kind import MANIFEST, IndexConfig, config_of, header_of, read_manifest, refuse_another
from data.dedup.protect import Protector
from data.dedup.seen import Key, Ways, best_member, hashes_of, keys_of, near, places_of, read
from data.dedup.segment import Part, Segment, open_segment, sync, write_segment
from data.errors import DaymillError

BATCH = 2_000  # texts that are asked about at once
GROWTH = 2  # a segment more than this many times as large as what follows it is left alone
EXAMPLES = 5

Standing = Literal["new", "known", "changed"]

SEEN = pa.schema([("id", pa.string()), ("earlier", pa.string()), ("similarity", pa.float64()), ("veto", pa.string())])


@dataclass(frozen=True)
class Added:
    """Records that were new to the index, and those that it knew (the same id with the same text)."""

    new: int
    known: int


class Index:
    """`Index.create(path, config)` or `Index.open(path)`, then `query` and `add`.

    One process adds at a time (a lock sees to it); others may ask meanwhile, and see what was there when they opened.
    """

    def __init__(self, path: Path, config: IndexConfig, manifest: Mapping[str, Any]) -> None:
        self.path, self.config = path, config
        self._ways = Ways(config.find, Protector(config.protect))
        self._names: list[str] = []
        self._segments: list[Segment] = []
        self._following = 0  # the number of the next segment
        self._load(manifest)

    @classmethod
    def create(cls, path: str | Path, config: IndexConfig | None = None) -> Index:
        """A new, empty index. Raises DaymillError where something is at the path."""
        path, config = Path(path), config or IndexConfig()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DaymillError(f"{path} exists and is not empty; open the index that is there, or create one elsewhere")
        path.mkdir(parents=True, exist_ok=True)
        index = cls(path, config, {"segments": [], "following": 0})
        with index._lock():
            index._commit()
        return index

    @classmethod
    def open(cls, path: str | Path, config: IndexConfig | None = None) -> Index:
        """The index at a path. Raises DaymillError where there is none, where it was made by other code (its hashes or
        vocabularies would not compare), and, with `config`, where it was created with another one."""
        path, failure = Path(path), None
        for _ in range(3):  # whoever adds removes segments that an older manifest names
            manifest = read_manifest(path)
            refuse_another(path, manifest, config)
            try:
                return cls(path, config_of(manifest), manifest)
            except (OSError, ValueError, EOFError) as error:
                failure = error
        raise DaymillError(f"{path} is damaged ({failure}): remove it and create it anew from the records")

    def __len__(self) -> int:
        """Records that it knows."""
        return sum(segment.members for segment in self._segments)

    def query(self, texts: Sequence[str], ids: Sequence[str]) -> pa.Table:
        """The earlier records that say the same as each text, or nearly: a table with the columns SEEN.

        In the order of the texts, then by falling similarity and earlier id. Of earlier records with equal (normalized)
        texts the best by content is named: the longest, then the smallest hash, then the smallest id. `veto` names the
        protected difference for which two texts must not merge; such texts are told where they represent a band.
        A text that is in the index under the id that asks is told too.
        """
        rows: list[tuple[str, str | None, float, str | None]] = []
        for start in range(0, len(texts), BATCH):
            reading = read(texts[start : start + BATCH], self._ways)
            for row_id, own in zip(ids[start : start + BATCH], near(reading, self._segments, self._ways), strict=True):
                told = [(row_id, best_member(self._segments, one.exact), one.similarity, one.veto) for one in own]
                rows += sorted(told, key=lambda row: (-row[2], str(row[1])))
        columns = list(zip(*rows, strict=True)) or [()] * len(SEEN)
        return pa.table([pa.array(column, item.type) for column, item in zip(columns, SEEN)], schema=SEEN)

    def add(self, texts: Sequence[str], ids: Sequence[str]) -> Added:
        """Make records known, all or none. Raises DaymillError for an id that is known with another text: what an index
        knows is never changed."""
        with self._lock():
            self._load(read_manifest(self.path))
            fresh = self._fresh(texts, ids)
            if fresh:
                reading = read([texts[at] for at in fresh], self._ways)
                self._write([fresh_part(reading, [ids[at] for at in fresh], self._segments)], keep_large=True)
            return Added(len(fresh), len(texts) - len(fresh))

    def compact(self) -> None:
        """Make one segment of all: the same records in the same order give the same bytes, however batched."""
        with self._lock():
            self._load(read_manifest(self.path))
            if len(self._segments) > 1:
                self._write([], keep_large=False)

    def standing(self, texts: Sequence[str], ids: Sequence[str]) -> list[Standing]:
        """Whether each id is new, known with this text, or known with another; namesakes earlier in the call count."""
        hashes, digests = hashes_of(ids), keys_of(hashes_of(texts))
        known: dict[str, Key] = {}
        for segment in self._segments:
            places = places_of(segment.id_keys, hashes)
            there = np.flatnonzero(places >= 0)
            members = segment.id_rows[places[there]]
            known |= dict(zip((ids[at] for at in there.tolist()), keys_of(segment.digests[members]), strict=True))
        answers: list[Standing] = []
        for row_id, digest in zip(ids, digests, strict=True):
            earlier = known.get(row_id)
            known.setdefault(row_id, digest)
            answers.append("new" if earlier is None else "known" if earlier == digest else "changed")
        return answers

    def _fresh(self, texts: Sequence[str], ids: Sequence[str]) -> list[int]:
        """Places of the records whose ids are new."""
        standing = self.standing(texts, ids)
        changed = [row_id for row_id, one in zip(ids, standing, strict=True) if one == "changed"]
        if changed:
            raise DaymillError(changed_ids(self.path, changed))
        return [at for at, one in enumerate(standing) if one == "new"]

    def _write(self, parts: list[Part], keep_large: bool) -> None:
        """A segment of the parts and of the segments before them that are not much larger; then the manifest."""
        self._remove_others()
        names, size = list(self._names), sum(len(part.lengths) for part in parts)
        while names and not (keep_large and self._segments[len(names) - 1].members > GROWTH * size):
            names.pop()
            parts = [self._segments[len(names)], *parts]
            size += self._segments[len(names)].members
        name = f"segment-{self._following:06d}"
        beside = self.path / f".{name}.writing"
        write_segment(beside, parts)
        os.rename(beside, self.path / name)
        sync(self.path)
        self._segments = [*self._segments[: len(names)], open_segment(self.path / name)]
        self._names, self._following = [*names, name], self._following + 1
        self._commit()
        self._remove_others()

    def _commit(self) -> None:
        manifest = {
            "header": header_of(self.config),
            "config": asdict(self.config),
            "segments": self._names,
            "following": self._following,
        }
        beside = self.path / f".{MANIFEST}.writing"
        with beside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(manifest, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path / MANIFEST)
        sync(self.path)

    def _load(self, manifest: Mapping[str, Any]) -> None:
        self._names, self._following = list(manifest["segments"]), int(manifest["following"])
        self._segments = [open_segment(self.path / name) for name in self._names]

    def _remove_others(self) -> None:
        """Segments that the manifest does not name: merged ones, and what a killed addition left."""
        for folder in self.path.iterdir():
            if folder.is_dir() and folder.name not in self._names:
                shutil.rmtree(folder)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """The kernel frees it when the process ends, however it ends."""
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DaymillError(f"another process is adding to {self.path}; try again when it is done") from None
            yield


def changed_ids(path: Path, ids: Sequence[str]) -> str:
    more = f" and {len(ids) - EXAMPLES:,} more" if len(ids) > EXAMPLES else ""
    return (
        f"{path} knows {len(ids):,} of the ids with another text ({', '.join(ids[:EXAMPLES])}{more}); nothing was "
        "added. Give changed records ids of their own, or create the index anew"
    )
