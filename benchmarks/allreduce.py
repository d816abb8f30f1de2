"""What adding up gradients costs against the number of ranks, dense and compressed: bytes, and time on a slow link.

Each rank has a network namespace of its own (`benchmarks/network.py`). A dense ring all-reduce sends 2 (N - 1) / N of
the gradient, so its time at a given rate should grow to twice one copy's and no further; what is printed beside the
measured bytes and times is that formula. The kernel's own counters, headers included, check the counted bytes.

`python benchmarks/allreduce.py` takes about two minutes.
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

OUT = Path("artifacts/bench/allreduce.json")
METHODS = ("off", "top-k", "power-sgd")
SHAPES = [(192, 192)] * 12 + [(512, 192)] * 9 + [(8192, 192)]  # the default model's matrices
TURNS = 5


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options.add_argument("--mbit", type=float, default=200.0, help="rate of each rank's link, Mbit/s")
    options.add_argument("--turns", type=int, default=TURNS)
    options.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.rank is not None:
        serve(given.rank, lambda **request: measure(given.rank, **request))
        return
    enter()
    rows: list[dict[str, Any]] = []
    one_copy = sum(n * m for n, m in SHAPES) * 4
    print(f"{one_copy / 1e6:.1f} MB of gradients, {given.mbit:g} Mbit/s a rank; each rank sends, and receives as much")
    print(f"{'':10} {'ranks':>5} {'MB sent':>9} {'kernel':>9} {'of dense':>9} {'ms':>9} {'formula':>9}")
    for ranks in given.ranks:
        with Network(Path(__file__).resolve(), ranks) as network:
            network.throttle(given.mbit * 1e6)
            for method in METHODS:
                told = network.ask(method=method, ranks=ranks, turns=given.turns)
                row = {name: max(each[name] for each in told) for name in told[0]} | {"method": method, "ranks": ranks}
                rows.append(row)
                dense = next(r for r in rows if r["ranks"] == ranks and r["method"] == "off")
                formula = 2 * (ranks - 1) / ranks * one_copy * 8 / given.mbit / 1e3
                print(
                    f"{method if method != 'off' else 'dense':10} {ranks:5} {row['sent'] / 1e6:9.2f} "
                    f"{row['kernel_sent'] / 1e6:9.2f} {row['sent'] / dense['sent']:9.1%} {row['seconds'] * 1e3:9.0f} "
                    f"{format(formula, '9.0f') if method == 'off' else '':>9}",
                    flush=True,
                )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"mbit": given.mbit, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def measure(rank: int, method: Any, ranks: int, turns: int) -> dict[str, float]:
    """Median seconds of a reduction of all gradients, and the bytes of one."""
    import torch
    import torch.distributed as dist
    from torch import nn

    from training.parallel.compress import Compress
    from training.parallel.reducer import Reducer
    from training.parallel.wire import GroupWire

    torch.set_num_threads(1)
    if not dist.is_initialized():
        join(rank, ranks)
    named = [(f"p{at}", nn.Parameter(torch.zeros(shape))) for at, shape in enumerate(SHAPES)]
    assert dist.group.WORLD is not None
    reducer = Reducer(named, Compress(method).exchange(GroupWire(dist.group.WORLD)))
    drawn = torch.Generator().manual_seed(rank)
    times = []
    counted, kernel = [], []
    for _ in range(turns + 1):
        for _, parameter in named:
            parameter.grad = torch.randn(parameter.shape, generator=drawn)
        dist.barrier()
        traffic = reducer.exchange.traffic
        before, seen, start = (traffic.sent, traffic.received), carried(), time.perf_counter()
        reducer.begin_step()
        reducer.finish()
        reducer.settle(True)
        times.append(time.perf_counter() - start)
        counted.append((traffic.sent - before[0], traffic.received - before[1]))
        kernel.append(tuple(after - was for after, was in zip(carried(), seen, strict=True)))
    return {  # the first turn made the connections
        "seconds": median(times[1:]),
        "sent": counted[-1][0],
        "received": counted[-1][1],
        "kernel_sent": median(sent for sent, _ in kernel[1:]),
        "kernel_received": median(received for _, received in kernel[1:]),
    }


if __name__ == "__main__":
    main()
