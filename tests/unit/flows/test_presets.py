"""params.yaml is edited in its places: the named values change, every other byte stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from flows.presets import (
    FOLDER,
    KEEP,
    UsageError,
    configure,
    flatten,
    presets,
    read_preset,
    scalar,
    source_path,
    write_values,
)
from tasks.finetune import Finetune
from tasks.params import load
from tasks.pretrain import Pretrain
from tests.flows.mini_project import PARAMS

TEXT = """\
# top
ingest:
  source: input/spam      # a folder
  fields: {text: body}    # theirs: ours
train:
  rate: 1e-4   # per step
  sizes: [1, 2]
  note: 'it''s quoted'  # why
  deep:
    flag: true
    empty:
"""


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT)
    return path


def test_only_the_named_values_change(params: Path) -> None:
    wanted = {"train.rate": 5e-05, "ingest.source": "my data/#1", "train.sizes": [3], "train.deep.flag": False}
    changes = write_values(params, wanted)
    assert changes == [
        "train.rate: 0.0001 -> 5e-05",
        "ingest.source: input/spam -> my data/#1",
        "train.sizes: [1, 2] -> [3]",
        "train.deep.flag: True -> False",
    ]
    expected = TEXT.replace("1e-4 ", "5e-05 ").replace("input/spam ", "my data/#1 ").replace("[1, 2]", "[3]")
    assert params.read_text() == expected.replace("flag: true", "flag: false")
    assert YAML(typ="safe").load(params)["train"]["rate"] == 5e-05


def test_the_same_again_changes_nothing(params: Path) -> None:
    before = params.stat().st_mtime_ns
    assert write_values(params, {"train.rate": 1e-4, "train.note": "it's quoted"}) == []
    assert params.stat().st_mtime_ns == before


def test_an_empty_value_can_be_filled(params: Path) -> None:
    write_values(params, {"train.deep.empty": 3})
    assert YAML(typ="safe").load(params)["train"]["deep"] == {"flag": True, "empty": 3}


def test_an_unknown_key_names_the_nearest(params: Path) -> None:
    with pytest.raises(UsageError, match=r"no key `train.rat`, did you mean `rate`\?"):
        write_values(params, {"train.rat": 1})
    with pytest.raises(UsageError, match="several values"):
        write_values(params, {"train.deep": 1})
    assert params.read_text() == TEXT


@given(st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_value_reads_back_as_itself(value: object) -> None:
    text = f"k: {scalar(value)}  # note\n"
    read = YAML(typ="safe").load(text)["k"]
    assert read == value and type(read) is type(value)


def test_data_inside_the_checkout_is_relative_and_outside_absolute(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / "input").mkdir(parents=True)
    (root / "input" / "a.jsonl").touch()
    (tmp_path / "b.jsonl").touch()
    assert source_path(root, "input") == source_path(root, str(root / "input")) == "input"
    assert source_path(root, "input/../input/a.jsonl") == "input/a.jsonl"
    assert source_path(root, "../b.jsonl") == str(tmp_path / "b.jsonl")


def test_data_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="nowhere does not exist"):
        source_path(tmp_path, "nowhere")
    with pytest.raises(UsageError, match="is empty"):
        source_path(tmp_path, "empty")


def test_keep_and_no_data_touch_nothing(tmp_path: Path) -> None:
    assert configure(tmp_path, "", KEEP) == []


def test_unknown_preset_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no `quck`, did you mean `quick`\?"):
        configure(tmp_path, preset="quck")


def test_data_and_comments_of_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    (tmp_path / "mine.jsonl").touch()
    assert configure(tmp_path, data="mine.jsonl") == ["ingest.source: input/mails.txt -> mine.jsonl"]
    assert (tmp_path / "params.yaml").read_text() == PARAMS.replace("input/mails.txt", "mine.jsonl")


def test_default_takes_back_whatever_quick_sets() -> None:
    """Every key that some preset sets is in `default`, so that there is a way back."""
    shipped = dict(flatten(read_preset("default")))
    for name in presets():
        assert set(dict(flatten(read_preset(name)))) <= set(shipped)


def test_default_is_what_params_yaml_ships() -> None:
    """As committed, not as a run of another preset may have left it."""
    show = ["git", "-C", str(FOLDER.parent), "show", "HEAD:params.yaml"]
    shipped = YAML(typ="safe").load(subprocess.run(show, capture_output=True, text=True, check=True).stdout)
    for key, value in flatten(read_preset("default")):
        node = shipped
        for part in key.split("."):
            node = node[part]
        assert node == value, f"{key}: change presets/default.yaml together with params.yaml"


@pytest.mark.parametrize("name", presets())
def test_every_preset_gives_knobs_that_training_takes(name: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes((FOLDER.parent / "params.yaml").read_bytes())
    configure(tmp_path, preset=name)
    load("pretrain", Pretrain, tmp_path / "params.yaml")
    load("finetune", Finetune, tmp_path / "params.yaml")


def test_accounts_are_the_published_settings() -> None:
    given = dict(flatten(read_preset("accounts")))
    for section in ("pretrain", "finetune"):
        published = {"lr": 5e-5, "warmup": 1000, "dropout": 0.1, "clip": 1.0}
        assert {key: given[f"{section}.{key}"] for key in published} == published
    assert (given["pretrain.rows"], given["pretrain.accumulate"], given["finetune.smoothing"]) == (16, 4, 0.1)
    assert given["finetune.rows"] == 16 * 4
