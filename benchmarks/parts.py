"""Benchmarks one after another, each in a process of its own, whose output is kept."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping

from benchmarks.projects import ROOT


def run_parts(about: str | None, parts: Mapping[str, list[str]], name: str) -> int:
    """Run all parts, or those named by `--only`; output goes to artifacts/bench/`name`/ as well. 1 where one failed."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--only", choices=parts, action="append", help="this part (may be given again)")
    folder = ROOT / "artifacts/bench" / name
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in parser.parse_args().only or parts:
        print(f"== {part}", flush=True)
        started = time.monotonic()
        said: list[str] = []
        with subprocess.Popen(
            [sys.executable, *parts[part]],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                said.append(line)
        (folder / f"{part}.txt").write_text("".join(said))
        failed += [part] if process.returncode else []
        print(f"   {time.monotonic() - started:.0f} s\n", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
