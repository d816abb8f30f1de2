"""params.yaml as a run wants it: the user's data, a preset; only the named values change, every comment stays."""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from data.errors import DaymillError

FOLDER = Path(__file__).parents[1] / "presets"
KEEP = "keep"  # params.yaml as it is
SOURCE = "ingest.source"


class UsageError(DaymillError):
    """The command line or the form asks for something that cannot be (exit code 2)."""


def configure(root: Path, data: str = "", preset: str = KEEP) -> list[str]:
    """Write the data's path and the preset's values into params.yaml; `key: old -> new` of what changed.

    The same call again changes nothing. Raises UsageError for data that is not there, an unknown preset or key.
    """
    wanted: dict[str, Any] = {}
    if preset != KEEP:
        wanted |= dict(flatten(read_preset(preset)))
    if data:
        wanted[SOURCE] = source_path(root, data)
    return write_values(root / "params.yaml", wanted) if wanted else []


def source_path(root: Path, data: str) -> str:
    """The data's path as params.yaml has it: relative to the checkout where it is inside, absolute elsewhere."""
    path = Path(data).expanduser()
    path = path if path.is_absolute() else root / path
    if not path.exists():
        raise UsageError(f"data: {data} does not exist (looked for {path}); expected a file or a folder of records")
    if path.is_dir() and not any(path.iterdir()):
        raise UsageError(f"data: the folder {data} is empty; expected files of records in it")
    absolute = Path(os.path.abspath(path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else str(absolute)


def presets() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_preset(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.yaml"
    if name not in presets():
        close = difflib.get_close_matches(name, presets(), n=1)
        hint = f", did you mean `{close[0]}`?" if close else ""
        raise UsageError(f"preset: no `{name}`{hint} (presets: {', '.join([KEEP, *presets()])})")
    return dict(YAML(typ="safe").load(path.read_text(encoding="utf-8")) or {})


def flatten(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as `section.key` and value; a list is a value."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def write_values(path: Path, wanted: dict[str, Any]) -> list[str]:
    """Replace the named values in a YAML file in their places, byte for byte the same elsewhere."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = YAML().compose(text)
        old = YAML(typ="safe").load(text)
    except (FileNotFoundError, YAMLError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None
    edits: list[tuple[int, int, str]] = []
    changes: list[str] = []
    for key, value in wanted.items():
        start, end = place(tree, key, text, path)
        before = old
        for part in key.split("."):
            before = before[part]
        if before == value and type(before) is type(value):
            continue
        changes.append(f"{key}: {before} -> {value}")
        edits.append((start, end, scalar(value)))
    for start, end, replacement in sorted(edits, reverse=True):
        pad = " " if text[start - 1] == ":" else ""
        text = text[:start] + pad + replacement + text[end:]
    if edits:
        beside = path.with_name(f".{path.name}.writing")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    return changes


def place(tree: Node | None, key: str, text: str, path: Path) -> tuple[int, int]:
    """Where the value of `section.key` begins and ends in the text. Raises UsageError naming the nearest key."""
    node, begun = tree, 0
    for part in key.split("."):
        pairs = {name.value: value for name, value in node.value} if isinstance(node, MappingNode) else {}
        ends = {name.value: name.end_mark.index for name, _ in node.value} if isinstance(node, MappingNode) else {}
        if part not in pairs:
            close = difflib.get_close_matches(part, pairs, n=1)
            hint = f", did you mean `{close[0]}`?" if close else ""
            raise UsageError(f"{path}: no key `{key}`{hint}")
        node, begun = pairs[part], ends[part]
    if isinstance(node, ScalarNode) or (isinstance(node, SequenceNode) and node.flow_style):
        start, end = node.start_mark.index, node.end_mark.index
        empty = text.index(":", begun) + 1  # a value that is not there is marked where the next one begins
        return (start, end) if end > start else (empty, empty)
    raise UsageError(f"{path}: `{key}` holds several values; only single values and [flow, lists] can be set")


def scalar(value: Any) -> str:
    """A value as YAML 1.2 in one line; a string is quoted only where it would read as something else."""
    if isinstance(value, str):
        return value if reads_as_itself(value) else quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{value} is not a number that params.yaml can hold")
    return json.dumps(value)


def quoted(value: str) -> str:
    """JSON's quotes are YAML's too, but YAML escapes one character at a time, never as a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def reads_as_itself(value: str) -> bool:
    if not value or value != value.strip() or "\n" in value:
        return False
    try:
        return bool(YAML(typ="safe").load(f"k: {value}\n") == {"k": value})
    except YAMLError:
        return False
