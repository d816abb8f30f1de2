"""Which stages would run, and why: asked of DVC through its API, in a process of its own.

DVC does not see imports, so the always-run stage `code` writes its fingerprints first; what DVC says afterwards takes a
changed module for a changed dep.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from flows import children
from flows.settings import child_environment

ALWAYS = "code"
SHOWN_REASONS = 5


@dataclass(frozen=True)
class Plan:
    """DVC's word on every stage: its parents and, where it is stale, the reasons; and which are `python -m tasks.X`."""

    parents: Mapping[str, tuple[str, ...]]
    changed: Mapping[str, tuple[str, ...]]
    ours: tuple[str, ...] = ()

    def why(self, stage: str) -> tuple[str, ...]:
        """Reasons to run a stage, its own or a parent's; empty when the stage and all above it are up to date."""
        if stage not in self.parents:
            raise DaymillError(f"dvc.yaml has no stage `{stage}` (stages: {', '.join(self.parents)})")
        if stage in self.changed:
            return self.changed[stage]
        stale = [parent for parent in self.parents[stage] if self.why(parent)]
        return tuple(f"after {parent}" for parent in stale)


def ask(root: Path) -> Plan:
    """Write the code fingerprints, then ask DVC about every stage. Raises DaymillError with DVC's own words."""
    answer: list[str] = []
    complaints: list[str] = []

    def on_line(line: str, from_stderr: bool) -> None:
        (complaints if from_stderr else answer).append(line)

    command = [sys.executable, "-m", "flows.staleness"]
    env = child_environment()
    env["PYTHONPATH"] = str(Path(__file__).parents[1])
    code = children.run(command, root, env, on_line, poll=lambda: None)
    if code or not answer:
        said = "\n".join(complaints[-SHOWN_REASONS:]) or f"exit code {code}"
        raise DaymillError(f"DVC cannot say which stages are stale:\n{said}")
    found = json.loads(answer[-1])
    return Plan(
        parents={stage: tuple(above) for stage, above in found["parents"].items()},
        changed={stage: reasons(entries) for stage, entries in found["changed"].items() if stage != ALWAYS},
        ours=tuple(found["ours"]),
    )


def reasons(entries: list[Any]) -> tuple[str, ...]:
    """`dvc status` entries of one stage as phrases: `params.yaml: pretrain.depth modified`."""
    found: list[str] = []
    for entry in entries:
        if isinstance(entry, str):
            found.append(entry)
            continue
        for kind, places in entry.items():
            suffix = " (its own output)" if kind == "changed outs" else ""
            for place, how in places.items():
                changes = how.items() if isinstance(how, dict) else [("", how)]
                found += [f"{place}{': ' + key if key else ''} {change}{suffix}" for key, change in changes]
    more = len(found) - SHOWN_REASONS
    return (*found[:SHOWN_REASONS], *([f"and {more} more"] if more > 0 else []))


def answer() -> int:
    """The child's part: one JSON line on stdout; all that DVC or the stage prints goes to stderr."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with contextlib.redirect_stdout(sys.stderr), Repo(".") as repo:
            stages = repo.index.stages
            names = {stage.addressing for stage in stages}
            never = {stage.addressing for stage in stages if not any(out.hash_info for out in stage.outs)}
            if ALWAYS in names:
                repo.reproduce(targets=[ALWAYS], single_item=True)
                repo._reset()
            changed = {name: ["never ran"] if name in never else why for name, why in repo.status().items()}
            parents: dict[str, list[str]] = {name: [] for name in names}
            for stage, above in repo.index.graph.edges:
                parents[stage.addressing].append(above.addressing)
    except DvcException as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    ours = [stage.addressing for stage in stages if str(stage.cmd).endswith(f"python -m tasks.{stage.addressing}")]
    told = {"parents": {name: sorted(above) for name, above in parents.items()}, "changed": changed, "ours": ours}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(answer())
