"""DVC's word on each stage, as reasons that a person understands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from data.errors import DaymillError
from flows.staleness import Plan, ask, reasons
from tests.flows.mini_project import MiniProject


def test_a_stage_below_a_stale_one_is_stale() -> None:
    parents = {"ingest": (), "score": ("ingest",), "clean": ("score",), "other": ()}
    plan = Plan(parents, {"ingest": ("params.yaml: ingest.source modified",)})
    assert plan.why("ingest") == ("params.yaml: ingest.source modified",)
    assert plan.why("score") == ("after ingest",) and plan.why("clean") == ("after score",)
    assert plan.why("other") == ()
    with pytest.raises(DaymillError, match="no stage `nowhere`"):
        plan.why("nowhere")


def test_entries_become_phrases_and_are_bounded() -> None:
    entries = [
        {"changed deps": {"a.txt": "modified", "params.yaml": {"x.y": "new"}}},
        {"changed outs": {"b": "deleted"}},
        "changed command",
    ]
    assert reasons(entries) == (
        "a.txt modified",
        "params.yaml: x.y new",
        "b deleted (its own output)",
        "changed command",
    )
    many = [{"changed deps": {f"{number}.txt": "new" for number in range(9)}}]
    assert reasons(many)[-1] == "and 4 more" and len(reasons(many)) == 6


@pytest.mark.slow
def test_dvc_is_asked_and_code_is_fingerprinted_first(tmp_path: Path) -> None:
    project = MiniProject(tmp_path)
    assert ask(project.root).changed == dict.fromkeys(("ingest", "score", "clean"), ("never ran",))
    project.tool(sys.executable, "-m", "dvc", "repro", "--quiet", "clean")
    fresh = ask(project.root)
    assert not any(fresh.why(name) for name in ("ingest", "score", "clean"))

    (tmp_path / "stage.py").write_text((tmp_path / "stage.py").read_text() + "# another\n")
    edited = (tmp_path / "params.yaml").read_text().replace("shard_rows: 100 ", "shard_rows: 99 ")
    (tmp_path / "params.yaml").write_text(edited)
    plan = ask(project.root)
    assert set(plan.why("ingest")) == {"artifacts/code/stage.py modified", "params.yaml: ingest.shard_rows modified"}
    assert plan.why("score") == ("after ingest",)


@pytest.mark.slow
def test_dvc_s_own_words_when_it_cannot_say(tmp_path: Path) -> None:
    project = MiniProject(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages:\n  ingest:\n    cdm: nothing\n")
    with pytest.raises(DaymillError, match="cannot say which stages are stale") as raised:
        ask(project.root)
    assert "dvc.yaml" in str(raised.value) and "Traceback" not in str(raised.value)
