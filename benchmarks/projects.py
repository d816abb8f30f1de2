"""A checkout in miniature for one measurement: the real stages, the shipped knobs, data and changes of one's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tasks", "data", "training", "compression", "serving")
CLEANING = ("ingest", "score", "clean")


def make_project(folder: Path, source: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """A folder with params.yaml (`changes` by dotted key), dvc.yaml, suites and an empty judgments/."""
    folder.mkdir(parents=True, exist_ok=True)
    yaml = YAML(typ="safe")
    params = yaml.load(ROOT / "params.yaml")
    for key, value in {"ingest.source": str(source.resolve()), **(changes or {})}.items():
        *path, last = key.split(".")
        node = params
        for part in path:
            node = node[part]
        if last not in node:
            raise KeyError(f"params.yaml has no {key}")
        node[last] = value
    with (folder / "params.yaml").open("w") as file:
        yaml.dump(params, file)
    shutil.copy(ROOT / "dvc.yaml", folder)
    shutil.copytree(ROOT / "expectations", folder / "expectations", dirs_exist_ok=True)
    (folder / "judgments/examples").mkdir(parents=True, exist_ok=True)
    (folder / "corpus").mkdir(exist_ok=True)
    for package in PACKAGES:  # stages fingerprint their code where they run
        (folder / package).symlink_to(ROOT / package)
    return folder


def run_stages(folder: Path, stages: Sequence[str] = CLEANING, environment: Mapping[str, str] | None = None) -> None:
    """Run stages one after another, each as `python -m tasks.<stage>`. Raises RuntimeError with the end of its log."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment or {})
    for stage in ("code", *stages):
        done = subprocess.run(
            [sys.executable, "-m", f"tasks.{stage}"], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{stage} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def metrics(folder: Path, stage: str) -> dict[str, Any]:
    """What a stage said at its end."""
    return dict(json.loads((folder / "artifacts/metrics" / f"{stage}.json").read_text()))
