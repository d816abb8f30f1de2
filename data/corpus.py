"""Texts to pretrain on, apart from the task's own: bounded memory, cut to documents, without what is judged."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from data.errors import DaymillError
from data.heldout import HeldOut
from data.intake import Intake
from data.readers.item import FileNotes, Limits
from data.readers.stream import BOM, blocks
from data.records import COMPRESSIONS, KNOWN, format_of
from data.validate import field_map

TEXTS = (".txt", ".text", ".md", ".rst")
BATCH = 512  # documents looked at together


@dataclass
class Tally:
    """What a corpus held and what became of it: documents = kept + held_out + repeats."""

    files: int = 0
    other_files: int = 0  # neither texts nor records
    refused: int = 0  # records, and text files that are not UTF-8
    damaged_files: int = 0  # compressed files that end before their end; what was there is used
    documents: int = 0
    held_out: int = 0  # documents that share words with a text of valid or test
    repeats: int = 0  # documents that were there before
    kept: int = 0

    def metrics(self) -> dict[str, int]:
        if self.documents != self.kept + self.held_out + self.repeats:
            raise DaymillError(f"of {self.documents:,} documents of the corpus some are lost: {asdict(self)}")
        return asdict(self)


def corpus_files(source: Path) -> list[Path]:
    """Every file of a corpus in the order of the names, subfolders included; none for a folder without any.

    Hidden files and those that begin with `_` are passed over. Raises DaymillError for a missing path.
    """
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise DaymillError(f"tokenize.corpus: {source} does not exist; expected a file or a folder of texts or records")
    found = []
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [Path(folder, name) for name in files if not name.startswith((".", "_"))]
    return sorted(found, key=lambda path: path.relative_to(source).as_posix())


def documents(files: Sequence[Path], max_chars: int, held_out: HeldOut, tally: Tally) -> Iterator[list[str]]:
    """Batches of the documents to train on, each of at most `max_chars` characters; `tally` is counted on the way.

    Raises DaymillError where files are there and none of them is of a known kind.
    """
    seen: set[bytes] = set()
    batch: list[str] = []
    for text in read_texts(files, max_chars, tally):
        batch.append(text)
        if len(batch) == BATCH:
            yield kept(batch, held_out, seen, tally)
            batch = []
    if batch:
        yield kept(batch, held_out, seen, tally)
    if not tally.files:
        raise DaymillError(
            f"tokenize.corpus: no text to read among {len(files):,} files; known: {' '.join(TEXTS)} {KNOWN}"
        )


def kept(batch: list[str], held_out: HeldOut, seen: set[bytes], tally: Tally) -> list[str]:
    """The documents of a batch that are neither held out nor there before."""
    found = []
    for text, key, leaks in zip(batch, *held_out.judge(batch), strict=True):
        tally.documents += 1
        if leaks:
            tally.held_out += 1
        elif key in seen:
            tally.repeats += 1
        else:
            seen.add(key)
            tally.kept += 1
            found.append(text)
    return found


def read_texts(files: Sequence[Path], max_chars: int, tally: Tally) -> Iterator[str]:
    intake = Intake(field_map(None), Limits())
    for path in files:
        if is_text(path):
            tally.files += 1
            yield from pieces(decoded(path, tally), max_chars)
        elif format_of(path):
            tally.files += 1
            for records in intake.decide(path.name, path):
                tally.refused += len(records.refused)
                for record in records.kept:
                    yield from pieces(iter([record.text]), max_chars)
        else:
            tally.other_files += 1
    if intake.tallies:
        intake.complain()


def is_text(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in TEXTS


def decoded(path: Path, tally: Tally) -> Iterator[str]:
    """A text file's characters, block by block; from a byte on that is not UTF-8 the rest of it is refused."""
    decoder, notes, first = codecs.getincrementaldecoder("utf-8")(), FileNotes(), True
    try:
        for block in blocks(path, notes):
            yield decoder.decode(block.removeprefix(BOM) if first else block)
            first = False
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        tally.refused += 1
    except OSError as error:
        raise DaymillError(f"{path}: cannot be read ({error.strerror})") from error
    tally.damaged_files += notes.damage is not None


def pieces(parts: Iterator[str], max_chars: int) -> Iterator[str]:
    """A stream of characters as documents of at most `max_chars`, ended at a blank line, else a line, else a space.

    Nothing but white space between documents is lost.
    """
    left = ""
    for part in parts:
        text, begin = left + part, 0
        while len(text) - begin > max_chars:
            end = cut(text, begin, begin + max_chars)
            if piece := text[begin:end].strip():
                yield piece
            begin = end
        left = text[begin:]
    if piece := left.strip():
        yield piece


def cut(text: str, begin: int, limit: int) -> int:
    """Where the document that begins at `begin` ends: in its second half, at the largest gap."""
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, (begin + limit) // 2, limit)
        if at > begin:
            return at
    return limit
