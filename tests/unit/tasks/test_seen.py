"""`daymill seen`: a day's files against what was seen before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data.dedup.index_kind import IndexConfig
from flows import cli

FIRST = "the parcel with the blue lamp was left at the door of our neighbor on the second floor this morning"
DOSE = "take 5 mg of the new tablets every morning after breakfast and call us when it does not help you at all"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params.yaml").write_text("ingest:\n  fields: {text: body}\n")
    monkeypatch.setattr("tasks.seen.index_config", lambda _root: IndexConfig())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def day(path: Path, **bodies: str) -> str:
    path.write_text("".join(json.dumps({"id": row_id, "body": body}) + "\n" for row_id, body in bodies.items()))
    return str(path)


def looked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert cli.main(["seen", *arguments, "--json"]) == 0
    return {row["id"]: row["verdict"] for row in map(json.loads, capsys.readouterr().out.splitlines())}


def test_a_day_is_held_against_the_days_before(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monday = day(root / "monday.jsonl", a=FIRST, b=DOSE, c="yes")
    # within a day nothing is earlier
    assert looked(capsys, monday, "--add") == {"a": "new", "b": "new", "c": "new"}
    tuesday = day(
        root / "tuesday.jsonl",
        a=FIRST,
        d=FIRST.upper(),
        e=DOSE.replace("5 mg", "50 mg"),
        f="Yes",
        g="something that nobody said before, neither on this day nor on another one",
    )
    expected = {"a": "known", "d": "seen", "e": "apart", "f": "seen", "g": "new"}
    assert looked(capsys, tuesday) == expected
    assert looked(capsys, tuesday, "--add") == expected
    assert looked(capsys, tuesday) == dict.fromkeys("adefg", "known")


def test_a_changed_record_is_told_and_nothing_is_added(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    looked(capsys, day(root / "monday.jsonl", a=FIRST, b=DOSE), "--add")
    tuesday = day(root / "tuesday.jsonl", new="one more text that nobody has seen before today", a="not what it was")
    assert looked(capsys, tuesday) == {"new": "new", "a": "changed"}
    assert cli.main(["seen", tuesday, "--add"]) == 1
    assert "knows 1 of the ids with another text (a); nothing was added" in capsys.readouterr().err
    assert looked(capsys, tuesday)["new"] == "new"


def test_the_table_tells_what_differs_and_how_many_are_new(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["seen", day(root / "monday.jsonl", b=DOSE), "--add"])
    assert "1 new; 1 added to the index" in capsys.readouterr().out
    (root / "tuesday.jsonl").write_text('{"id": "e", "body": ' + json.dumps(DOSE.replace("5 mg", "50 mg")) + "}\n{")
    assert cli.main(["seen", str(root / "tuesday.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "number" in said and "1 apart, 1 refused" in said and "tablets" not in said


def test_without_an_index_or_a_file_it_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["seen", day(root / "monday.jsonl", a=FIRST)]) == 1
    assert "no index at" in capsys.readouterr().err
    assert cli.main(["seen", "nothing.jsonl", "--add"]) == 1
    assert "nothing.jsonl is no file" in capsys.readouterr().err
