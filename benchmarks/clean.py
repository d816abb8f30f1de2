"""Everything that cleaning promises, measured one after another, each in a process of its own: `make bench-clean`.

About an hour on two quiet cores; `--only NAME` runs one part. What each prints goes to artifacts/bench/clean/ as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from benchmarks.projects import ROOT

PARTS: dict[str, list[str]] = {
    "ingest": ["benchmarks/ingest_speed.py"],
    "duplicates": ["benchmarks/dedup_speed.py", "--documents", "1000000"],
    "noise": ["benchmarks/clean_noise.py"],
    "other-noise": ["benchmarks/noise.py"],
    "f1": ["benchmarks/clean_f1.py"],
    "bias": ["benchmarks/bias.py"],
    "domain": ["benchmarks/domain.py", "--seeds", "3"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="this part (may be given again)")
    folder = ROOT / "artifacts/bench/clean"
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in parser.parse_args().only or PARTS:
        print(f"== {name}", flush=True)
        started = time.monotonic()
        said: list[str] = []
        command = [sys.executable, *PARTS[name]]
        with subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                said.append(line)
        (folder / f"{name}.txt").write_text("".join(said))
        failed += [name] if process.returncode else []
        print(f"   {time.monotonic() - started:.0f} s\n", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
