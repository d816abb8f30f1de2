"""What the schedule of the learning rate gives: warm-up and a decay beside a constant rate, same tokens, three seeds.

    python benchmarks/schedule.py [--depth D] [--tokens N] [--seeds N] [--rates R ...] [--schedules NAME ...]

Each schedule is judged at the best of the peak rates, so that the constant one is not held to the others' rate. The
loss is that of the validation mails (needs the tokens of `make run`). The claim is +0.5 to 1 %. About an hour
and a half on one core (OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from data.tokens import load_tokenizer, read_tokens
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.model import Transformer
from training.pretrain import pretrain

TOKENS = Path("artifacts/tokenize")
OUT = Path("artifacts/bench/schedule.json")
CONSTANT = "constant"
SCHEDULES: dict[str, dict[str, Any]] = {
    CONSTANT: {"warmup": 0.0, "floor": 1.0},
    "warm-up, constant": {"warmup": 0.1, "floor": 1.0},
    "warm-up, linear": {"warmup": 0.1, "floor": 0.05, "decay": "linear"},
    "warm-up, cosine": {"warmup": 0.1, "floor": 0.05, "decay": "cosine"},
    "last fifth cosine": {"warmup": 0.0, "floor": 0.05, "hold": 0.8},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--depth", type=int, default=3)
    options.add_argument("--tokens", type=int, default=800_000)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rates", type=float, nargs="+", default=[2e-3])
    options.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=list(SCHEDULES), metavar="NAME")
    given = options.parse_args()
    config = PretrainConfig(tokens=given.tokens, rows=8, evaluations=1, save_every_s=1e9)
    losses: dict[str, dict[float, list[float]]] = {}
    for name in given.schedules:
        losses[name], changes = {}, SCHEDULES[name]
        for rate in given.rates:
            found = [one(given.depth, replace(config, lr=rate, seed=seed, **changes)) for seed in range(given.seeds)]
            losses[name][rate] = found
            print(f"{name}, {rate:g}: " + " ".join(f"{loss:.4f}" for loss in found), flush=True)
    best = {name: min(by_rate.values(), key=statistics.mean) for name, by_rate in losses.items()}
    print(f"{'schedule':20}{'loss':>9}{'spread':>9}{'under constant':>16}   (claim: 0.5 to 1 %)")
    for name, found in best.items():
        against = best.get(CONSTANT, [])  # nothing where it was left out
        gains = [1 - ours / theirs for ours, theirs in zip(found, against, strict=False)]
        gain = f"{statistics.mean(gains):>+15.2%}" if gains else ""
        print(f"{name:20}{statistics.mean(found):9.4f}{max(found) - min(found):9.4f}{gain}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"losses": losses, **vars(given)}, indent=1) + "\n", encoding="utf-8")


def one(depth: int, config: PretrainConfig) -> float:
    """The validation loss at the end of a run."""
    vocab = load_tokenizer(TOKENS / "tokenizer.json").get_vocab_size()
    torch.manual_seed(config.seed)
    model = Transformer(ModelConfig.from_depth(depth, vocab, max_len=config.length))
    with tempfile.TemporaryDirectory() as folder:
        train, valid = read_tokens(TOKENS, "train"), read_tokens(TOKENS, "valid")
        done = pretrain(model, train, valid, config, state=Path(folder, "state"))
    return done.last("valid/loss")


if __name__ == "__main__":
    main()
