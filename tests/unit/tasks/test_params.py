"""The loader of params.yaml: YAML 1.2 numbers, and errors that say where and what instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from tasks.params import Params, ParamsError, Warmup, load


class Inner(Params):
    steps: int = Field(ge=1)


class Demo(Params):
    lr: float
    name: str = "x"
    inner: Inner


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_1e_4_is_a_float(tmp_path: Path) -> None:
    path = write(tmp_path, "demo:\n  lr: 1e-4\n  inner: {steps: 2}\n")
    assert load("demo", Demo, path).lr == 0.0001


def test_misspelt_key_names_file_line_and_nearest_key(tmp_path: Path) -> None:
    path = write(tmp_path, "demo:\n  lr: 0.1\n  naem: y\n  inner:\n    setps: 3\n    steps: 1\n")
    with pytest.raises(ParamsError) as caught:
        load("demo", Demo, path)
    text = str(caught.value)
    assert "params.yaml:3: demo.naem: unknown key, did you mean `name`?" in text
    assert "params.yaml:5: demo.inner.setps: unknown key, did you mean `steps`?" in text


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "demo:\n  lr: fast\n  inner:\n    steps: 0\n")
    with pytest.raises(ParamsError) as caught:
        load("demo", Demo, path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert "params.yaml:2: demo.lr: got 'fast'" in lines[0]
    assert "params.yaml:4: demo.inner.steps: got 0" in lines[1]


def test_missing_section_names_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "demoo:\n  lr: 0.1\n")
    with pytest.raises(ParamsError, match="no section `demo:`, did you mean `demoo`"):
        load("demo", Demo, path)


def test_missing_file_and_broken_yaml_are_clear(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="is missing"):
        load("demo", Demo, tmp_path / "nowhere.yaml")
    with pytest.raises(ParamsError, match="not YAML"):
        load("demo", Demo, write(tmp_path, "demo: [1,\n"))


def test_params_are_frozen(tmp_path: Path) -> None:
    loaded = load("demo", Demo, write(tmp_path, "demo:\n  lr: 0.1\n  inner: {steps: 2}\n"))
    with pytest.raises(ValueError, match="frozen"):
        loaded.lr = 2.0  # type: ignore[misc]


class Run(Params):
    warmup: Warmup


@pytest.mark.parametrize(("given", "read"), [("0", 0), ("0.1", 0.1), ("1", 1), ("1000", 1000), ("2.0", 2)])
def test_a_warmup_is_a_share_or_a_count(tmp_path: Path, given: str, read: float) -> None:
    assert load("run", Run, write(tmp_path, f"run:\n  warmup: {given}\n")).warmup == read


@pytest.mark.parametrize("given", ["-0.1", "1.5", ".inf", ".nan", "long"])
def test_another_warmup_is_refused_in_its_line(tmp_path: Path, given: str) -> None:
    with pytest.raises(ParamsError, match=r"params\.yaml:2: run\.warmup: got"):
        load("run", Run, write(tmp_path, f"run:\n  warmup: {given}\n"))
