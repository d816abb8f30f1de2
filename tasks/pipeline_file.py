"""What dvc.yaml says of a stage: read once, so that deps and outs are written in one place only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.params import ParamsError, read

PIPELINE_FILE = Path("dvc.yaml")


@dataclass(frozen=True)
class StageFile:
    """Deps, outs (metrics included) and params keys of one stage."""

    name: str
    deps: tuple[Path, ...]
    outs: tuple[Path, ...]
    params: tuple[str, ...]


def stage_file(name: str, path: Path = PIPELINE_FILE, params: Path = Path("params.yaml")) -> StageFile:
    """The stage's entry with `${section.key}` filled in from params.yaml. Raises ParamsError when there is none."""
    stages = read(path).get("stages", {})
    if name not in stages:
        raise ParamsError(f"{path}: no stage `{name}` (stages: {', '.join(stages)})")
    entry = stages[name]
    values = read(params)

    def paths(key: str) -> tuple[Path, ...]:
        return tuple(Path(fill(key_of(item), values, path)) for item in entry.get(key, ()))

    return StageFile(
        name,
        deps=paths("deps"),
        outs=paths("outs") + paths("metrics") + paths("plots"),
        params=tuple(str(key) for key in entry.get("params", ())),
    )


def key_of(item: Any) -> str:
    """An out is a path or a mapping of one path to its options."""
    return str(next(iter(item))) if isinstance(item, dict) else str(item)


def fill(text: str, values: Any, path: Path) -> str:
    def value(match: re.Match[str]) -> str:
        node = values
        for part in match.group(1).split("."):
            if not isinstance(node, dict) or part not in node:
                raise ParamsError(f"{path}: ${{{match.group(1)}}} is not in params.yaml")
            node = node[part]
        return str(node)

    return re.sub(r"\$\{([A-Za-z0-9_.]+)\}", value, text)
