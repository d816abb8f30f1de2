"""Record shards: a folder of at most 64 Parquet parts, written and read in bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.errors import DaymillError

RECORD_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("label", pa.string()),
        ("group", pa.string()),
        ("entity", pa.string()),
        ("date", pa.string()),
        ("source", pa.string()),
        ("extra", pa.string()),
    ]
)

# What clean adds: records that no split may separate share a cluster; training counts a record by its weight.
KEPT_SCHEMA = RECORD_SCHEMA.append(pa.field("cluster", pa.string())).append(pa.field("weight", pa.float32()))

REPEATED = frozenset(("label", "group", "source", "verdict", "stage", "rule", "note"))
SOUGHT = frozenset(("id", "line"))  # by which a reader may skip row groups

GROUP_ROWS = 10_000  # a row group is what a reader holds at once
GROUP_BYTES = 64 << 20  # ... and a record may have megabytes, so bytes bound it too
GROWTH_EVERY = 8  # from half of max_shards on, parts double in size this often


class Grouper:
    """Cuts a stream of tables into the row groups of parts: the same rows give the same groups, whatever the batches.

    A group is full at `group_rows` rows, with the row that brings its strings to `group_bytes`, and at the end of a
    part. The first half of `max_shards` parts have `shard_rows` rows; from there on the size doubles every 8 parts and
    the last one takes whatever comes, so that the number of parts stays bounded for a stream of unknown length.
    """

    def __init__(
        self,
        schema: pa.Schema,
        shard_rows: int,
        max_shards: int,
        group_rows: int | None = None,
        group_bytes: int | None = None,
    ) -> None:
        if shard_rows < 1 or max_shards < 1:
            raise ValueError(f"shard_rows and max_shards must be at least 1, got {shard_rows} and {max_shards}")
        self.schema, self.shard_rows, self.max_shards = schema, shard_rows, max_shards
        self.group_rows, self.group_bytes = group_rows or GROUP_ROWS, group_bytes or GROUP_BYTES
        self.shards = 0  # parts finished so far
        self.part_rows = 0  # in groups of the part that is being written
        self.waiting: list[pa.Table] = []
        self.waiting_rows = self.waiting_bytes = 0

    def add(self, table: pa.Table) -> Iterator[tuple[pa.Table, bool]]:
        """Groups that are full now, and whether each is the last of its part."""
        while table.num_rows:
            room = min(self.group_rows, self.part_room()) - self.waiting_rows
            piece = table.slice(0, room)
            size = string_bytes(piece)
            if self.waiting_bytes + size >= self.group_bytes:
                piece = piece.slice(0, rows_until(piece, self.group_bytes - self.waiting_bytes))
                size = string_bytes(piece)
            table = table.slice(piece.num_rows)
            self.waiting.append(piece)
            self.waiting_rows += piece.num_rows
            self.waiting_bytes += size
            ends_part = self.waiting_rows >= self.part_room()
            if ends_part or self.waiting_rows >= self.group_rows or self.waiting_bytes >= self.group_bytes:
                yield self.take(ends_part), ends_part

    def take(self, ends_part: bool) -> pa.Table:
        """What waits, as a group."""
        group = pa.concat_tables(self.waiting).combine_chunks()
        self.part_rows += group.num_rows
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        if ends_part:
            self.shards += 1
            self.part_rows = 0
        return group

    def part_room(self) -> int:
        """Rows that the part may still take, those that wait included."""
        if self.shards >= self.max_shards - 1:
            return 1 << 62
        late = self.shards - self.max_shards // 2
        return (self.shard_rows << (0 if late < 0 else late // GROWTH_EVERY + 1)) - self.part_rows


class ShardWriter:
    """Writes part-00000.parquet, part-00001.parquet, ... into a folder, cut as `Grouper` says.

    A part appears under its name when it is complete. Same rows in, same bytes out, however the row count of the
    batches varies. An empty stream leaves one part without rows, which carries the schema.
    """

    def __init__(
        self, folder: str | Path, schema: pa.Schema = RECORD_SCHEMA, shard_rows: int = 50_000, max_shards: int = 64
    ) -> None:
        self.groups = Grouper(schema, shard_rows, max_shards)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if next(self.folder.glob("part-*.parquet"), None):
            raise DaymillError(f"{self.folder} already holds shards; write to a new folder")
        self.schema = schema
        self.rows = 0  # rows taken so far
        self.shards = 0  # parts finished so far
        self._part: pq.ParquetWriter | None = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows, brought into the schema's column order and types. Raises DaymillError where they do not fit."""
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        table = conform(table, self.schema)
        self.rows += table.num_rows
        for group, ends_part in self.groups.add(table):
            self._write_group(group)
            if ends_part:
                self._finish_part()

    def close(self) -> None:
        if self.groups.waiting:
            self._write_group(self.groups.take(False))
        if self._part is None and self.shards == 0:
            self._part = parquet_writer(self._writing(), self.schema)
        self._finish_part()

    def _write_group(self, group: pa.Table) -> None:
        if self._part is None:
            self._part = parquet_writer(self._writing(), self.schema)
        self._part.write_table(group, row_group_size=group.num_rows)

    def _finish_part(self) -> None:
        if self._part is None:
            return
        self._part.close()
        self._writing().rename(self.folder / f"part-{self.shards:05d}.parquet")
        self.shards += 1
        self._part = None

    def _abandon(self) -> None:
        if self._part is not None:
            self._part.close()
            self._writing().unlink(missing_ok=True)
            self._part = None

    def _writing(self) -> Path:
        return self.folder / f".part-{self.shards:05d}.writing"


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Writing is the costly half of a data stage: LZ4 takes half the time of zstd's fastest level and half as much more
    room, only columns that repeat themselves are worth a dictionary, and only those that are searched their bounds."""
    repeated = [name for name in schema.names if name in REPEATED]
    bounded = [name for name in schema.names if name in SOUGHT]
    return pq.ParquetWriter(path, schema, compression="lz4", use_dictionary=repeated, write_statistics=bounded)


def string_bytes(table: pa.Table) -> int:
    """Bytes of all strings of a table."""
    columns = [column for column in table.columns if pa.types.is_string(column.type)]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)


def rows_until(table: pa.Table, size: int) -> int:
    """Rows up to the one that brings the bytes of all strings to `size`; all where they do not reach it."""
    columns = [column for column in table.columns if pa.types.is_string(column.type)]
    total = functools.reduce(pc.add, [pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()) for column in columns])
    reached = pc.greater_equal(pc.cumulative_sum(total), size)
    place = pc.index(reached, True).as_py()
    return table.num_rows if place < 0 else place + 1


def read_shards(
    folder: str | Path, columns: list[str] | None = None, batch_rows: int = 10_000
) -> Iterator[pa.RecordBatch]:
    """All rows in order, in batches of at most `batch_rows`; memory is bounded by a row group."""
    for path in shard_files(folder):
        with opened(path) as file:
            yield from file.iter_batches(batch_size=batch_rows, columns=known_columns(file, columns, path))


def read_table(folder: str | Path, columns: list[str] | None = None) -> pa.Table:
    """All rows as one table, in memory."""
    tables = []
    for path in shard_files(folder):
        with opened(path) as file:
            tables.append(file.read(columns=known_columns(file, columns, path)))
    return pa.concat_tables(tables)


def count_rows(folder: str | Path) -> int:
    """Rows of all parts, read from their footers."""
    total = 0
    for path in shard_files(folder):
        with opened(path) as file:
            total += file.metadata.num_rows
    return total


def shard_files(folder: str | Path) -> list[Path]:
    """The parts of a folder in order. Raises DaymillError where there is none."""
    paths = sorted(Path(folder).glob("part-*.parquet"))
    if not paths:
        raise DaymillError(f"no record shards (part-*.parquet) in {folder}: run the stage that writes them")
    return paths


def opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DaymillError(
            f"{path} is not a readable Parquet file ({error}); run the stage that wrote it again"
        ) from None


def known_columns(file: pq.ParquetFile, columns: list[str] | None, path: Path) -> list[str] | None:
    """Refuse a column that is not there: Parquet readers leave it out silently."""
    missing = [name for name in columns or [] if name not in file.schema_arrow.names]
    if missing:
        raise DaymillError(f"{path} has no column {', '.join(missing)} (it has {', '.join(file.schema_arrow.names)})")
    return columns


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns in the schema's order and types."""
    if table.schema.equals(schema):
        return table
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        raise DaymillError(
            f"records do not fit the shard's columns: missing {missing}, unknown {unknown}, expected {schema.names}"
        )
    return table.select(schema.names).cast(schema)
