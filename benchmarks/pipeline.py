"""Pipelines: what the planner predicts beside what ranks measure.

    python benchmarks/pipeline.py

1. Utilization by ranks and micro-batches, even stages, a backward pass of twice a forward: by simulation alone.
2. Four ranks whose stages sleep instead of computing, so that two cores can hold them: predicted, measured.
3. Two ranks that compute, a core each, from skewed stages and from balanced ones: predicted, measured.

Measured is busy over busy plus idle of all ranks, medians over the steps of a run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from data.errors import DaymillError
from training.config import LayerShape, ModelConfig
from training.loader import TokenBatch
from training.model import Transformer
from training.parallel.orders import SCHEDULES, Schedule, order, stages_of_rank
from training.parallel.partition import balanced
from training.parallel.pipeline import CLASSES, Busy, Pipeline, TimedStage
from training.parallel.planner import STAGES_A_RANK, imbalance, measure, predict
from training.parallel.simulate import StageCost, play

NAP = 0.030  # seconds of a forward pass that sleeps; of each half of a backward pass too
STEPS = 5
LAYERS, WIDTH, LENGTH, VOCAB, ROWS = 8, 192, 128, 2048, 4


def main() -> None:
    by_formula()
    sleeping(4, (8, 16))
    computing(2, 8)


def by_formula() -> None:
    print("utilization by simulation; m micro-batches, p ranks")
    print(f"{'p':>3}{'m':>4}" + "".join(f"{name:>16}" for name in SCHEDULES))
    for ranks in (2, 4, 8):
        for count in (4, 8, 16, 32):
            cells = []
            for name in SCHEDULES:
                a_rank = STAGES_A_RANK[name]
                try:
                    work = order(name, ranks, count, a_rank)
                except DaymillError:
                    cells.append(f"{'-':>16}")
                    continue
                each = StageCost(1 / a_rank, 1 / a_rank, 1 / a_rank)
                cells.append(f"{play(work, [each] * (ranks * a_rank)).utilization:>16.3f}")
            print(f"{ranks:>3}{count:>4}" + "".join(cells))
    print()


class Sleep(torch.autograd.Function):
    """The input, after a nap; its gradient, after another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: float, after: float) -> Tensor:
        ctx.after = after
        time.sleep(before)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None, None]:
        time.sleep(ctx.after)
        return grad_outputs[0].contiguous(), None, None


