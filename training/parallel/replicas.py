"""Several ranks that fine-tune one classifier: each has all of it, and some of every step's rows.

`python -m training.parallel.replicas FOLDER` is one of them, started by torchrun. The folder has what the run is given
and what it makes; nothing in it is pickled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from data.errors import DaymillError
from training.checkpoint import Card, load_checkpoint, save_checkpoint
from training.classify import train_classifier
from training.history import History
from training.knobs import ClassifyConfig, Distill
from training.layers import View
from training.listeners import Bar
from training.model import Classifier
from training.parallel.launch import RESTARTS, joined, launch
from training.parallel.layout import Layout, Mesh
from training.parallel.run import told_by_first
from training.parallel.view import MeshView
from training.precision import Choice
from training.rows import Rows
from training.state import load_state, part, save_state
from training.world import World

MODULE = "training.parallel.replicas"
START, JOB, STATE, END = "start", "job.json", "state.safetensors", "end.safetensors"


class Replicas:
    """The ranks of the process group; implements training.peers.Peers."""

    def __init__(self, model: nn.Module) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        mesh = Mesh(model, Layout(data=self.ranks), tokens=0)
        self.world: World = mesh
        self.view: View = MeshView(mesh)

    def choice(self, mine: Choice) -> Choice:
        return Choice(**told_by_first(asdict(mine)))

    def together(self, mine: NDArray[np.float32]) -> NDArray[np.float32]:
        summed = torch.from_numpy(mine)
        dist.all_reduce(summed)
        return summed.numpy()


def train_over_ranks(
    ranks: int,
    model: Classifier,
    train: Rows,
    config: ClassifyConfig,
    folder: Path,
    *,
    valid: Rows | None = None,
    teacher: NDArray[np.float32] | None = None,
    distill: Distill | None = None,
    on_eval: Callable[[dict[str, float]], None] | None = None,
    on_look: Callable[[int, dict[str, float]], None] | None = None,
    note: Callable[[str], None] = print,
    progress: Bar | None = None,
    restarts: int = RESTARTS,
) -> History:
    """training.classify.train_classifier by that many ranks of this machine; `model` is given what they trained.

    `folder` keeps what a killed run needs to go on; it belongs to this run alone. Raises DaymillError where ranks fail
    more often than `restarts`.
    """
    end = folder / END
    if not (folder / JOB).exists():
        folder.mkdir(parents=True, exist_ok=True)
        card = Card(model=model.backbone.config, task="classify", labels=[str(i) for i in range(len(train.names))])
        save_checkpoint(folder / START, model, card, "{}")
        save_rows(folder / "train.npz", train, teacher)
        if valid is not None:
            save_rows(folder / "valid.npz", valid)
        job = {"config": asdict(config), "distill": asdict(distill) if distill is not None else None}
        beside = folder / f"{JOB}.writing"
        beside.write_text(json.dumps(job), encoding="utf-8")
        beside.replace(folder / JOB)

    shown = 0

    def on_line(line: str) -> None:
        nonlocal shown
        told = json.loads(line) if line.startswith('{"') else {}
        if "done" in told and progress is not None:
            progress.advance(told["done"] - shown, told["note"])  # ranks that were started again begin further back
            shown = told["done"]
        elif "evaluation" in told and on_eval is not None:
            on_eval(told["evaluation"])
        elif "look" in told and on_look is not None:
            on_look(*told["look"])
        elif not told and line.strip():
            note(line)

    if not end.exists():
        launch(ranks, MODULE, [str(folder)], on_line, restarts)
    saved = load_state(end)
    if saved is None:
        raise DaymillError(f"{ranks} ranks of {MODULE} ended without a model; see their lines above")
    tensors, meta = saved
    model.load_state_dict(part(tensors, "model"))
    model.eval()
    return History(**meta | {"looks": [(step, values) for step, values in meta["looks"]]})


def save_rows(path: Path, rows: Rows, teacher: NDArray[np.float32] | None = None) -> None:
    """What training reads of rows: tokens, labels, weights, and a teacher's logits."""
    arrays: dict[str, Any] = {
        "tokens": np.concatenate(rows.tokens),
        "bounds": np.cumsum([0, *rows.lengths]),
        "labels": rows.labels,
        "classes": np.array(len(rows.names)),
    }
    if rows.weights is not None:
        arrays["weights"] = rows.weights
    if teacher is not None:
        arrays["teacher"] = teacher
    np.savez(path, **arrays)


def read_rows(path: Path) -> tuple[Rows, NDArray[np.float32] | None]:
    with np.load(path, allow_pickle=False) as file:
        found = dict(file)
    count = len(found["labels"])
    rows = Rows(
        ids=[""] * count,
        tokens=np.split(found["tokens"], found["bounds"][1:-1]),
        labels=found["labels"],
        names=[str(i) for i in range(int(found["classes"]))],
        groups=[None] * count,
        sources=[""] * count,
        weights=found.get("weights"),
    )
    return rows, found.get("teacher")


class Teller:
    """Progress, validations and looks as lines that the process which started the ranks reads."""

    def __init__(self, first: bool) -> None:
        self.first, self.done = first, 0

    def advance(self, n: int = 1, note: str = "") -> None:
        self.done += n
        self.say({"done": self.done, "note": note})

    def on_eval(self, entry: dict[str, float]) -> None:
        self.say({"evaluation": entry})

    def on_look(self, step: int, values: dict[str, float]) -> None:
        self.say({"look": [step, values]})

    def note(self, line: str) -> None:
        if self.first:
            print(line, flush=True)

    def say(self, line: dict[str, Any]) -> None:
        if self.first:
            print(json.dumps(line), flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    with joined() as device:
        model, _ = load_checkpoint(folder / START)
        assert isinstance(model, Classifier)
        model.to(device)
        train, teacher = read_rows(folder / "train.npz")
        valid = read_rows(folder / "valid.npz")[0] if (folder / "valid.npz").exists() else None
        teller = Teller(dist.get_rank() == 0)
        history = train_classifier(
            model,
            train,
            ClassifyConfig(**job["config"]),
            valid=valid,
            teacher=teacher,
            distill=Distill(**job["distill"]) if job["distill"] is not None else None,
            on_eval=teller.on_eval,
            on_look=teller.on_look,
            progress=teller,
            state=folder / STATE,
            note=teller.note,
            spread=Replicas,
        )
        if teller.first:
            tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
            save_state(folder / END, tensors, asdict(history))


if __name__ == "__main__":
    main()
