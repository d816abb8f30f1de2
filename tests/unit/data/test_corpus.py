"""A corpus apart: every document is kept, held out or a repeat; no character of a text is lost; files of any kind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpus import Tally, corpus_files, documents, pieces
from data.errors import DaymillError
from data.heldout import HeldOut


def read(folder: Path, held_out: HeldOut | None = None, max_chars: int = 200) -> tuple[list[str], Tally]:
    tally = Tally()
    found = documents(corpus_files(folder), max_chars, held_out or HeldOut([]), tally)
    return [text for batch in found for text in batch], tally


def test_texts_and_records_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("from b")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "z.txt").write_bytes(b"\xef\xbb\xbffrom z")
    (tmp_path / "c.jsonl").write_text('{"id": "1", "text": "from c"}\n{"id": "2"}\n')
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"from d"))
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "_SUCCESS").write_text("no")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    texts, tally = read(tmp_path)
    assert texts == ["from z", "from b", "from c", "from d"]
    assert (tally.files, tally.other_files, tally.refused) == (4, 1, 1)


def test_what_is_held_out_or_there_before_is_left_out_and_counted(tmp_path: Path) -> None:
    secret = " ".join(f"word{number}" for number in range(20))
    (tmp_path / "a.txt").write_text("the same words\n")
    (tmp_path / "b.txt").write_text("The same   words")
    (tmp_path / "c.txt").write_text(f"quoted: {secret}")
    texts, tally = read(tmp_path, HeldOut([secret]))
    assert texts == ["the same words"]
    assert tally.metrics() | {"files": 3, "documents": 3, "kept": 1, "held_out": 1, "repeats": 1} == tally.metrics()
    assert len(read(tmp_path)[0]) == 2, "with nothing held out the secret is learned"


def test_lost_documents_are_an_error() -> None:
    with pytest.raises(DaymillError, match="some are lost"):
        Tally(documents=3, kept=1, repeats=1).metrics()


def test_a_file_that_is_no_utf_8_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("naïve".encode("latin-1"))
    (tmp_path / "b.txt").write_text("fine")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"cut short " * 1000)[:-10])
    texts, tally = read(tmp_path)
    assert "fine" in texts and (tally.refused, tally.damaged_files) == (1, 1)


def test_an_empty_folder_is_no_corpus_and_strange_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    assert corpus_files(tmp_path) == []
    (tmp_path / "a.png").touch()
    with pytest.raises(DaymillError, match="no text to read among 1 files"):
        read(tmp_path)
    with pytest.raises(DaymillError, match="does not exist"):
        corpus_files(tmp_path / "nowhere")


def test_records_whose_text_has_another_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": "hello there"}) + "\n")
    with pytest.raises(DaymillError, match="text"):
        read(tmp_path)


@given(st.text(alphabet="ab \n", max_size=300), st.integers(1, 40), st.integers(1, 60))
def test_documents_are_short_enough_and_lose_only_white_space(text: str, max_chars: int, block: int) -> None:
    parts = [text[at : at + block] for at in range(0, len(text), block)]
    found = list(pieces(iter(parts), max_chars))
    assert all(0 < len(piece) <= max_chars and piece == piece.strip() for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_document_ends_at_a_paragraph_where_one_is_near() -> None:
    text = "one two three.\n\nfour five six seven.\neight nine"
    assert list(pieces(iter([text]), 30)) == ["one two three.", "four five six seven.", "eight nine"]
