"""Curves go to every sink; W&B stays on this machine, and says so when it is missing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from data.errors import DaymillError
from training.curves import DvcliveSink, open_curves


def test_points_are_in_dvclive_and_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with open_curves(tmp_path) as curves:
        for step in (1, 2, 3):
            curves.log(step, {"train/loss": 1 / step, "layers/ffn_dead/0": 0.25})
    lines = (tmp_path / "dvclive/plots/metrics/train/loss.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["step", "loss"] and [line.split("\t")[0] for line in lines[1:]] == ["1", "2", "3"]
    assert json.loads((tmp_path / "dvclive/metrics.json").read_text())["layers"]["ffn_dead"]["0"] == 0.25
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("layers/ffn_dead/0")] == [(i, 0.25) for i in (1, 2, 3)]
    assert not (tmp_path / "wandb").exists(), "W&B only where it is asked for"


def test_the_summary_is_whole_at_the_end_and_not_written_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DvcliveSink(tmp_path)
    written: list[int] = []
    plain = sink.live.make_summary
    monkeypatch.setattr(sink.live, "make_summary", lambda: (written.append(sink.live.step), plain()))
    monkeypatch.setattr("time.monotonic", lambda: sink.summed_up + 0.01)
    for step in range(1, 50):
        sink.log(step, {"a": float(step)})
    sink.close()
    assert written[0] == 49 and json.loads((tmp_path / "metrics.json").read_text())["a"] == 49


def test_wandb_that_is_not_installed_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(DaymillError, match=r"pip install 'daymill\[wandb\]'"), open_curves(tmp_path, "offline"):
        pass
    assert not (tmp_path / "dvclive").exists()


@pytest.mark.slow
def test_wandb_offline_writes_files_that_could_be_sent_and_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="the extra daymill[wandb] is not installed")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "online")  # what lies around in the environment does not decide
    with open_curves(tmp_path, "offline") as curves:
        for step in (1, 2):
            curves.log(step, {"train/loss": 0.5 + step})
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert read(next(run.glob("*.wandb"))) == [{"train/loss": 1.5, "_step": 1}, {"train/loss": 2.5, "_step": 2}]
    assert not [path for path in (tmp_path / "wandb").rglob("*") if path.is_symlink()], "DVC is to version the folder"
    assert not list(run.rglob("requirements.txt")) and not list(run.rglob("*metadata*"))
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


def read(path: Path) -> list[dict[str, float]]:
    """The points in a run's file, by W&B's own reader."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    found = []
    while True:
        data = store.scan_data()
        if data is None:
            return found
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            point = {
                (item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item
            }
            found.append({key: value for key, value in point.items() if key not in ("_timestamp", "_runtime")})
