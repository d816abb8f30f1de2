"""Training curves for people: DVCLive (JSON, TSV), TensorBoard and, where asked for, W&B from the same numbers.

Nothing leaves the machine, unless `wandb` is "online": somebody then asked for it by that word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from data.errors import DaymillError

Wandb = Literal["off", "offline", "online"]
SUMMARY_EVERY_S = 1.0


class Curves(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...


class Sink(Curves, Protocol):
    def close(self) -> None: ...


class DvcliveSink:
    """TSV files by name, and a summary with the last value of each."""

    def __init__(self, folder: Path) -> None:
        # A training run calls nobody: DVCLive would post to DVC Studio where a token lies around.
        os.environ["DVC_STUDIO_OFFLINE"] = os.environ["DVC_NO_ANALYTICS"] = "1"
        from dvclive import Live

        self.live = Live(str(folder), report=None, save_dvc_exp=False, dvcyaml=None, monitor_system=False)
        self.summed_up = time.monotonic()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.live.step = step
        for name, value in values.items():
            self.live.log_metric(name, value, timestamp=False)
        # The summary is written whole: at every step it would cost as much as all values of the step.
        if time.monotonic() - self.summed_up >= SUMMARY_EVERY_S:
            self.live.make_summary()
            self.summed_up = time.monotonic()

    def close(self) -> None:
        self.live.make_summary()
        self.live.end()


class BoardSink:
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.board.add_scalar(name, value, step)

    def close(self) -> None:
        self.board.close()


class WandbSink:
    """A run of Weights & Biases below `folder`; offline ones can be sent later by `wandb sync`.

    What it would tell of the machine, the code and the environment is switched off.
    """

    def __init__(self, folder: Path, mode: Literal["offline", "online"]) -> None:
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # errors of its own would be posted
        try:
            import wandb
        except ImportError as error:
            raise DaymillError(
                f"W&B is asked for ({mode}) and not installed: pip install 'daymill[wandb]', or set wandb to off"
            ) from error
        quiet: dict[str, Any] = {
            "x_disable_stats": True,
            "x_disable_meta": True,
            "x_disable_machine_info": True,
            "x_save_requirements": False,
            "disable_git": True,
            "save_code": False,
            "console": "off",
            "silent": True,
            "symlink": False,  # the folder is moved, and DVC versions it
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder / "wandb"
        self.run = wandb.init(project="daymill", dir=str(folder), mode=mode, settings=wandb.Settings(**quiet))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()
        for path in self.folder.rglob("*"):  # its debug log lies in the user's cache
            if path.is_symlink():
                path.unlink()


class AllCurves:
    """Each point to every sink; steps are the x axis of all."""

    def __init__(self, sinks: list[Sink]) -> None:
        self.sinks = sinks

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for sink in self.sinks:
            sink.log(step, values)


@contextmanager
def open_curves(folder: Path, wandb: Wandb = "off") -> Iterator[AllCurves]:
    """Curves below `folder`, closed whatever happens. Raises DaymillError where W&B is asked for and not installed."""
    with ExitStack() as closing:
        sinks: list[Sink] = []

        def opened(sink: Sink) -> None:
            closing.callback(sink.close)
            sinks.append(sink)

        if wandb != "off":  # first: where it is missing, nothing was written
            opened(WandbSink(folder, wandb))
        opened(DvcliveSink(folder / "dvclive"))
        opened(BoardSink(folder / "tensorboard"))
        yield AllCurves(sinks)
