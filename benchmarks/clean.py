"""Everything that cleaning promises, measured one after another, each in a process of its own: `make bench-clean`.

About an hour on two quiet cores; `--only NAME` runs one part. What each prints goes to artifacts/bench/clean/ as well.
"""

from __future__ import annotations

import sys

from benchmarks.parts import run_parts

PARTS: dict[str, list[str]] = {
    "ingest": ["benchmarks/ingest_speed.py"],
    "duplicates": ["benchmarks/dedup_speed.py", "--documents", "1000000"],
    "noise": ["benchmarks/clean_noise.py"],
    "other-noise": ["benchmarks/noise.py"],
    "f1": ["benchmarks/clean_f1.py"],
    "bias": ["benchmarks/bias.py"],
    "domain": ["benchmarks/domain.py", "--seeds", "3"],
}


if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS, "clean"))
