"""What telemetry and checkpoints cost: the same pretraining with and without a close look at every 20th step.

    python benchmarks/telemetry.py [--short]

3 blocks x 192, 8,192 words, rows of 256 tokens, 8 a step: the stage's default, made-up tokens, one thread each. Both
contestants are processes of their own that take turns; "telemetry" also writes DVCLive and TensorBoard curves, "plain"
writes none. The figure is the wall time of a run's steps; the probe of the CPU's peak, once a run, is told apart.
Then one run saves as the stage does, every 15 s at the most, and tells the share of its wall time that went there.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.turns import answer, contest, medians

if TYPE_CHECKING:
    from training.history import Progressed

DEPTH, LENGTH, ROWS, VOCAB, EVERY = 3, 256, 8, 8192, 20
STEPS, ROUNDS = 60, 5
SHORT_STEPS, SHORT_ROUNDS = 21, 2
SAVING_STEPS = 300
PLAIN, TOLD = "plain", "telemetry"
OVERHEAD, CHECKPOINTS = 0.03, 0.02  # the bars
OUT = Path("artifacts/bench/telemetry.json")


def main() -> None:
    short = "--short" in sys.argv
    names = [f"{name}{' short' if short else ''}" for name in (PLAIN, TOLD)]
    figures = contest(Path(__file__), names, SHORT_ROUNDS if short else ROUNDS)
    plain, told = (medians(figures)[name] for name in names)
    paired = sorted(b / a - 1 for a, b in zip(figures[names[0]], figures[names[1]]))
    probe = probe_seconds()
    saving = share_of_saving(SHORT_STEPS if short else SAVING_STEPS)
    overhead = told / plain - 1
    print(f"{'':34}{'measured':>10}{'bar':>8}")
    print(f"{'overhead of telemetry, medians':34}{overhead:>10.2%}{OVERHEAD:>8.0%}")
    print(f"{'the same, median of the pairs':34}{paired[len(paired) // 2]:>10.2%}{OVERHEAD:>8.0%}")
    print(f"{'checkpoints, share of wall time':34}{saving:>10.2%}{CHECKPOINTS:>8.0%}")
    print(f"{'probe of the peak, once a run':34}{probe:>8.2f} s")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    report = {"seconds": figures, "overhead": overhead, "paired": paired, "checkpoints": saving, "probe_s": probe}
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def contestant(name: str) -> None:
    """`name`: plain or telemetry, and short for a run of few steps."""
    kind, _, short = name.partition(" ")
    steps, every = SHORT_STEPS if short else STEPS, EVERY if kind == TOLD else 0
    run(4, every, 1e9)  # warm-up
    answer(lambda: run(steps, every, 1e9).spent["wall"])


def probe_seconds() -> float:
    import torch

    from training.peak import peak_of

    begun = time.perf_counter()
    peak_of(torch.device("cpu"), "fp32")
    return time.perf_counter() - begun


def share_of_saving(steps: int) -> float:
    from training.clock import CHECKPOINT, breakdown

    return breakdown(run(steps, EVERY, 15.0).spent)[CHECKPOINT]


def run(steps: int, every: int, save_every_s: float) -> Progressed:
    """A pretraining as the stage runs it, without validation on the way."""
    import numpy as np
    import torch

    from data.tokens import TokenShard
    from training.config import ModelConfig
    from training.curves import open_curves
    from training.knobs import PretrainConfig
    from training.model import Transformer
    from training.pretrain import pretrain

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    lengths = random.integers(64, 512, size=2000)
    tokens = random.integers(2, VOCAB, size=int(lengths.sum())).astype("<u2")
    shard = TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)]))
    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_depth(DEPTH, VOCAB, max_len=LENGTH))
    config = PretrainConfig(
        tokens=steps * ROWS * LENGTH,
        length=LENGTH,
        rows=ROWS,
        evaluations=1,
        valid_tokens=LENGTH,
        save_every_s=save_every_s,
        precision="fp32",
        attention="plain",
        look_every=every,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        opened: Any = open_curves(place / "curves") if every else nullcontext()
        with opened as curves:
            return pretrain(model, shard, shard, config, state=place / "state", curves=curves)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("--"):
        contestant(sys.argv[1])
    else:
        main()
