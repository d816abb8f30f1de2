"""Parquet by row groups: `line` is the row's number, a byte offset does not exist."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from data.readers.item import Bad, Found, Item, Limits
from data.strict_json import Refused, dump

BATCH_BYTES = 16_000_000  # of decoded rows held at once, going by the file's own figures
MAX_BATCH_ROWS = 2_000


def read_parquet(path: Path, limits: Limits) -> Iterator[Item]:
    """Rows as objects. NaN is a missing value here (pandas writes it so); infinities are refused (`number`).

    A file that is no Parquet is refused whole; a row group that cannot be read is one refused record.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        yield Bad(None, None, b"", path.stat().st_size, "unreadable", f"not a Parquet file: {first_line(error)}")
        return
    with file:
        done = 0
        for group in range(file.metadata.num_row_groups):
            about = file.metadata.row_group(group)
            rows = max(1, min(MAX_BATCH_ROWS, BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1)))
            read = 0
            try:
                for batch in file.iter_batches(batch_size=rows, row_groups=[group]):
                    yield from batch_items(batch, done + read, limits)
                    read += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                note = f"row group {group}: {about.num_rows - read} rows cannot be read: {first_line(error)}"
                yield Bad(done + read + 1, None, b"", about.total_byte_size, "corrupt", note)
            done += about.num_rows


def batch_items(batch: Any, before: int, limits: Limits) -> Iterator[Item]:
    try:
        for number, value in enumerate(batch.to_pylist(), before + 1):
            yield row_item(value, number, limits)
    except UnicodeDecodeError:
        if batch.num_rows > 1:  # find the row: the halves are read again
            half = batch.num_rows // 2
            yield from batch_items(batch.slice(0, half), before, limits)
            yield from batch_items(batch.slice(half), before + half, limits)
        else:
            yield Bad(before + 1, None, b"", 0, "encoding", "a string is not UTF-8")


def row_item(row: dict[str, Any], number: int, limits: Limits) -> Item:
    try:
        value = {key: plain(cell, limits.max_depth - 1) for key, cell in row.items()}
    except Refused as refused:
        return Bad(number, None, b"", 0, refused.rule, refused.note)
    raw = dump(value).encode()
    if len(raw) > limits.max_record_bytes:
        return Bad(number, None, raw[: limits.raw_bytes], len(raw), "size", limits.too_large(len(raw)))
    return Found(number, None, raw, value)


def plain(cell: Any, room: int) -> Any:
    """A cell as JSON has it: NaN as null, times in ISO 8601, whole decimals as integers, UTF-8 bytes as text.

    Other bytes stay bytes, which no mapped field takes. Raises Refused for an infinity or too many levels.
    """
    if cell is None or isinstance(cell, str | int):
        return cell
    if isinstance(cell, float):
        if math.isinf(cell):
            raise Refused("number", "an infinity is not a JSON number")
        return None if math.isnan(cell) else cell
    if isinstance(cell, dict | list | tuple):
        if room < 1:
            raise Refused("depth", "nested too deep")
        if isinstance(cell, dict):
            return {str(key): plain(item, room - 1) for key, item in cell.items()}
        return [plain(item, room - 1) for item in cell]
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else str(cell)
    if isinstance(cell, bytes):
        try:
            return cell.decode("utf-8")
        except UnicodeDecodeError:
            return cell
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
