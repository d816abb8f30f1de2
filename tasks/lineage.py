"""Where a bundle comes from: the commit, the inputs as DVC recorded them, the dates of the records."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

LOCK = Path("dvc.lock")


def lineage(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """git_commit (null outside a checkout), git_dirty, dvc_lock (path -> hash, without the code fingerprints), and
    what the split's report says of each part: rows and dates (first and last, ISO 8601). data_date is the newest."""
    commit = git("rev-parse", "HEAD")
    records = {name: {key: part[key] for key in ("rows", "dates") if key in part} for name, part in parts.items()}
    dates = [date for part in records.values() for date in part.get("dates") or () if date]
    return {
        "git_commit": commit,
        "git_dirty": bool(git("status", "--porcelain", "--untracked-files=no")) if commit else None,
        "dvc_lock": locked_hashes(),
        "records": records,
        "data_date": max(dates, default=None),
    }


def git(*arguments: str) -> str | None:
    """What git prints, or None where there is no git or no checkout."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def locked_hashes(path: Path = LOCK) -> dict[str, str]:
    """Hash of every dep and out that dvc.lock names, as the stages before this one left it."""
    if not path.exists():
        return {}
    stages = YAML(typ="safe").load(path.read_text(encoding="utf-8")).get("stages", {})
    entries = [entry for stage in stages.values() for kind in ("deps", "outs") for entry in stage.get(kind, ())]
    hashes = {entry["path"]: next((entry[key] for key in ("md5", "etag", "checksum") if key in entry), "")
              for entry in entries}  # fmt: skip
    return {name: hashes[name] for name in sorted(hashes) if not name.startswith("artifacts/code/")}
