"""All that the training engine promises, measured part by part, each in a process of its own: `make bench-train`.

Some four hours on two quiet cores; `--only NAME` runs one part. What each prints goes to artifacts/bench/train/ too.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.parts import run_parts

PARTS: dict[str, list[str]] = {
    "speed": ["benchmarks/train_speed.py"],
    "mails": ["benchmarks/mails_speed.py"],
    "batches": ["benchmarks/batches.py"],
    "pipeline": ["benchmarks/pipeline.py"],
    "all-reduce": ["benchmarks/allreduce.py"],
    "convergence": ["benchmarks/compression_convergence.py"],
    "throttled": ["benchmarks/throttled.py"],
    "precision": ["benchmarks/precision.py", "--speed"],
    "activations": ["benchmarks/activations.py"],
    "schedule": ["benchmarks/schedule.py"],
    "pretraining": ["benchmarks/pretraining_gain.py"],
    "telemetry": ["benchmarks/telemetry.py"],
}

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS, "train"))
