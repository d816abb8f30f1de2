"""Releases: the pointer and the log agree, whatever happens between two steps."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serving import releases
from serving.bundle import open_bundle
from serving.manifest import BundleError
from serving.releases import ReleaseError
from tests.tiny_bundle import make_bundle


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return [make_bundle(folder / str(at), shift=at / 10).folder for at in range(3)]


def version(bundle: Path) -> str:
    return open_bundle(bundle).manifest.version


def test_promote_copies_points_and_logs(tmp_path: Path, bundles: list[Path]) -> None:
    root = tmp_path / "releases"
    assert releases.champion(root) is None and releases.history(root) == []
    change = releases.promote(root, bundles[0], "first model", who="ann", decision={"decision": "PROMOTE"})
    assert change.changed and change.previous is None
    champion = releases.champion(root)
    assert champion is not None and champion.version == version(bundles[0])
    assert open_bundle(champion.folder).manifest == open_bundle(bundles[0]).manifest
    [line] = (root / "log.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry | {"when": ""} == {
        "seq": 1,
        "when": "",
        "who": "ann",
        "action": "promote",
        "previous": None,
        "version": champion.version,
        "why": "first model",
        "decision": {"decision": "PROMOTE"},
    }


def test_the_same_version_twice_changes_nothing(tmp_path: Path, bundles: list[Path]) -> None:
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    before = (tmp_path / "log.jsonl").read_bytes(), (tmp_path / "champion.json").read_bytes()
    change = releases.promote(tmp_path, bundles[0], "again", who="bob")
    assert not change.changed and "already" in change.message
    assert before == ((tmp_path / "log.jsonl").read_bytes(), (tmp_path / "champion.json").read_bytes())


def test_rollback_goes_back_step_by_step(tmp_path: Path, bundles: list[Path]) -> None:
    for at, bundle in enumerate(bundles):
        releases.promote(tmp_path, bundle, f"day {at}", who="ann")
    a, b, c = map(version, bundles)
    change = releases.rollback(tmp_path, why="too many complaints", who="bob")
    assert (change.previous, change.version) == (c, b)
    assert releases.rollback(tmp_path, why="still", who="bob").version == a
    with pytest.raises(ReleaseError, match="none to go back to"):
        releases.rollback(tmp_path, why="further", who="bob")
    assert releases.rollback(tmp_path, to=c, why="it was the data", who="bob").version == c
    assert releases.rollback(tmp_path, why="no, it was not", who="bob").version == a
    assert [(e.action, e.who, e.version) for e in releases.history(tmp_path)][3:] == [
        ("rollback", "bob", b), ("rollback", "bob", a), ("rollback", "bob", c), ("rollback", "bob", a),
    ]  # fmt: skip


def test_rollback_refuses_what_cannot_serve(tmp_path: Path, bundles: list[Path]) -> None:
    with pytest.raises(ReleaseError, match="nothing was released"):
        releases.rollback(tmp_path, why="?", who="ann")
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    releases.promote(tmp_path, bundles[1], "second", who="ann")
    with pytest.raises(ReleaseError, match="no version 'abc'"):
        releases.rollback(tmp_path, to="abc", why="?", who="ann")
    model = tmp_path / "versions" / version(bundles[0]) / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(BundleError, match=r"model\.onnx"):
        releases.rollback(tmp_path, why="?", who="ann")
    assert releases.champion(tmp_path).version == version(bundles[1])  # type: ignore[union-attr]


def test_a_damaged_bundle_is_not_promoted_and_a_damaged_copy_is_mended(tmp_path: Path, bundles: list[Path]) -> None:
    root = tmp_path / "releases"
    releases.promote(root, bundles[0], "first", who="ann")
    copy = root / "versions" / version(bundles[0])
    (copy / "card.md").write_text("overwritten")
    with pytest.raises(BundleError, match=r"card\.md"):
        releases.promote(root, copy, "the damaged copy", who="ann")
    releases.promote(root, bundles[0], "again", who="ann")
    open_bundle(copy)


def test_a_reason_is_asked_for(tmp_path: Path, bundles: list[Path]) -> None:
    with pytest.raises(ReleaseError, match="expected a reason"):
        releases.promote(tmp_path, bundles[0], " ", who="ann")
    assert releases.champion(tmp_path) is None


def test_decisions_that_change_nothing_are_logged(tmp_path: Path, bundles: list[Path]) -> None:
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    entry = releases.record(tmp_path, version(bundles[1]), {"decision": "REJECT"}, "worse", who="ann")
    assert (entry.action, entry.previous, entry.version) == ("reject", version(bundles[0]), version(bundles[1]))
    assert releases.champion(tmp_path).version == version(bundles[0])  # type: ignore[union-attr]
    assert releases.served_at(tmp_path, datetime.now(UTC)) == version(bundles[0])
    with pytest.raises(ValueError, match="changes the champion"):
        releases.record(tmp_path, "v", {"decision": "PROMOTE"}, "?", who="ann")


def test_what_served_when(tmp_path: Path, bundles: list[Path]) -> None:
    a, b, _ = map(version, bundles)
    times = [datetime.now(UTC)]
    for step in (
        lambda: releases.promote(tmp_path, bundles[0], "a", who="ann"),
        lambda: releases.promote(tmp_path, bundles[1], "b", who="ann"),
        lambda: releases.record(tmp_path, "x", {"decision": "HOLD"}, "unclear", who="ann"),
        lambda: releases.rollback(tmp_path, why="b is worse", who="ann"),
    ):
        time.sleep(0.002)
        step()
        time.sleep(0.002)
        times.append(datetime.now(UTC))
    assert [releases.served_at(tmp_path, moment) for moment in times] == [None, a, b, b, a]
    assert releases.served_at(tmp_path, times[1].replace(tzinfo=None)) == a


def test_a_clock_set_back_keeps_the_order(tmp_path: Path, bundles: list[Path]) -> None:
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    log, pointer = tmp_path / "log.jsonl", tmp_path / "champion.json"
    future = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="microseconds")
    for path in (log, pointer):
        entry = json.loads(path.read_text())
        path.write_text(json.dumps(entry | {"when": future}) + "\n")
    releases.promote(tmp_path, bundles[1], "second", who="ann")
    first, second = releases.history(tmp_path)
    assert first.when < second.when


def test_status_names_what_is_damaged(tmp_path: Path, bundles: list[Path]) -> None:
    for bundle in bundles[:2]:
        releases.promote(tmp_path, bundle, "x", who="ann")
    (tmp_path / "versions" / version(bundles[0]) / "manifest.json").write_text("{")
    status = releases.status(tmp_path)
    assert [manifest.version for manifest in status.versions] == [version(bundles[1])]
    assert len(status.damaged) == 1 and len(status.history) == 2
    assert status.champion is not None and status.champion.version == version(bundles[1])


def test_a_torn_last_line_is_mended(tmp_path: Path, bundles: list[Path]) -> None:
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"seq": 2, "wh')
    assert len(releases.history(tmp_path)) == 1
    releases.promote(tmp_path, bundles[1], "second", who="ann")
    assert [entry.seq for entry in releases.read_log(tmp_path)] == [1, 2]


def test_a_log_that_is_not_one_is_an_error(tmp_path: Path, bundles: list[Path]) -> None:
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    (tmp_path / "log.jsonl").write_text("nonsense\n")
    with pytest.raises(ReleaseError, match=r"log\.jsonl:1"):
        releases.status(tmp_path)


STEPS = ("copytree", "rename", "replace", "append")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_killed_between_any_two_steps(tmp_path: Path, bundles: list[Path], step: str, after: bool) -> None:
    """SIGKILL before or after each effect of a promotion: a usable pointer, a log that the next writer completes."""
    releases.promote(tmp_path, bundles[0], "first", who="ann")
    code = f"""
