"""One try of a micro-batch: `python -m training.batch_trial JOB.json` takes a few steps and prints what they took.

A process of its own, so that its memory is really given back, and being killed for it is an answer.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from data.parent import end_with_parent
from training.config import ModelConfig
from training.engine import open_engine
from training.knobs import PretrainConfig
from training.loader import TokenBatch
from training.model import Transformer
from training.pretrain import PROBE_ROWS

MIB = 1 << 20
OUT_OF_MEMORY = 77  # exit code: an allocation was refused
SLACK = 512 * MIB  # address space beyond the limit: stacks, and arenas that are never touched
MICRO_BATCHES = 2  # the second computes while the first one's gradients are held
STEPS = 3  # the first allocates the moments, the others are timed


@dataclass(frozen=True)
class Job:
    """What is tried."""

    model: dict[str, Any]  # ModelConfig.to_json
    config: dict[str, Any]  # PretrainConfig, with the rows of this try
    limit_mib: int
    device: str = "cpu"
    threads: int = 0  # 0: as torch has it

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True)
class Took:
    """Largest memory of the process (on a GPU: of the device), and speed."""

    peak_mib: float
    tokens_per_s: float


def run(job: Job) -> Took:
    """A few steps of full rows; what is in them does not matter."""
    config = PretrainConfig(**job.config)
    device = torch.device(job.device)
    if job.threads:
        torch.set_num_threads(job.threads)
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, job.limit_mib * MIB / total), device)
    torch.manual_seed(config.seed)
    model = Transformer(ModelConfig.from_json(job.model)).to(device)
    ids = torch.randint(0, model.config.vocab_size, (config.rows, config.length), device=device)
    batch = TokenBatch(ids, ids, torch.zeros_like(ids))
    few = TokenBatch(ids[:PROBE_ROWS], ids[:PROBE_ROWS], batch.docs[:PROBE_ROWS])
    engine = open_engine(model, config, few)
    seconds = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        engine.step([batch] * MICRO_BATCHES, config.lr)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begun)
    peak = torch.cuda.max_memory_reserved(device) / MIB if device.type == "cuda" else peak_mib()
    return Took(peak, MICRO_BATCHES * ids.numel() / min(seconds[1:]))


def peak_mib() -> float:
    """The most resident memory that this process had.

    Linux keeps the peak of a parent in a child's ru_maxrss, but not in VmHWM.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (MIB if sys.platform == "darwin" else 1024)


def confine(limit_mib: int) -> None:
    """The allocator says no before the machine suffers, and if it does, the kernel takes this process first."""
    if sys.platform != "linux":
        return
    bound = limit_mib * MIB + SLACK
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
    Path("/proc/self/oom_score_adj").write_text("1000")


def refused(error: BaseException) -> bool:
    """Whether an allocation failed; torch's CPU allocator says so in a RuntimeError without a type of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and ("allocate memory" in str(error) or "not enough memory" in str(error))


def main() -> None:
    end_with_parent()
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    if job.device == "cpu":
        confine(job.limit_mib)
    try:
        took = run(job)
    except (MemoryError, RuntimeError) as error:
        if refused(error):
            sys.exit(OUT_OF_MEMORY)
        raise
    print(json.dumps(asdict(took)), flush=True)


if __name__ == "__main__":
    main()
