"""Record shards: a folder of at most 64 Parquet parts, written and read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa
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

GROUP_ROWS = 10_000  # a row group is what a reader holds at once
GROUP_BYTES = 64 << 20  # ... and a record may have megabytes, so bytes bound it too
GROWTH_EVERY = 8  # from half of max_shards on, parts double in size this often


class ShardWriter:
    """Writes part-00000.parquet, part-00001.parquet, ... of `shard_rows` rows into a folder.

    The first half of `max_shards` parts have `shard_rows` rows; from there on the size doubles every 8 parts and the
    last one takes whatever comes, so that the number of files stays bounded for a stream of unknown length. A part
    appears under its name when it is complete. Same rows in, same bytes out, however the row count of the batches
    varies. An empty stream leaves one part without rows, which carries the schema.
    """

    def __init__(
        self, folder: str | Path, schema: pa.Schema = RECORD_SCHEMA, shard_rows: int = 50_000, max_shards: int = 64
    ) -> None:
        if shard_rows < 1 or max_shards < 1:
            raise ValueError(f"shard_rows and max_shards must be at least 1, got {shard_rows} and {max_shards}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if next(self.folder.glob("part-*.parquet"), None):
            raise DaymillError(f"{self.folder} already holds shards; write to a new folder")
        self.schema, self.shard_rows, self.max_shards = schema, shard_rows, max_shards
        self.rows = 0  # rows taken so far
        self.shards = 0  # parts finished so far
        self._buffer: list[pa.Table] = []
        self._buffered_rows = self._buffered_bytes = 0
        self._part: pq.ParquetWriter | None = None
        self._part_rows = 0

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
        start = 0
        while start < table.num_rows:
            room = min(GROUP_ROWS - self._buffered_rows, self._room_in_part() - self._buffered_rows)
            piece = table.slice(start, room)
            start += piece.num_rows
            self._buffer.append(piece)
            self._buffered_rows += piece.num_rows
            self._buffered_bytes += piece.nbytes
            full_part = self._buffered_rows >= self._room_in_part()
            if full_part or self._buffered_rows >= GROUP_ROWS or self._buffered_bytes >= GROUP_BYTES:
                self._flush_group()
            if full_part:
                self._finish_part()

    def close(self) -> None:
        self._flush_group()
        if self._part is None and self.shards == 0:
            self._open_part()
        self._finish_part()

    def _room_in_part(self) -> int:
        return self._target_rows() - self._part_rows

    def _target_rows(self) -> int:
        """Rows of the part that is being written."""
        if self.shards >= self.max_shards - 1:
            return 1 << 62
        late = self.shards - self.max_shards // 2
        return self.shard_rows << (0 if late < 0 else late // GROWTH_EVERY + 1)

    def _flush_group(self) -> None:
        if not self._buffered_rows:
            return
        if self._part is None:
            self._open_part()
        assert self._part is not None
        table = pa.concat_tables(self._buffer).combine_chunks()
        self._part.write_table(table, row_group_size=GROUP_ROWS)
        self._part_rows += self._buffered_rows
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0

    def _open_part(self) -> None:
        # Level 1: text shrinks nearly as well as at 3 and writing is the costly half of a data stage.
        self._part = pq.ParquetWriter(self._writing(), self.schema, compression="zstd", compression_level=1)

    def _finish_part(self) -> None:
        if self._part is None:
            return
        self._part.close()
        self._writing().rename(self.folder / f"part-{self.shards:05d}.parquet")
        self.shards += 1
        self._part, self._part_rows = None, 0

    def _abandon(self) -> None:
        if self._part is not None:
            self._part.close()
            self._writing().unlink(missing_ok=True)
            self._part = None

    def _writing(self) -> Path:
        return self.folder / f".part-{self.shards:05d}.writing"


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
