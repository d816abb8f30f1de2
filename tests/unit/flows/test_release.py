"""The release step on real, tiny bundles: gate, champion, log, and the way back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from data.errors import DaymillError
from data.shards import RECORD_SCHEMA, ShardWriter
from flows import cli
from flows.release import champion_or_bundle, release
from flows.status import served
from serving import releases
from tasks.params import ParamsError
from tests.tiny_bundle import TEXTS, TRUTH, make_bundle

PARAMS = """\
release:
  min_rows: 20
  min_f1: 0.5
  min_gain: 0.05
  max_flips: 0.005
  max_latency_ms: null
  margin: 0.015
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params.yaml").write_text(PARAMS)
    rows = [
        {"id": str(at), "text": text, "label": label, "source": "made up", "extra": "{}"}
        for at, (text, label) in enumerate(zip((*TEXTS, "no label here"), (*TRUTH, None)))
    ]
    with ShardWriter(tmp_path / "artifacts/split/test") as writer:
        writer.write(pa.Table.from_pylist(rows, schema=RECORD_SCHEMA))
    return tmp_path


def bundle(root: Path, shift: float) -> str:
    """Replace the bundle by one whose scores are moved; its version."""
    folder = root / "artifacts/bundle"
    if folder.exists():
        folder.rename(root / f"old-{len(list(root.iterdir()))}")
    return make_bundle(folder, shift).manifest.version


def test_the_first_model_that_holds_the_floors_is_promoted_and_not_judged_twice(root: Path) -> None:
    version = bundle(root, 0.0)
    assert champion_or_bundle(root) == root / "artifacts/bundle"
    verdict = release(root)
    assert (verdict["verdict"], verdict["champion"]) == ("PROMOTE", version)
    assert verdict["figures"]["rows"] == len(TEXTS)  # the row without a label cannot be judged by
    assert champion_or_bundle(root) == root / "releases/versions" / version
    assert version in served(root)

    again = release(root)
    assert (again["verdict"], again["champion"]) == ("HOLD", version)
    assert len(releases.history(root / "releases")) == 1


def test_a_worse_model_is_logged_and_the_champion_stays(root: Path) -> None:
    champion = bundle(root, 0.0)
    release(root)
    worse = bundle(root, -50.0)  # everything is ham
    verdict = release(root, why="a try")
    assert (verdict["verdict"], verdict["champion"], verdict["version"]) == ("REJECT", champion, worse)
    assert [entry.action for entry in releases.history(root / "releases")] == ["promote", "reject"]


def test_promote_and_rollback_by_command(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    first = bundle(root, 0.0)
    assert cli.main(["promote"]) == 0
    second = bundle(root, 0.1)
    assert cli.main(["promote", "--why", "newer records"]) == 0
    assert f"serves: {second}" in capsys.readouterr().out
    assert cli.main(["rollback", "--why", "a complaint"]) == 0
    assert champion_or_bundle(root).name == first
    assert cli.main(["status"]) == 0
    told = capsys.readouterr().out
    assert f"serves     {first}" in told and "a complaint" in told and "runs now   nothing" in told

    assert cli.main(["status", "--at", "2001-01-01"]) == 0
    assert capsys.readouterr().out == "nothing\n"
    assert cli.main(["status", "--at", "2999-01-01"]) == 0
    assert capsys.readouterr().out == f"{first}\n"
    assert cli.main(["status", "--at", "yesterday"]) == 1
    assert "expected a time such as" in capsys.readouterr().err

    bundle(root, -50.0)
    assert cli.main(["promote"]) == 1
    assert cli.main(["rollback", "--why", "further"]) == 1
    assert "there is none to go back to" in capsys.readouterr().err


def test_rows_without_any_label_are_an_error_that_says_so(root: Path) -> None:
    bundle(root, 0.0)
    for part in (root / "artifacts/split/test").iterdir():
        part.unlink()
    with ShardWriter(root / "artifacts/split/test") as writer:
        writer.write(pa.Table.from_pylist([{"id": "a", "text": "b"}], schema=RECORD_SCHEMA))
    with pytest.raises(DaymillError, match="no labeled rows"):
        release(root)


def test_a_misspelt_floor_is_named(root: Path) -> None:
    bundle(root, 0.0)
    (root / "params.yaml").write_text(PARAMS.replace("min_gain", "min_gian"))
    with pytest.raises(ParamsError, match=r"params.yaml:4.*did you mean `min_gain`"):
        release(root)