class Sleeper(nn.Module):
    """A stage that sleeps as long as a real one would compute."""

    def __init__(self, nap: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.nap = nap

    def forward(self, x: Tensor) -> Tensor:
        return Sleep.apply(x, self.nap, self.nap) + Sleep.apply(self.weight, 0.0, self.nap)


def world(rank: int, ranks: int, folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
    torch.save(function(rank, ranks, *arguments), folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def over_ranks(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as name:
        mp.spawn(world, (ranks, Path(name), function, arguments), nprocs=ranks)
        return [torch.load(Path(name, f"{rank}.pt"), weights_only=True) for rank in range(ranks)]


def sleeping(ranks: int, counts: tuple[int, ...]) -> None:
    print(f"{ranks} ranks that sleep {1000 * NAP:.0f} ms for a forward pass and for each half of a backward one")
    print(f"{'schedule':<15}{'m':>4}{'predicted':>11}{'measured':>10}{'of it':>8}")
    for name in SCHEDULES:
        a_rank = STAGES_A_RANK[name]
        each = StageCost(NAP / a_rank, NAP / a_rank, NAP / a_rank)
        for count in counts:
            expected = play(order(name, ranks, count, a_rank), [each] * (ranks * a_rank)).utilization
            shares = over_ranks(ranks, sleep_steps, name, count)
            found = median(sum(step) / ranks for step in zip(*shares, strict=True))
            print(f"{name:<15}{count:>4}{expected:>11.3f}{found:>10.3f}{found / expected:>8.1%}", flush=True)
    print()


def sleep_steps(rank: int, ranks: int, name: Schedule, count: int) -> list[float]:
    a_rank, busy = STAGES_A_RANK[name], Busy()
    total = ranks * a_rank
    between = torch.empty(1, 8, requires_grad=True)
    stages = []
    for index in stages_of_rank(name, ranks, a_rank, rank):
        source = torch.empty(1, 8) if index == 0 else between
        stage = TimedStage(Sleeper(NAP / a_rank), index, total, torch.device("cpu"), (source,), (between,))
        stage.busy = busy
        stages.append(stage)
    several = name not in ("gpipe", "1f1b")
    runs = CLASSES[name](stages if several else stages[0], count, loss_fn=lambda y, _: y.sum(), scale_grads=False)
    x, shares = torch.zeros(count, 8), []
    has_last = any(stage.is_last for stage in stages)
    for step in range(STEPS + 1):
        dist.barrier()
        busy.seconds, begun = 0.0, time.perf_counter()
        given = (x,) if any(stage.is_first for stage in stages) else ()
        runs.step(*given, return_outputs=False, **({"target": x} if has_last else {}))
        dist.barrier()
        if step:
            shares.append(busy.seconds / (time.perf_counter() - begun))
    return shares


def tiny() -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(VOCAB, WIDTH, (LayerShape(WIDTH // 32, WIDTH * 8 // 3),) * LAYERS, max_len=LENGTH))


def batch(seed: int) -> TokenBatch:
    made = torch.Generator().manual_seed(seed)
    ids, targets = (torch.randint(0, VOCAB, (ROWS, LENGTH), generator=made) for _ in range(2))
    return TokenBatch(ids, targets, torch.zeros_like(ids))


def computing(ranks: int, count: int) -> None:
    torch.set_num_threads(1)
    costs = measure(tiny(), batch(0))
    told = ", ".join(f"{1000 * cost.seconds:.1f}" for cost in costs)
    print(f"{ranks} ranks that compute, a core each; {count} micro-batches; ms a block: {told}")
    print(
        f"{'schedule':<15}{'blocks':>14}{'imbalance':>11}{'predicted':>11}{'measured':>10}{'of it':>8}{'ms a step':>11}"
    )
    for name in SCHEDULES:
        stages = ranks * STAGES_A_RANK[name]
        best = balanced([cost.seconds for cost in costs], stages)
        skewed = [LAYERS * 2 // 3 + 1, LAYERS - LAYERS * 2 // 3 - 1] if stages == 2 else None
        for sizes in [each for each in (skewed, best) if each]:
            plan = predict(name, sizes, count, costs, ranks, 0.0)
            answers = over_ranks(ranks, compute_steps, name, tuple(sizes), count)
            shares, seconds = [a[0] for a in answers], [a[1] for a in answers]
            found = median(sum(step) / ranks for step in zip(*shares, strict=True))
            took = median(seconds[0])
            blocks = "+".join(map(str, sizes))
            print(
                f"{name:<15}{blocks:>14}{imbalance(costs, sizes):>11.2f}{plan.utilization:>11.3f}{found:>10.3f}"
                f"{found / plan.utilization:>8.1%}{1000 * took:>11.0f}",
                flush=True,
            )


def compute_steps(
    _: int, __: int, name: Schedule, sizes: tuple[int, ...], count: int
) -> tuple[list[float], list[float]]:
    group = dist.group.WORLD
    assert group is not None
    pipeline = Pipeline(tiny(), sizes, name, group, LENGTH)
    batches = [batch(number) for number in range(count)]
    total = float(sum(each.tokens for each in batches))
    shares, seconds = [], []
    for step in range(STEPS + 1):
        dist.barrier()
        for busy in pipeline.busy.values():
            busy.seconds = 0.0
        begun = time.perf_counter()
        pipeline.run(batches, total)
        dist.barrier()
        took = time.perf_counter() - begun
        pipeline.model.zero_grad(set_to_none=True)
        if step:
            shares.append(sum(busy.seconds for busy in pipeline.busy.values()) / took)
            seconds.append(took)
    return shares, seconds


if __name__ == "__main__":
    main()
