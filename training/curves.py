"""Training curves for people: DVCLive (JSON, TSV) and TensorBoard from the same numbers, offline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Curves(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...


class BothCurves:
    """Writes each point to DVCLive and to TensorBoard; steps are the x axis of both."""

    def __init__(self, folder: Path) -> None:
        # A training run calls nobody: DVCLive would post to DVC Studio where a token lies around.
        os.environ["DVC_STUDIO_OFFLINE"] = os.environ["DVC_NO_ANALYTICS"] = "1"
        from dvclive import Live
        from torch.utils.tensorboard import SummaryWriter

        self.live = Live(str(folder / "dvclive"), report=None, save_dvc_exp=False, dvcyaml=None, monitor_system=False)
        self.board = SummaryWriter(str(folder / "tensorboard"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.live.step = step
        for name, value in values.items():
            self.live.log_metric(name, value, timestamp=False)
            self.board.add_scalar(name, value, step)
        self.live.make_summary()

    def close(self) -> None:
        self.live.end()
        self.board.close()


@contextmanager
def open_curves(folder: Path) -> Iterator[BothCurves]:
    """Curves below `folder`, closed whatever happens."""
    curves = BothCurves(folder)
    try:
        yield curves
    finally:
        curves.close()