import os, shutil, signal, sys
from pathlib import Path
from serving import releases
owner = {{"copytree": shutil, "rename": os, "replace": os, "append": releases}}["{step}"]
real = getattr(owner, "{step}")
def deadly(*args, **named):
    if {after}:
        real(*args, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, "{step}", deadly)
releases.promote(Path(sys.argv[1]), Path(sys.argv[2]), "second", who="ann")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(bundles[1])], check=False)
    assert done.returncode == -signal.SIGKILL
    moved = STEPS.index(step) + after >= 3  # the replace of the pointer is the commit
    champion = releases.champion(tmp_path)
    assert champion is not None and champion.version == version(bundles[1] if moved else bundles[0])
    open_bundle(champion.folder)
    assert [entry.version for entry in releases.history(tmp_path)] == list(map(version, bundles[: 1 + moved]))

    releases.promote(tmp_path, bundles[2], "third", who="bob")
    expected = [*map(version, bundles[: 1 + moved]), version(bundles[2])]
    assert [entry.version for entry in releases.read_log(tmp_path)] == expected
    assert [entry.seq for entry in releases.read_log(tmp_path)] == list(range(1, len(expected) + 1))
    assert not list((tmp_path / "versions").glob(".incoming-*"))
    assert not list(tmp_path.glob(".*.writing"))


def test_ten_writers_at_once(tmp_path: Path, bundles: list[Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from serving import releases;"
        "root, who = Path(sys.argv[1]), sys.argv[4];"
        "[releases.promote(root, Path(sys.argv[2 + at % 2]), 'again', who=who) for at in range(10)]"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), *map(str, bundles[:2]), f"writer {at}"])
        for at in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    history = releases.read_log(tmp_path)
    assert [entry.seq for entry in history] == list(range(1, len(history) + 1))
    assert all(before.version == entry.previous for before, entry in itertools.pairwise(history))
    assert all(before.when < entry.when for before, entry in itertools.pairwise(history))
    assert history[-1] == releases.pointer(tmp_path)


def test_a_dead_writer_holds_no_lock(tmp_path: Path, bundles: list[Path]) -> None:
    code = (
        "import sys, time; from pathlib import Path; from serving import releases\n"
        "with releases.writer(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "in\n"
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(10)
    assert releases.promote(tmp_path, bundles[0], "first", who="ann").changed
