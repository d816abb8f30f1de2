"""Intake of JSON Lines by columns: the compiled scanner takes what it is sure of, the intake decides the other lines.

Decisions, their order and everything that is written are those of `Intake.decide`; only the speed differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from data.decided import STAGE, Decided, Refusal, decided, decisions, kept_records, record_table, refusals
from data.intake import DUPLICATE, MAX_SHAPES, TYPED_ROWS, Batch, FileTally, Intake
from data.ledger import ledger_table
from data.readers.item import Bad
from data.readers.jsonl import line_item
from data.readers.jsonl_scan import BLANK, DATE, ID, SCALAR, TEXT, UNSURE, scan
from data.readers.line_chunks import Chunk, line_chunks
from data.readers.stream import blocks, without_bom
from data.records import format_of, unreadable
from data.strict_json import Refused, dump, parse
from data.validate import Record

CHUNK = 4 << 20
FIRST_CHUNK = 1 << 18  # while the intake decides every line by itself
SCALARS = ("label", "group", "entity")
LF = 10
NULL = pa.scalar(None, pa.string())


def decide_lines(intake: Intake, source: str, path: Path, cursor: tuple[int, int] | None = None) -> Iterator[Decided]:
    """Decisions on a JSON Lines file, from its beginning or from `cursor` (a byte and a line) on."""
    tally = intake.tally(source)
    notes, limits = tally.notes, intake.limits
    notes.format = format_of(path)
    offset, number = cursor or (0, 0)
    failures: list[OSError] = []
    stream = until_failure(blocks(path, notes, offset), failures)
    if cursor is None:
        offset, stream = without_bom(stream, notes)
    columns = Columns(intake, tally)
    for chunk in line_chunks(stream, columns.chunk_bytes, limits.max_record_bytes, limits.raw_bytes, offset):
        if chunk.size < 0:
            done, lines = columns.decide(chunk, number)
            number += lines
        elif failures and not chunk.ended:
            continue  # the part of a line that was read goes with the rest that was not
        else:
            done = one_line(intake, chunk, number + 1, tally)
            number += 1
            offset = chunk.offset + chunk.size + chunk.ended
        offset = done.cursor[0] if done.cursor else offset
        if len(done):
            intake.complain_early()
        yield done
        if not chunk.ended and notes.damage:
            return
    if notes.damage:
        batch = Batch(source)
        intake.take(batch, tally, Bad(number + 1, offset, b"", 0, notes.damage.rule, notes.damage.note))
        yield decided(batch, (offset, number))
    for failure in failures:
        batch = Batch(source)
        intake.take(batch, tally, unreadable(failure, notes))
        yield decided(batch, (offset, number))


def until_failure(stream: Iterator[bytes], failures: list[OSError]) -> Iterator[bytes]:
    """A stream that ends where it cannot be read on, so that what was read before is decided; the error is kept."""
    try:
        yield from stream
    except OSError as error:
        failures.append(error)


def one_line(intake: Intake, chunk: Chunk, number: int, tally: FileTally) -> Decided:
    """A line that stands alone: too long, or without an end."""
    batch, limits, damage = Batch(tally.source), intake.limits, tally.notes.damage
    if not chunk.ended and damage:
        raw = chunk.data[: limits.raw_bytes]
        intake.take(batch, tally, Bad(number, chunk.offset, raw, chunk.size, damage.rule, damage.note))
    elif item := line_item(number, chunk.offset, chunk.data, chunk.size, limits):
        intake.take(batch, tally, item)
        intake.settle(batch, tally)
    else:
        tally.notes.blank_lines += 1
    return decided(batch, (chunk.offset + chunk.size + chunk.ended, number))


@dataclass
class Taken:
    """Records that the scanner took: their lines in the chunk, hashes of their keys, which wanted names they have, and
    the columns of RECORD_SCHEMA without `source`."""

    lines: np.ndarray
    shapes: np.ndarray
    present: np.ndarray  # [wanted name, record]
    columns: list[pa.Array]  # id, text, label, group, entity, date, extra

    def __len__(self) -> int:
        return len(self.lines)

    def filter(self, keep: np.ndarray) -> Taken:
        columns = [column.filter(pa.array(keep)) for column in self.columns]
        return Taken(self.lines[keep], self.shapes[keep], self.present[:, keep], columns)


class Columns:
    """Decides chunks of whole lines of one file."""

    def __init__(self, intake: Intake, tally: FileTally) -> None:
        self.intake, self.tally = intake, tally
        names = intake.mapper.names
        self.ours = [*names.text, names.id, *(getattr(names, field) for field in SCALARS), names.date]
        roles = [TEXT] * len(names.text) + [ID] + [SCALAR] * len(SCALARS) + [DATE]
        self.names = [name for name in self.ours if name is not None]
        encoded = [name.encode() for name in self.names]
        self.name_bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self.name_ends = np.cumsum([len(name) for name in encoded])
        self.roles = np.array([role for name, role in zip(self.ours, roles) if name is not None], np.int64)
        self.keys: dict[int, tuple[str, ...]] = {}  # of a shape
        self.memory = np.empty((0, 0), np.uint8)

    def chunk_bytes(self) -> int:
        return CHUNK if self.tally.found >= TYPED_ROWS else FIRST_CHUNK

    def decide(self, chunk: Chunk, before: int) -> tuple[Decided, int]:
        """Decisions on a chunk whose first line is number `before` + 1, and how many lines it has."""
        buffer = np.frombuffer(chunk.data, np.uint8)
        starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(buffer == LF) + 1])
        status = np.full(len(starts) - 1, UNSURE, np.uint8)
        taken = None
        if self.tally.found >= TYPED_ROWS:  # the intake itself looks at the types of a file's first records
            taken = self.scan(buffer, status)
            self.tally.notes.blank_lines += int(np.count_nonzero(status == BLANK))
        place = Place(chunk, starts, before)
        batch, lines = self.take_unsure(place, status, self.new_shapes(taken, place) if taken else [])
        after = (chunk.offset + len(chunk.data), before + len(status))
        if not taken or not len(taken):
            self.intake.settle(batch, self.tally)
            return decided(batch, after), len(status)
        self.count(taken)
        return self.settle(taken, batch, lines, place, after), len(status)

    def scan(self, buffer: np.ndarray, status: np.ndarray) -> Taken:
        """What the scanner takes; sets the status of every line."""
        fields, lines, limits = len(self.names), len(status), self.intake.limits
        columns = self.room(fields + 1, len(buffer))
        ends = np.zeros((fields + 1, lines + 1), np.int32)
        valid, present = np.empty((fields + 1, lines + 1), np.bool_), np.empty((fields, lines + 1), np.bool_)
        rows, shapes, odd = np.empty(lines, np.int64), np.empty(lines, np.uint64), np.empty(lines + 1, np.bool_)
        wanted = (self.name_bytes, self.name_ends, self.roles)
        count = scan(buffer, *wanted, limits.max_record_bytes, columns, ends, valid, present, status, rows, odd, shapes)
        arrays = [strings(columns[f], ends[f], valid[f], count) for f in range(fields + 1)]
        written, failed = written_anew(columns[fields], ends[fields], np.flatnonzero(odd[:count]), limits.max_depth)
        if written:
            arrays[fields] = pc.replace_with_mask(arrays[fields], pa.array(odd[:count]), pa.array(written))
        by_name = dict(zip(self.names, arrays))
        ours = [by_name[name] if name is not None else pa.nulls(count, pa.string()) for name in self.ours]
        texts, (id_, *others) = ours[: -len(SCALARS) - 2], ours[-len(SCALARS) - 2 :]
        text = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "\n\n", null_handling="skip")
        taken = Taken(rows[:count], shapes[:count], present[:, :count], [id_, text, *others, arrays[fields]])
        if failed:  # no strict JSON inside: the line goes to the strict parser, which says why
            keep = np.ones(count, np.bool_)
            keep[failed] = False
            status[rows[failed]] = UNSURE
            return taken.filter(keep)
        return taken

    def room(self, columns: int, size: int) -> np.ndarray:
        """Memory for columns, the same for all chunks: fresh pages cost more than the bytes written to them."""
        if self.memory.shape[1] < size:
            self.memory = np.empty((columns, size + size // 8), np.uint8)
        return self.memory

    def new_shapes(self, taken: Taken, place: Place) -> list[tuple[int, tuple[str, ...], int]]:
        """The sets of keys of the records: the line of the first one, the keys, how many; in the order of lines."""
        shapes, first, counts = np.unique(taken.shapes, return_index=True, return_counts=True)
        found = []
        for shape, line, count in zip(shapes.tolist(), taken.lines[first].tolist(), counts.tolist()):
            if shape not in self.keys and len(self.keys) < MAX_SHAPES:
                self.keys[shape] = tuple(orjson.loads(place.raw(line)))
            found.append((line, self.keys.get(shape) or tuple(orjson.loads(place.raw(line))), count))
        return sorted(found)

    def take_unsure(
        self, place: Place, status: np.ndarray, shapes: list[tuple[int, tuple[str, ...], int]]
    ) -> tuple[Batch, list[int]]:
        """The other lines, decided but for their ids, and which lines they are; shapes are told in their order."""
        batch, lines, tally = Batch(self.tally.source), [], self.tally
        for line in np.flatnonzero(status == UNSURE).tolist():
            while shapes and shapes[0][0] < line:
                tally.see_shape(*shapes.pop(0)[1:])
            raw = place.raw(line)
            item = line_item(place.number(line), place.offset(line), raw, len(raw), self.intake.limits)
            if item is None:
                tally.notes.blank_lines += 1
            else:
                self.intake.take(batch, tally, item)
                lines.append(line)
        for _, keys, count in shapes:
            tally.see_shape(keys, count)
        return batch, lines

    def count(self, taken: Taken) -> None:
        self.tally.found += len(taken)
        self.intake.mapper.objects += len(taken)
        self.intake.mapper.matched.update(name for name, found in zip(self.names, taken.present) if found.any())

    def settle(self, taken: Taken, batch: Batch, lines: list[int], place: Place, after: tuple[int, int]) -> Decided:
        """Ids in the order of lines, then both kinds of decisions as one."""
        ids, slow_ids = self.own_ids(taken, batch, lines)
        waiting_lines = [lines[entry] for entry, _, _ in batch.waiting]
        for (entry, record, raw), id_ in zip(batch.waiting, slow_ids):
            self.intake.finish(batch, self.tally, entry, record, raw, id_)
        kept = ids.is_valid().to_numpy(zero_copy_only=False)
        double = np.flatnonzero(~kept)
        ledger = self.ledger(taken, ids, kept, place)
        given = taken.columns[0]
        taken.columns[0] = ids
        if len(double):
            self.tally.rules[DUPLICATE[0]] += len(double)
            refused = [(int(taken.lines[i]), self.double(int(taken.lines[i]), place)) for i in double]
            ledger = ledger.set_column(ledger.schema.get_field_index("id"), "id", pc.coalesce(ids, given))
            taken = taken.filter(kept)
        else:
            refused = []
        self.tally.kept += len(taken)
        records = record_table(taken.columns, self.tally.source)
        if lines:
            kept_lines = [line for line, id_ in zip(waiting_lines, slow_ids) if id_ is not None]
            records = woven(records, taken.lines, kept_records(batch), kept_lines)
            all_lines = place.lines_of(ledger)
            ledger = woven(ledger, all_lines, decisions(batch), lines)
            refused = sorted([*refused, *zip([lines[entry] for entry in sorted(batch.refused)], refusals(batch))])
        return Decided(self.tally.source, records, ledger, [refusal for _, refusal in refused], after)

    def own_ids(self, taken: Taken, batch: Batch, lines: list[int]) -> tuple[pa.Array, list[str | None]]:
        """Ids of taken and of waiting records: null where one came before, made of the content where it has none."""
        intake, given = self.intake, taken.columns[0]
        waiting = [record for _, record, _ in batch.waiting]
        order = np.argsort(
            np.concatenate([taken.lines, np.array([lines[entry] for entry, _, _ in batch.waiting], np.int64)])
        )
        if given.null_count or not all(record.id for record in waiting):
            texts = given.to_pylist()
            own: list[str | None] = [None] * len(order)
            made = 0
            for i in order.tolist():
                if i >= len(taken):
                    record = waiting[i - len(taken)]
                    own[i] = intake.own_id(record.id, record)
                elif texts[i]:
                    own[i] = texts[i] if intake.seen.admit([texts[i]])[0] else None
                else:
                    text, label, group, entity, date, extra = [column[i].as_py() for column in taken.columns[1:]]
                    own[i] = intake.own_id(None, Record("", text, label, group, entity, date, extra, ""))
                    made += 1
            self.tally.made_ids += made
            return pa.array(own[: len(taken)], pa.string()), own[len(taken) :]
        together = given
        if waiting:
            together = pa.concat_arrays([given, pa.array([record.id for record in waiting], pa.string())]).take(order)
        new = np.empty(len(order), np.bool_)
        new[order] = intake.seen.admit_array(together)
        own_given = given if new[: len(taken)].all() else pc.if_else(pa.array(new[: len(taken)]), given, NULL)
        return own_given, [record.id if ok else None for record, ok in zip(waiting, new[len(taken) :])]

    def ledger(self, taken: Taken, ids: pa.Array, kept: np.ndarray, place: Place) -> pa.Table:
        count, double = len(taken), not kept.all()
        rule, note = DUPLICATE
        columns = {
            "source": self.tally.source,
            "line": pa.array(place.number(taken.lines)),
            "offset": pa.array(place.offset(taken.lines)),
            "id": ids,
            "verdict": pc.if_else(pa.array(kept), "kept", "quarantined") if double else "kept",
            "rule": pc.if_else(pa.array(kept), "", rule) if double else "",
            "note": pc.if_else(pa.array(kept), NULL, note) if double else None,
        }
        return ledger_table(columns, count, STAGE)

    def double(self, line: int, place: Place) -> Refusal:
        raw = place.raw(line)
        rule, note = DUPLICATE
        kept_bytes = raw[: self.intake.limits.raw_bytes]
        return Refusal(place.number(line), place.offset(line), rule, note, kept_bytes, len(raw))


@dataclass(frozen=True)
class Place:
    """Where the lines of a chunk are in it and in the file."""

    chunk: Chunk
    starts: np.ndarray  # one more than there are lines
    before: int  # lines of the file before the chunk

    def raw(self, line: int) -> bytes:
        return self.chunk.data[int(self.starts[line]) : int(self.starts[line + 1]) - 1]

    def number(self, line: Any) -> Any:
        return self.before + 1 + line

    def offset(self, line: Any) -> Any:
        return self.chunk.offset + (int(self.starts[line]) if isinstance(line, int) else self.starts[line])

    def lines_of(self, ledger: pa.Table) -> np.ndarray:
        return ledger["line"].to_numpy() - self.before - 1


def strings(data: np.ndarray, ends: np.ndarray, valid: np.ndarray, count: int) -> pa.Array:
    """A column of the scanner as Arrow strings, with a copy of its bytes."""
    mask = None if valid[:count].all() else pa.py_buffer(np.packbits(valid[:count], bitorder="little"))
    ends = ends[: count + 1]
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data[: ends[-1]].copy()), mask)


def written_anew(data: np.ndarray, ends: np.ndarray, rows: np.ndarray, max_depth: int) -> tuple[list[str], list[int]]:
    """The objects of some rows, parsed strictly and written again; and the rows where that refused one."""
    written, failed = [], []
    for row in rows.tolist():
        try:
            written.append(dump(parse(data[ends[row] : ends[row + 1]].tobytes(), max_depth)))
        except Refused:
            written.append("")
            failed.append(row)
    return written, failed


def woven(table: pa.Table, lines: np.ndarray, other: pa.Table, other_lines: list[int]) -> pa.Table:
    """Two tables in the order of their lines."""
    if not other_lines:
        return table
    order = np.argsort(np.concatenate([lines, np.array(other_lines, np.int64)]))
    return pa.concat_tables([table, other]).combine_chunks().take(order)
