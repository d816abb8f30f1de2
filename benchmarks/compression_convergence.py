"""Steps to the same loss with compressed gradients, beside dense ones: claim + 5 %.

Real text: the sample's mails, the product's tokenizer, packing, model and training run; the rate is constant after its
warm-up, so that curves can be read at any step. The ranks of a run live in this process (`benchmarks/peers.py`, equal
to real ones by `tests/unit/training/parallel/test_peers.py`). A run's steps to the loss that dense gradients have at
their last step are read off its curve between two validations.

`python benchmarks/compression_convergence.py` takes about 25 minutes on one core; `--seeds 1 --ranks 2` about 4.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks.peers import PeersOfOneProcess
from data.tokens import TokenShard, encode, parse_tokenizer, read_tokens, train_tokenizer, window, write_tokens
from training.config import ModelConfig
from training.model import Transformer
from training.parallel.compress import Compress
from training.precision import Choice
from training.pretrain import PretrainConfig, pretrain

MAILS = Path("input/spam")
OUT = Path("artifacts/bench/compression_convergence.json")
CLAIM = 0.05
CHARS, VOCAB, DEPTH, LENGTH, ROWS = 1_600, 1_024, 2, 64, 16
BEYOND = 1.2  # times the dense steps that a compressed run may take
WATCH = 10  # steps between two validations
METHODS = {
    "top-k, 80 % saved": Compress("top-k", saved=0.8),
    "PowerSGD, rank 4": Compress("power-sgd", rank=4),
}
Curve = list[tuple[int, float]]  # step, validation loss


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=300, help="of the dense run")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options.add_argument("--dense", type=float, default=0.1, help="share of the steps before compression begins")
    given = options.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="convergence-") as folder:
        train, valid = tokens(Path(folder))
        for seed in range(given.seeds):
            dense, _ = run(train, valid, given.steps, seed, None, 1)
            target = dense[-1][1]
            print(f"seed {seed}: dense loss {target:.4f} after {given.steps} steps", flush=True)
            for name, compress in METHODS.items():
                for ranks in given.ranks:
                    how = replace(compress, dense_steps=round(given.dense * given.steps))
                    curve, saved = run(train, valid, round(given.steps * BEYOND), seed, how, ranks)
                    more = steps_to(curve, target) / given.steps - 1
                    found.setdefault(f"{name}, {ranks} ranks", []).append(more)
                    print(f"  {name}, {ranks} ranks: {more:+.1%} steps, {saved:.1%} fewer bytes a step", flush=True)
    print(f"\n{'steps to the same loss':28} {'mean':>8} {'worst':>8} {'claim':>8}")
    for name, values in found.items():
        print(f"{name:28} {mean(values):+8.1%} {max(values):+8.1%} {CLAIM:+8.0%}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"more_steps": found, "claim": CLAIM}, indent=1) + "\n", encoding="utf-8")


def tokens(folder: Path) -> tuple[TokenShard, TokenShard]:
    """Every tenth mail is for validation."""
    lines = [line for path in sorted(MAILS.glob("*.jsonl")) for line in path.open(encoding="utf-8")]
    texts = [json.loads(line)["text"] for line in lines]
    learned = train_tokenizer((window(text, CHARS, 0.5) for text in texts[1::10]), VOCAB)
    tokenizer = parse_tokenizer(learned)
    parts = {"valid": texts[::10], "train": [text for at, text in enumerate(texts) if at % 10]}
    for name, part in parts.items():
        write_tokens(folder, name, encode(tokenizer, part, CHARS + 1, CHARS, 0.5), tokenizer.get_vocab_size())
    return read_tokens(folder, "train"), read_tokens(folder, "valid")


def run(
    train: TokenShard, valid: TokenShard, steps: int, seed: int, how: Compress | None, ranks: int
) -> tuple[Curve, float]:
    """Validation losses of a run, and the share of a dense run's bytes that a compressed step of it saves."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig.from_depth(DEPTH, VOCAB, max_len=LENGTH))
    config = PretrainConfig(
        tokens=steps * ROWS * LENGTH,
        length=LENGTH,
        rows=ROWS,
        warmup=30 / steps,
        floor=1.0,
        seed=seed,
        evaluations=steps // WATCH,
        valid_tokens=8_192,
        save_every_s=1e9,
        bf16=False,
        attention="plain",
    )
    made: list[PeersOfOneProcess] = []

    def spread(model: Transformer, _: Choice) -> PeersOfOneProcess:
        assert how is not None
        made.append(PeersOfOneProcess(model, ranks, how.exchange))
        return made[0]

    with tempfile.TemporaryDirectory() as folder:
        done = pretrain(
            model, train, valid, config, state=Path(folder) / "state", spread=spread if how is not None else None
        )
    curve = [(step, values["valid/loss"]) for step, values in done.points if "valid/loss" in values]
    if how is None:
        return curve, 0.0
    dense = 2 * (ranks - 1) / ranks * 4 * sum(p.numel() for p in model.parameters())
    sent = max(wire.traffic.sent for wire in made[0].peers.wires) - how.dense_steps * dense
    return curve, 1 - sent / (steps - how.dense_steps) / dense


def steps_to(curve: Curve, target: float) -> float:
    """The step at which a curve first falls to a loss, between two validations; infinite where it does not."""
    for (before, above), (after, below) in pairwise(curve):
        if below <= target:
            return before + (above - target) / (above - below) * (after - before)
    return float("inf")


if __name__ == "__main__":
    main()
