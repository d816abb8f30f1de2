"""One rank of a pretraining run: `python -m training.parallel.worker JOB.json`, started by torchrun.

The first rank prints a JSON line a step; the run's state, which all read and the first one writes, ends up holding the
whole model.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from data.tokens import VALID, learned_from, read_tokens
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.model import Transformer
from training.parallel.compress import Compress
from training.parallel.launch import joined
from training.parallel.layout import Layout
from training.parallel.rebalance import Split
from training.parallel.reducer import AllReduce
from training.parallel.run import ManyRanks, Rebalance, spread_over
from training.precision import Choice
from training.pretrain import pretrain


@dataclass(frozen=True)
class Job:
    """What the ranks of a run need to know."""

    tokens: str  # folder of the token shards
    state: str
    model: dict[str, Any]  # ModelConfig.to_json
    config: dict[str, Any]  # PretrainConfig
    layout: dict[str, Any]  # Layout
    compress: dict[str, Any] = field(default_factory=dict)  # Compress
    rebalance: float = 0.0  # times the mean that the busiest pipeline stage may take before blocks move; 0: any

    def save(self, path: Path) -> None:
        beside = path.with_name(f"{path.name}.writing")
        beside.write_text(json.dumps(asdict(self)), encoding="utf-8")
        beside.replace(path)

    @staticmethod
    def load(path: Path) -> Job:
        return Job(**json.loads(path.read_text(encoding="utf-8")))


@dataclass
class Teller:
    """Prints curves and progress as lines that the stage reads."""

    first: bool
    told: int = field(default=0)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.say({"step": step, "values": values})

    def advance(self, count: int = 1, note: str = "") -> None:
        self.told += count
        self.say({"tokens": self.told, "note": note})

    def tell(self, line: str) -> None:
        """Something for whoever watches."""
        if self.first:
            print(line, flush=True)

    def say(self, line: Mapping[str, Any]) -> None:
        if self.first:
            print(json.dumps(line), flush=True)


def main() -> None:
    path = Path(sys.argv[1])
    turn = 0
    while not go(path, turn):
        turn += 1


def go(path: Path, turn: int) -> bool:
    """The run as the job has it, until it ends (True) or the job says another layout."""
    job = Job.load(path)
    with joined(turn) as device:
        config = PretrainConfig(**job.config)
        layout = Layout(**job.layout | {name: tuple(job.layout[name]) for name in ("sizes", "costs")})
        teller = Teller(dist.get_rank() == 0)

        def on_split(other: Layout, split: Split) -> None:
            if teller.first:
                replace(job, layout=asdict(other)).save(path)
                print(split.told(layout.sizes), flush=True)
            dist.barrier()

        torch.manual_seed(config.seed)
        model = Transformer(ModelConfig.from_json(job.model)).to(device)
        folder = Path(job.tokens)
        train, valid = (read_tokens(folder, name) for name in (learned_from(folder), VALID))
        compress = Compress(**job.compress)
        exchange = AllReduce if compress.method == "off" else partial(compress.exchange, tell=teller.tell)
        rebalance = Rebalance(job.rebalance, on_split) if job.rebalance else None
        made: list[ManyRanks] = []

        def spread(model: Transformer, choice: Choice) -> ManyRanks:
            made.append(spread_over(layout, config.length, config.accumulate, exchange, rebalance)(model, choice))
            return made[0]

        done = pretrain(
            model,
            train,
            valid,
            config,
            state=Path(job.state),
            progress=teller,
            curves=teller,
            spread=spread,
            note=teller.tell,
        )
        reducer = made[0].mesh.reducer
        if reducer is not None:
            teller.say({"traffic": asdict(reducer.exchange.traffic)})
        teller.say({"spent": done.spent})  # the last save included, which its own file cannot tell
        return done.step >= config.steps


if __name__ == "__main__":
    main()
