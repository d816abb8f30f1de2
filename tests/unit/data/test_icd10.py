"""The sample of diagnoses: every billable code once, its chapter from the ancestors, its category as the entity."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from data.errors import DaymillError
from data.samples.icd10 import DIAGNOSES, FILE, make_icd10
from flows import cli


class Tree:
    """The package's functions over five codes."""

    PARENTS: ClassVar = {"1": "", "A00-A09": "1", "A00": "A00-A09", "A00.0": "A00", "A00.9": "A00", "2": "", "B20": "2"}

    def get_all_codes(self, with_dots: bool) -> list[str]:
        return [*self.PARENTS, "B20", "C00-C96"]

    def is_leaf(self, code: str) -> bool:
        return code not in self.PARENTS.values()

    def get_ancestors(self, code: str) -> list[str]:
        parent = self.PARENTS[code]
        return [parent, *self.get_ancestors(parent)] if parent else []

    def get_description(self, code: str) -> str:
        return f"what {code} is, “as written”"


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_records_of_a_small_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", Tree())
    moved: list[tuple[int, int]] = []
    made = make_icd10(tmp_path, lambda done, total: moved.append((done, total)))
    assert made == {"diagnoses": 3, "chapters": 2, "categories": 2, "smallest": 1, "largest": 2}
    assert moved == [(1, 3), (2, 3), (3, 3)]
    assert [(row["id"], row["label"], row["entity"]) for row in lines(tmp_path / FILE)] == [
        ("A00.0", "1", "A00"),
        ("A00.9", "1", "A00"),
        ("B20", "2", "B20"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_failure_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_text("earlier\n")
    tree = Tree()
    monkeypatch.setattr(tree, "get_description", lambda code: 1 / 0)
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", tree)
    with pytest.raises(ZeroDivisionError):
        make_icd10(tmp_path)
    assert (tmp_path / FILE).read_text() == "earlier\n"


def test_without_the_package_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", None)
    with pytest.raises(DaymillError, match=r"pip install -e '\.\[samples\]'"):
        make_icd10(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_real_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("simple_icd_10_cm")
    assert cli.main(["sample", "icd10", "--out", str(tmp_path)]) == 0
    assert "diagnoses 74719  chapters 22" in capsys.readouterr().out
    rows = lines(tmp_path / FILE)
    assert len({row["id"] for row in rows}) == len({row["text"] for row in rows}) == len(rows) == DIAGNOSES
    by_id = {row["id"]: row for row in rows}
    assert by_id["S72.065E"]["label"] == "19"
    assert by_id["S72.065E"]["entity"] == "S72"
    assert by_id["B20"]["chapter"].startswith("Certain infectious")
