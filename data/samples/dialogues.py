"""The English dialogues of the package chatterbot-corpus: short questions and answers, and a few longer talks.

They are YAML files of the package, which is read and never imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from data.dialogues import ASSISTANT, USER
from data.errors import DaymillError

PACKAGE = "chatterbot-corpus"
FOLDER = "chatterbot_corpus/data/english"
FILE = "dialogues.jsonl"
DIALOGUES = 2_025  # of chatterbot-corpus 1.3.3, 898 different ones

Progress = Callable[[int, int], None]


def make_dialogues(out: Path, progress: Progress | None = None) -> dict[str, int]:
    """Write one record a dialogue to `out`: user and assistant take turns, the user begins.

    id is file and number, `topic` the file's name. Returns how many dialogues, messages and topics there are, and how
    many entries are left out because they are no list of texts (one of trivia is written wrongly).
    `progress(done, total)` is called after each record. Raises DaymillError where the package is missing.
    """
    messages = done = broken = 0
    files = corpus_files()
    out.mkdir(parents=True, exist_ok=True)
    part = out / f".{FILE}.part"
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for path in files:
            for number, said in enumerate(entries(path), start=1):
                if not is_dialogue(said):
                    broken += 1
                    continue
                record = {
                    "id": f"{path.stem}/{number:04d}",
                    "messages": [
                        {"role": (USER, ASSISTANT)[turn % 2], "content": content.strip()}
                        for turn, content in enumerate(said)
                    ],
                    "topic": path.stem,
                }
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                messages += len(said)
                done += 1
                if progress:
                    progress(done, DIALOGUES)
    os.replace(part, out / FILE)
    return {"dialogues": done, "messages": messages, "topics": len(files), "broken": broken}


def entries(path: Path) -> list[Any]:
    """What a file holds: lists of what is said, in turns."""
    found: list[Any] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))["conversations"]
    return found


def is_dialogue(said: Any) -> bool:
    return isinstance(said, list) and len(said) > 1 and all(isinstance(text, str) and text.strip() for text in said)


def corpus_files() -> list[Path]:
    """The YAML files in the order of their names."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = sorted(
        Path(str(file.locate())) for file in files if file.parent.as_posix() == FOLDER and file.suffix == ".yml"
    )
    if not found:
        raise DaymillError(
            f"the package {PACKAGE} is not installed; it holds the dialogues. Install it with: "
            "pip install -e '.[samples]'"
        )
    return found
