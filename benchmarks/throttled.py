"""Training over a slow link: a step's time, the share of it that ranks wait for each other, and bytes, by method.

Each rank has a network namespace of its own, on cables that tc throttles (`benchmarks/network.py`). First the rate is
sought at which dense gradients make ranks wait for 30 % of a step, as in the claim; then every method trains at that
rate, in turns. The claim is 30 % -> 12 %. `auto` must not be slower than dense, also on a link without a throttle.

`python benchmarks/throttled.py` takes about five minutes on a quiet machine with a core for each rank.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.network import Network, carried, enter, join, serve

OUT = Path("artifacts/bench/throttled.json")
METHODS = ("off", "top-k", "power-sgd", "auto")
DEPTH, VOCAB, LENGTH = 3, 8_192, 256
CLAIM = 0.30, 0.12
RATES = 1e6, 1e10  # bit/s, between which the rate of the claim is sought
FAST = 2e10  # as good as no throttle
WARM = 7  # steps before those that are measured: connections, and what `auto` watches


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--mbit", type=float, help="rate of each rank's link; without it the claim's is sought")
    options.add_argument("--rows", type=int, default=8, help="of a step, over all ranks")
    options.add_argument("--steps", type=int, default=10, help="that are measured, of each turn")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.rank is not None:
        serve(given.rank, lambda **request: Trained(given.rank, **request).answer())
        return
    enter()
    with Network(Path(__file__).resolve(), given.ranks) as network:
        work = {"ranks": given.ranks, "rows": given.rows, "steps": given.steps}
        rate = given.mbit * 1e6 if given.mbit else sought(network, work)
        rows = [row for at in (rate, FAST) for row in compared(network, work, at, given.turns)]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"claim": CLAIM, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def sought(network: Network, work: dict[str, int]) -> float:
    """The rate at which dense gradients make ranks wait for the claim's share of a step."""
    slow, fast = RATES
    while fast / slow > 1.3:
        rate = (slow * fast) ** 0.5
        network.throttle(rate)
        share = max(each["share"] for each in network.ask(method="off", **work | {"steps": 3}))
        print(f"at {rate / 1e6:,.1f} Mbit/s dense gradients make a step wait {share:.0%}", flush=True)
        slow, fast = (slow, rate) if share < CLAIM[0] else (rate, fast)
    return float((slow * fast) ** 0.5)


def compared(network: Network, work: dict[str, int], rate: float, turns: int) -> list[dict[str, Any]]:
    """Every method at this rate: medians of turns, on the slowest rank."""
    network.throttle(rate)
    told: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for _ in range(turns):
        for method in METHODS:
            answers = network.ask(method=method, **work)
            told[method].append({name: max(each[name] for each in answers) for name in answers[0]})
    rows = [
        {name: median(turn[name] for turn in seen) for name in seen[0] if name != "said"}
        | {"method": method, "mbit": rate / 1e6, "said": seen[-1]["said"]}
        for method, seen in told.items()
    ]
    print(f"\n{work['ranks']} ranks, {rate / 1e6:,.1f} Mbit/s each{'' if rate < FAST else ' (no throttle)'}")
    print(f"{'':10} {'ms a step':>10} {'waits':>7} {'MB sent':>9} {'received':>9} {'kernel':>9} {'of dense':>9}")
    for row in rows:
        name = row["method"] if row["method"] != "off" else "dense"
        print(
            f"{name:10} {row['seconds'] * 1e3:10.0f} {row['share']:7.1%} "
            f"{row['sent'] / 1e6:9.2f} {row['received'] / 1e6:9.2f} {row['kernel_sent'] / 1e6:9.2f} "
            f"{row['sent'] / rows[0]['sent']:9.1%}"
        )
    for line in rows[-1]["said"]:
        print(f"  auto: {line}")
    ours = f"{rows[0]['share']:.1%} -> {rows[-1]['share']:.1%} (auto)"
    print(f"  claim: waiting {CLAIM[0]:.0%} -> {CLAIM[1]:.0%}; ours {ours}")
    print(f"  auto over dense: {rows[-1]['seconds'] / rows[0]['seconds']:.2f} of the time", flush=True)
    return rows


class Trained:
    """Some steps of the default model on this rank."""

    def __init__(self, rank: int, method: Any, ranks: int, rows: int, steps: int) -> None:
        import torch
        import torch.distributed as dist

        from training.config import ModelConfig
        from training.loader import TokenBatch, share
        from training.model import Transformer
        from training.optim import make_adamw
        from training.parallel.compress import Compress
        from training.parallel.layout import Layout, Mesh
        from training.parallel.reducer import AllReduce, Exchange
        from training.parallel.wire import Wire
        from training.ranks import token_loss_sum
        from training.step import Trainer

        torch.set_num_threads(1)
        if not dist.is_initialized():
            join(rank, ranks)
        torch.manual_seed(0)
        said: list[str] = []

        def exchange(wire: Wire) -> Exchange:
            return AllReduce(wire) if method == "off" else Compress(method).exchange(wire, said.append)

        model = Transformer(ModelConfig.from_depth(DEPTH, VOCAB, max_len=LENGTH))
        model.set_attention("plain")
        world = Mesh(model, Layout(data=ranks), LENGTH, exchange)
        trainer = Trainer(model, make_adamw(model, 0.1), 1.0, world)
        assert world.reducer is not None
        traffic = world.reducer.exchange.traffic
        seconds = []
        for step in range(WARM + steps):
            if step == WARM:
                waited, sent, received, kernel = traffic.waited, traffic.sent, traffic.received, carried()
            ids = torch.randint(0, VOCAB, (rows, LENGTH), generator=torch.Generator().manual_seed(step))
            batch = share(TokenBatch(ids, ids.roll(-1, 1), torch.zeros_like(ids)), rank, ranks)
            dist.barrier()
            start = time.perf_counter()
            trainer.step([batch], lambda b: token_loss_sum(model, b, "fp32"), lambda b: b.tokens, 1e-4)
            seconds.append(time.perf_counter() - start)
        measured = seconds[WARM:]
        self.figures = {
            "seconds": median(measured),
            "share": (traffic.waited - waited) / sum(measured),
            "sent": (traffic.sent - sent) / steps,
            "received": (traffic.received - received) / steps,
            "kernel_sent": (carried()[0] - kernel[0]) / steps,
            "kernel_received": (carried()[1] - kernel[1]) / steps,
            "said": said,
        }

    def answer(self) -> dict[str, Any]:
        return self.figures


if __name__ == "__main__":
    main()
