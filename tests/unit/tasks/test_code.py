"""The code fingerprint: a docstring or a comment moves nothing, code does, also far down the imports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.code import fresh_fingerprint, main, write_if_changed

STAGE = 'from data.a import f\n\nif __name__ == "__main__":\n    f()\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("tasks", "data", "training", "compression", "serving"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "tasks/demo.py").write_text(STAGE, encoding="utf-8")
    (tmp_path / "data/a.py").write_text('"""A."""\n\ndef f():\n    from data.b import g\n    return g()\n', "utf-8")
    (tmp_path / "data/b.py").write_text('def g():\n    """Old."""\n    return 1\n', encoding="utf-8")
    (tmp_path / "data/other.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hash_of() -> str:
    return json.loads(fresh_fingerprint("tasks.demo"))["hash"]


def test_docstrings_and_comments_do_not_count(project: Path) -> None:
    before = hash_of()
    (project / "data/b.py").write_text('# new\ndef g():\n    """New words."""\n\n    return 1\n', encoding="utf-8")
    assert hash_of() == before


def test_code_behind_a_lazy_import_counts(project: Path) -> None:
    before = hash_of()
    (project / "data/b.py").write_text("def g():\n    return 2\n", encoding="utf-8")
    assert hash_of() != before


def test_a_module_that_the_stage_does_not_reach_does_not_count(project: Path) -> None:
    before = hash_of()
    (project / "data/other.py").write_text("x = 2\n", encoding="utf-8")
    assert hash_of() == before
    assert "data.other" not in json.loads(fresh_fingerprint("tasks.demo"))["modules"]


def test_files_are_left_alone_when_nothing_changed(project: Path) -> None:
    (project / "tasks/library_like.py").write_text("x = 1\n", encoding="utf-8")
    main()
    path = project / "artifacts/code/demo.json"
    assert [p.name for p in path.parent.iterdir()] == ["demo.json"]
    stamp = path.stat().st_mtime_ns
    write_if_changed(path, path.read_text(encoding="utf-8"))
    assert path.stat().st_mtime_ns == stamp
