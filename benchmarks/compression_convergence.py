"""Steps to the same loss with compressed gradients, beside dense ones: claim + 5 %.

Real text: the sample's mails, the product's tokenizer, packing, model, optimizer and schedule (warm-up, then decay to
the last step, so that a run's last loss is what its number of steps can give). A compressed run takes as many as the
longest dense one; what dense run would have ended at its loss is read off the line through dense runs of several
lengths. The ranks of a run live in this process (`benchmarks/peers.py`, equal to real ones by
`tests/unit/training/parallel/test_peers.py`).

`python benchmarks/compression_convergence.py` takes about 30 minutes on one core; `--seeds 1 --ranks 2` about 6.
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

from benchmarks.mails import mail_shards
from benchmarks.peers import PeersOfOneProcess
from data.tokens import TokenShard
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.model import Transformer
from training.parallel.compress import Compress
from training.parallel.wire import ring_bytes
from training.precision import Choice
from training.pretrain import pretrain

OUT = Path("artifacts/bench/compression_convergence.json")
CLAIM = 0.05
CHARS, VOCAB, DEPTH, LENGTH, ROWS, LR = 1_600, 1_024, 2, 64, 16, 2e-3
SHORTER = (0.8, 0.9, 1.0)  # dense runs, as shares of the steps
METHODS = {"top-k": Compress("top-k"), "PowerSGD": Compress("power-sgd")}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=600, help="of the longest run")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options.add_argument("--saved", type=float, default=0.8, help="share of a dense ring's bytes")
    options.add_argument("--dense-steps", type=int, default=100, help="before compression begins")
    given = options.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    train, valid = mail_shards(VOCAB, CHARS, CHARS)
    for seed in range(given.seeds):
        lengths = [round(share * given.steps) for share in SHORTER]
        dense = [(length, run(train, valid, length, seed, None, 1)[0]) for length in lengths]
        told = ", ".join(f"{loss:.4f} after {length}" for length, loss in dense)
        print(f"seed {seed}: dense loss {told} steps", flush=True)
        for name, compress in METHODS.items():
            for ranks in given.ranks:
                how = replace(compress, saved=given.saved, dense_steps=given.dense_steps)
                loss, saved = run(train, valid, given.steps, seed, how, ranks)
                more = given.steps / steps_to(dense, loss) - 1
                found.setdefault(f"{name}, {ranks} ranks", []).append(more)
                of_run = saved * (1 - given.dense_steps / given.steps)
                line = f"loss {loss:.4f}: {more:+.1%} steps, {saved:.1%} fewer bytes a compressed step"
                line += f", {of_run:.1%} over the run"
                print(f"  {name}, {ranks} ranks: {line}", flush=True)
    print(f"\n{'more steps to the same loss':28} {'mean':>8} {'worst':>8} {'claim':>8}")
    for name, values in found.items():
        print(f"{name:28} {mean(values):+8.1%} {max(values):+8.1%} {CLAIM:+8.0%}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"more_steps": found, "claim": CLAIM}, indent=1) + "\n", encoding="utf-8")


def run(
    train: TokenShard, valid: TokenShard, steps: int, seed: int, how: Compress | None, ranks: int
) -> tuple[float, float]:
    """The last validation loss of a run, and the share of a dense ring's bytes that a compressed step of it saves."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig.from_depth(DEPTH, VOCAB, max_len=LENGTH))
    config = PretrainConfig(
        tokens=steps * ROWS * LENGTH,
        length=LENGTH,
        rows=ROWS,
        lr=LR,
        warmup=0.1,
        floor=0.05,
        seed=seed,
        evaluations=1,
        valid_tokens=32_768,
        save_every_s=1e9,
        precision="fp32",
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
    loss = done.last("valid/loss")
    if how is None:
        return loss, 0.0
    peers = made[0].peers
    one = sum(ring_bytes(ranks, 4 * bucket.numel) for bucket in peers.buckets)
    sent = max(wire.traffic.sent for wire in peers.wires) - how.dense_steps * one
    return loss, 1 - sent / (steps - how.dense_steps) / one


def steps_to(dense: list[tuple[int, float]], loss: float) -> float:
    """The length of the dense run that would end at this loss: on the line through the two nearest lengths."""
    for (shorter, above), (longer, below) in pairwise(dense):
        if loss >= below or longer == dense[-1][0]:
            return shorter + (above - loss) / (above - below) * (longer - shorter)
    raise ValueError("expected dense runs of two lengths or more")


if __name__ == "__main__":
    main()
