"""Every stage's section of params.yaml, checked before the first stage runs: a typo in the last one costs no hour.

Each stage's params model lives with the stage, and importing all stages takes seconds: done in a process of its own,
and only when something is going to run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from data.errors import DaymillError
from flows import children
from flows.presets import UsageError
from flows.settings import STAGES, child_environment

WRONG = 2  # exit code of the child when params are wrong


def check(root: Path, stages: Sequence[str]) -> None:
    """Raise UsageError with a line for each wrong key of the given stages, all of them at once."""
    wrong: list[str] = []
    crash: list[str] = []

    def on_line(line: str, from_stderr: bool) -> None:
        (crash if from_stderr else wrong).append(line)

    command = [sys.executable, "-m", "flows.knobs", *stages]
    env = child_environment() | {"PYTHONPATH": str(Path(__file__).parents[1])}
    code = children.run(command, root, env, on_line, poll=lambda: None)
    if code == WRONG:
        raise UsageError("\n".join(wrong))
    if code:
        raise DaymillError("the stages cannot be imported:\n" + "\n".join(crash))


def problems(stages: Sequence[str]) -> list[str]:
    """What is wrong with the sections of these stages, a stage's model is named like the stage; and stages that the
    objective of finetune leaves nothing to do."""
    from tasks.params import ParamsError, load

    found: list[str] = []
    shared = [("data", "machines")] if "score" in stages else []
    for name, module in [*shared, *((stage, stage) for stage in stages)]:
        model = getattr(importlib.import_module(f"tasks.{module}"), name.capitalize())
        try:
            load(name, model)
        except ParamsError as error:
            found.append(str(error))
    behind = set(stages) & set(STAGES[STAGES.index("finetune") + 1 :])
    return found or (without_a_classifier() if behind else [])


def without_a_classifier() -> list[str]:
    """Why nothing behind finetune can run, before hours went into what comes before it."""
    from tasks.finetune import Finetune
    from tasks.objective import require_classifier
    from tasks.params import load

    try:
        require_classifier(load("finetune", Finetune).objective)
    except DaymillError as error:
        return [str(error)]
    return []


if __name__ == "__main__":
    wrong = problems(sys.argv[1:])
    print("\n".join(wrong))
    sys.exit(WRONG if wrong else 0)
