"""Records out of files: which reader a file needs, and which files a source has."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from data.errors import DaymillError
from data.readers.csv import read_csv
from data.readers.item import Bad, FileNotes, Item, Limits
from data.readers.json_array import read_json_array, read_json_objects
from data.readers.jsonl import read_jsonl
from data.readers.parquet import read_parquet
from data.readers.stream import BOM, blocks
from data.readers.xml import read_xml

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".xml": "xml",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
COMPRESSIONS = (".gz", ".zst")
KNOWN = ".jsonl .ndjson .json .xml .csv .tsv, plain or with .gz or .zst, and .parquet"
Reader = Callable[[Iterator[bytes], Limits, FileNotes], Iterator[Item]]
# UTF-16 and UTF-32 begin so; read as UTF-8 every line of them would be refused one by one.
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def read_records(path: Path, limits: Limits, notes: FileNotes) -> Iterator[Item]:
    """Records of one file in order, found or refused, in bounded memory.

    A file of unknown type or one that cannot be opened is one refused record (`unknown-type`, `unreadable`), so that
    a run over many files goes on. `notes` is filled while reading.
    """
    notes.format = format_of(path)
    try:
        size = path.stat().st_size
        if notes.format == "parquet":
            yield from read_parquet(path, limits)
        elif notes.format:
            yield from read_text(path, limits, notes)
        else:
            yield Bad(None, None, b"", size, "unknown-type", f"no reader for `{path.suffix}`; known: {KNOWN}")
    except OSError as error:
        yield unreadable(error, notes)


def unreadable(error: OSError, notes: FileNotes) -> Bad:
    """What cannot be read of a file, as one refused record."""
    notes.remarks.append(f"cannot be read: {error.strerror}")
    return Bad(None, None, b"", 0, "unreadable", error.strerror or type(error).__name__)


def read_text(path: Path, limits: Limits, notes: FileNotes) -> Iterator[Item]:
    stream = blocks(path, notes)
    head = next(stream, b"")
    stream = itertools.chain([head] if head else [], stream)
    if head.startswith(WIDE_MARKS):
        size = sum(len(block) for block in stream)
        yield Bad(1, 0, head[: limits.raw_bytes], size, "encoding", "UTF-16 or UTF-32; convert the file to UTF-8")
    elif notes.format == "xml":
        yield from read_xml(stream, limits, notes)
    elif notes.format in ("csv", "tsv"):
        yield from read_csv(stream, limits, notes, "\t" if notes.format == "tsv" else "")
    elif notes.format == "jsonl":
        yield from read_jsonl(stream, limits, notes)
    else:
        yield from json_reader(head)(stream, limits, notes)


def is_json_lines(path: Path) -> bool:
    """Whether `read_records` would read a file as JSON Lines. Raises OSError."""
    kind = format_of(path)
    if kind not in ("jsonl", "json"):
        return False
    head = next(blocks(path, FileNotes()), b"")
    return not head.startswith(WIDE_MARKS) and (kind == "jsonl" or json_reader(head) is read_jsonl)


def json_reader(head: bytes) -> Reader:
    """The reader for a .json file by its first block: an array, one object a line, or objects over several lines."""
    begin = head.removeprefix(BOM).lstrip(b" \t\r\n")
    if begin.startswith(b"["):
        return read_json_array
    first_line, end, _ = begin.partition(b"\n")
    if not begin.startswith(b"{") or (end and is_json(first_line)):
        return read_jsonl
    return read_json_objects


def is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def format_of(path: Path) -> str:
    """A key of the readers by the file's name ("" if unknown); Parquet also by its first bytes."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        name = SUFFIXES.get(suffixes[-2], "") if len(suffixes) > 1 else ""
        return "" if name == "parquet" else name
    return SUFFIXES.get(suffixes[-1], "") if suffixes else ""


def source_files(source: str | Path) -> list[tuple[str, Path]]:
    """(dataset/file, path) of every file of a source, a file or a folder with its subfolders, sorted by name.

    Hidden files and those that begin with `_` (markers of other tools) are none of the source's. Raises DaymillError
    for a missing path and for a folder without any file.
    """
    source = Path(source)
    dataset = source.resolve()
    if source.is_file():
        return [(f"{dataset.parent.name}/{source.name}", source)]
    if not source.is_dir():
        raise DaymillError(
            f"source {source} does not exist; expected a file or a folder of files ({KNOWN}): "
            "set ingest.source in params.yaml, or make the sample with `daymill sample spam`"
        )
    found = []
    for folder, folders, files in os.walk(source, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [Path(folder, name) for name in files if not name.startswith((".", "_"))]
    named = sorted((path.relative_to(source).as_posix(), path) for path in found)
    if not any(format_of(path) for _, path in named):
        other = f" ({len(named)} of other kinds, such as {named[0][0]})" if named else ""
        raise DaymillError(f"source {source} has no file that can be read{other}; known: {KNOWN}")
    return [(f"{dataset.name}/{name}", path) for name, path in named]
