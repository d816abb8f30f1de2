"""What people say about records lies in one folder, so that the pipeline sees when it changes."""

from __future__ import annotations

from pathlib import Path

from data.adapt.target import Target, load_target
from data.errors import DaymillError

FOLDER = Path("judgments")
EXAMPLES = FOLDER / "examples"  # what `score` reads, so that a reviewed label does not measure everything anew


def judgment_file(named: str, knob: str, folder: Path = FOLDER) -> Path:
    """The file that a knob names. Raises DaymillError where it is not inside the folder, or not there."""
    path = Path(named)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DaymillError(
            f"{knob} is {named}; expected a file in {folder}/: elsewhere a change of it would go unnoticed"
        )
    if not path.is_file():
        raise DaymillError(f"{knob}: {named} is not there; {FOLDER}/README.md tells what it should hold")
    return path


def examples(named: str | None, knob: str, folder: Path = FOLDER) -> Target | None:
    """The records of the file that a knob names; None where it names none."""
    return None if named is None else load_target(judgment_file(named, knob, folder))
