"""The decision on every record of a file: kept, repaired or quarantined, by which rule, at which place."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.ids import SeenIds
from data.readers.item import Bad, FileNotes, Item, Limits
from data.records import read_records
from data.strict_json import Refused
from data.validate import FieldMap, Mapper, Record, content_id, json_type, unmatched_error

BATCH_ROWS = 5_000
BATCH_BYTES = 16_000_000
TYPED_ROWS = 1_000  # the types of fields are taken from the first records of a file only
MAX_SHAPES = 1_000  # distinct sets of keys that are told apart in a file
DUPLICATE = ("duplicate-id", "an earlier record has this id")
GIVE_UP_AFTER = 100_000  # records without any text before a wrong mapping is called one, not only at the end


@dataclass
class Batch:
    """Decisions in the order of the file, as columns; `refused` has the bytes of the quarantined ones by place."""

    source: str
    lines: list[int | None] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    notes: list[str | None] = field(default_factory=list)
    kept: list[Record] = field(default_factory=list)
    waiting: list[tuple[int, Record, bytes]] = field(default_factory=list)  # place, record, bytes: all but the id
    refused: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)


@dataclass
class FileTally:
    """What a file turned out to hold."""

    source: str
    notes: FileNotes = field(default_factory=FileNotes)
    found: int = 0
    kept: int = 0
    rules: Counter[str] = field(default_factory=Counter)  # quarantined, by rule
    repairs: Counter[str] = field(default_factory=Counter)
    made_ids: int = 0
    shapes: Counter[tuple[str, ...]] = field(default_factory=Counter)  # key sets of objects
    types: dict[str, set[str]] = field(default_factory=dict)

    @property
    def quarantined(self) -> int:
        return self.rules.total()

    def fields(self) -> list[str]:
        """Keys of its objects in the order of their first coming."""
        return list(dict.fromkeys(key for shape in self.shapes for key in shape))

    def see(self, value: dict[str, Any]) -> None:
        self.see_shape(tuple(value))
        if self.found <= TYPED_ROWS:
            for key, item in value.items():
                if item is not None:
                    self.types.setdefault(key, set()).add(json_type(item))

    def see_shape(self, keys: tuple[str, ...], count: int = 1) -> None:
        if keys in self.shapes or len(self.shapes) < MAX_SHAPES:
            self.shapes[keys] += count


def stored(tally: FileTally) -> dict[str, Any]:
    """A tally as plain values, from which `restored` makes it again."""
    notes = tally.notes
    return {
        "source": tally.source,
        "notes": {"bom": notes.bom, "blank_lines": notes.blank_lines, "format": notes.format, "remarks": notes.remarks},
        "found": tally.found,
        "kept": tally.kept,
        "rules": tally.rules,
        "repairs": tally.repairs,
        "made_ids": tally.made_ids,
        "shapes": [[list(keys), count] for keys, count in tally.shapes.items()],
        "types": {key: sorted(types) for key, types in tally.types.items()},
    }


def restored(values: dict[str, Any]) -> FileTally:
    return FileTally(
        source=values["source"],
        notes=FileNotes(**values["notes"]),
        found=values["found"],
        kept=values["kept"],
        rules=Counter(values["rules"]),
        repairs=Counter(values["repairs"]),
        made_ids=values["made_ids"],
        shapes=Counter({tuple(keys): count for keys, count in values["shapes"]}),
        types={key: set(types) for key, types in values["types"].items()},
    )


class Intake:
    """Decides files one after another; ids are unique over all of them.

    A record without an id gets one made of its content. Records of equal content without ids are all kept, the second
    as `...-2` and so on: dropping exact duplicates is a matter of cleaning, with a word in its ledger.
    """

    def __init__(self, names: FieldMap, limits: Limits) -> None:
        self.limits = limits
        self.mapper = Mapper(names)
        self.seen = SeenIds()
        self.repeats: Counter[str] = Counter()  # made ids that came again
        self.tallies: list[FileTally] = []

    def decide(self, source: str, path: Path, skip: int = 0) -> Iterator[Batch]:
        """Batches of decisions on one file. Raises DaymillError where the mapping fits none of very many records.

        `skip`: so many of the file's first records were decided before; they are read over and not counted.
        """
        tally = self.tally(source)
        batch, held = Batch(source), 0
        for item in itertools.islice(read_records(path, self.limits, tally.notes), skip, None):
            held += self.take(batch, tally, item)
            if len(batch) >= BATCH_ROWS or held >= BATCH_BYTES:
                self.settle(batch, tally)
                self.complain_early()
                yield batch
                batch, held = Batch(source), 0
        if len(batch):
            self.settle(batch, tally)
            yield batch

    def tally(self, source: str) -> FileTally:
        """The tally of a file: a new one, or the last one where it is that file's already."""
        if not self.tallies or self.tallies[-1].source != source:
            self.tallies.append(FileTally(source))
        return self.tallies[-1]

    def take(self, batch: Batch, tally: FileTally, item: Item) -> int:
        """Put a record into a batch, decided but for its id; returns about how many bytes are held for it."""
        tally.found += 1
        batch.lines.append(item.line)
        batch.offsets.append(item.offset)
        if isinstance(item, Bad):
            self.refuse(batch, tally, item.rule, item.note, item.raw, item.size)
            return len(item.raw)
        value = item.value
        if type(value) is dict:
            tally.see(value)
        try:
            record = self.mapper.record(value)
        except Refused as refused:
            raw = item.raw[: self.limits.raw_bytes]
            self.refuse(batch, tally, refused.rule, refused.note, raw, len(item.raw))
            return len(raw)
        batch.waiting.append((len(batch.ids), record, item.raw))
        batch.ids.append(record.id)
        batch.verdicts.append("kept")
        batch.rules.append("")
        batch.notes.append(None)
        return 2 * len(item.raw)

    def refuse(self, batch: Batch, tally: FileTally, rule: str, note: str, raw: bytes, size: int) -> None:
        batch.refused[len(batch.ids)] = (raw, size)
        batch.ids.append(None)
        batch.verdicts.append("quarantined")
        batch.rules.append(rule)
        batch.notes.append(note)
        tally.rules[rule] += 1

    def settle(self, batch: Batch, tally: FileTally) -> None:
        """Ids: made where missing, refused where they came before."""
        waiting = batch.waiting
        made = [record for _, record, _ in waiting if not record.id]
        answers = [] if made else self.seen.admit([record.id for _, record, _ in waiting])
        for number, (place, record, raw) in enumerate(waiting):
            if made:
                id_ = self.own_id(record.id, record)
            else:
                id_ = record.id if answers[number] else None
            self.finish(batch, tally, place, record, raw, id_)
        waiting.clear()

    def own_id(self, given: str | None, record: Record) -> str | None:
        """The id of a record: its own, None where that came before, or one made of its content."""
        if given:
            return given if self.seen.admit([given])[0] else None
        id_ = content_id(record)
        return id_ if self.seen.admit([id_])[0] else self.next_free(id_)

    def finish(self, batch: Batch, tally: FileTally, place: int, record: Record, raw: bytes, id_: str | None) -> None:
        """Keep a record under its id, or refuse it where it has none."""
        if id_ is None:
            batch.ids[place] = record.id
            batch.verdicts[place], batch.rules[place] = "quarantined", DUPLICATE[0]
            batch.notes[place] = DUPLICATE[1]
            batch.refused[place] = (raw[: self.limits.raw_bytes], len(raw))
            tally.rules[DUPLICATE[0]] += 1
            return
        batch.ids[place] = id_
        tally.made_ids += not record.id
        if record.repair:
            batch.verdicts[place], batch.rules[place], batch.notes[place] = "repaired", "date", record.repair
            tally.repairs["date"] += 1
        tally.kept += 1
        batch.kept.append(record._replace(id=id_))

    def next_free(self, id_: str) -> str:
        while True:
            self.repeats[id_] += 1
            candidate = f"{id_}-{self.repeats[id_] + 1}"
            if self.seen.admit([candidate])[0]:
                return candidate

    def fields_seen(self) -> list[str]:
        return list(dict.fromkeys(key for tally in self.tallies for key in tally.fields()))

    def complain(self) -> None:
        """Raise DaymillError where a mapped name is in no record at all."""
        error = unmatched_error(self.mapper, self.fields_seen())
        if error:
            raise error

    def complain_early(self) -> None:
        mapper = self.mapper
        if mapper.objects >= GIVE_UP_AFTER and not mapper.matched.intersection(mapper.names.text):
            self.complain()
