"""The review file: what a person wrote is read strictly, kept for good, and runs nothing in a spreadsheet."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import DaymillError
from data.quality.label_errors import SCHEMA
from data.quality.review import FORMULA, ReviewDecision, read_review, write_review

HEAD = "id,given,suggested,confidence,decision,note\n"
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=12)


def doubts(*ids: str) -> pa.Table:
    rows = [
        {"id": i, "label": "ham", "suggested": "spam", "p_given": 0.1, "p_suggested": 0.9, "rank": rank}
        for rank, i in enumerate(ids, start=1)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "labels.csv"
    path.write_text(content, encoding="utf-8", newline="")
    return path


def test_a_person_decides_and_the_decisions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "review.csv"
    write_review(path, doubts("b", "a", "c", "d"), {})
    lines = path.read_text().splitlines()
    assert lines[:2] == [HEAD.strip(), "b,ham,spam,0.9000,,"]
    assert read_review(path) == {}
    edited = [
        lines[0],
        lines[1] + "?",
        lines[2].replace(",,", ",Relabel,") + "JD",
        "c,ham,promo,0.9,relabel,",
        "d,,,,drop,",
    ]
    read = read_review(written(tmp_path, "\n".join(edited)))
    assert read == {
        "a": ReviewDecision("relabel", "spam", "JD", "ham"),
        "c": ReviewDecision("relabel", "promo", "", "ham"),
        "d": ReviewDecision("drop"),
    }


def test_decisions_are_never_lost_when_written_anew(tmp_path: Path) -> None:
    said = {"b": ReviewDecision("relabel", "other", "JD"), "gone": ReviewDecision("keep", None, "seen", "ham")}
    path = tmp_path / "review.csv"
    write_review(path, doubts("a", "b"), said)
    assert [row["id"] for row in csv.DictReader(path.open(newline=""))] == ["a", "b", "gone"]
    assert read_review(path) == said | {"b": said["b"]._replace(given="ham")}
    write_review(path, doubts(), read_review(path))
    assert read_review(path)["gone"] == said["gone"] and len(read_review(path)) == 2


@settings(max_examples=40, deadline=None)
@given(said=st.dictionaries(TEXTS.filter(str.strip), st.tuples(TEXTS.filter(str.strip), TEXTS), max_size=5))
def test_any_id_label_and_note_comes_back_and_none_is_a_formula(
    said: dict[str, tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("review") / "review.csv"
    decided = {record: ReviewDecision("relabel", label, note, "") for record, (label, note) in said.items()}
    write_review(path, doubts(), decided)
    assert read_review(path) == decided
    with path.open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not any(cell.startswith(FORMULA) and not cell.startswith("'") for cell in cells)


def test_texts_are_written_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "review.csv"
    write_review(path, doubts("a"), {}, texts=["=the text"])
    assert next(csv.DictReader(path.open(newline="")))["text"] == "'=the text"
    assert read_review(path) == {}
    write_review(path, doubts("a"), {})
    assert "text" not in path.read_text().splitlines()[0].split(",")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_spreadsheets_write_is_read(tmp_path: Path, delimiter: str) -> None:
    content = "\ufeff" + HEAD.replace("\n", "\r\n").replace(",", delimiter)
    content += (
        delimiter.join(["a", "ham", "spam", "0,9" if delimiter != "," else "0.9", "KEEP ", '"two\nlines"']) + "\r\n\r\n"
    )
    assert read_review(written(tmp_path, content)) == {"a": ReviewDecision("keep", None, "two\nlines", "ham")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"labels.csv:1: is empty"),
        ("id,given\n", r"labels.csv:1: column decision is missing; expected id, decision"),
        (HEAD + "a,,,,keep,\nb,,,,maybe,\n", r"labels.csv:3: the decision is none of keep, relabel, drop"),
        (HEAD + "a,,,,keep,\na,,,,,\n", r"labels.csv:3: the record a is already in line 2"),
        (HEAD + 'a,,,,keep,"x\ny"\n,,,,keep,\n', r"labels.csv:4: no id"),
        (HEAD + "a,ham,,,relabel,\n", r"labels.csv:2: relabel needs the new label"),
        (HEAD + "a,ham,secret,,relabel,\n", r"labels.csv:2: no record has the label"),
        (HEAD + "a,ham\n", r"labels.csv:2: 2 cells, expected 6"),
        (HEAD + 'a,ham,"x" y,,,\n', r"labels.csv:2: is no CSV"),
        (HEAD + "".join(f"{n},,,,no,\n" for n in range(9)), r"and 4 more"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DaymillError, match=message) as refused:
        read_review(written(tmp_path, content), labels={"ham", "spam"})
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DaymillError, match=r"x\.csv: cannot be read"):
        read_review(tmp_path / "x.csv")
