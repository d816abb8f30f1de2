"""The always-run first stage: one fingerprint a stage of the code that the stage reaches by imports.

DVC does not see imports (treeverse/dvc#9195), and naming every module as a dep would retrain after a changed
docstring. So a stage's dep is the hash of the syntax trees, without comments and docstrings, of every project
module it reaches. Run as `python -m tasks.code`; it needs nothing but the standard library.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from functools import cache
from pathlib import Path

ROOMS = ("tasks", "data", "training", "compression", "serving")
FOLDER = Path("artifacts/code")


def main() -> None:
    """Write artifacts/code/<stage>.json for every tasks/<stage>.py that runs as a stage; untouched when equal."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in sorted(Path("tasks").glob("*.py")):
        if path.stem != "code" and is_stage(path):
            write_if_changed(FOLDER / f"{path.stem}.json", fingerprint(f"tasks.{path.stem}"))


def is_stage(path: Path) -> bool:
    """A stage has `if __name__ == "__main__":` at the top level."""
    return any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in parse(path).body)


def fingerprint(module: str) -> str:
    """JSON text: the hash over all reached modules, and each module's own hash so that a change can be named."""
    modules = {name: tree_hash(path_of(name)) for name in sorted(reach(module))}
    whole = hashlib.sha256(json.dumps(modules, sort_keys=True).encode()).hexdigest()
    return json.dumps({"stage": module, "hash": whole, "modules": modules}, indent=1) + "\n"


def fresh_fingerprint(module: str) -> str:
    """The fingerprint of the files as they are now, whatever was read before in this process."""
    for cached in (imports, exists, path_of, parse, tree_hash):
        cached.cache_clear()
    return fingerprint(module)


def reach(module: str) -> set[str]:
    """Project modules that a module imports, directly or not, at top level or inside functions."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting.extend(imports(name))
    return seen


@cache
def imports(module: str) -> tuple[str, ...]:
    found: set[str] = set()
    for node in ast.walk(parse(path_of(module))):
        if isinstance(node, ast.Import):
            candidates = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            candidates = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in candidates:
            parts = name.split(".")
            if parts[0] in ROOMS:
                prefixes = (".".join(parts[: i + 1]) for i in range(len(parts)))
                found.update(prefix for prefix in prefixes if exists(prefix))
    return tuple(sorted(found))


@cache
def exists(module: str) -> bool:
    return path_of(module).exists()


@cache
def path_of(module: str) -> Path:
    base = Path(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def tree_hash(path: Path) -> str:
    """Hash of a syntax tree without docstrings; comments and layout are not in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and is_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def is_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        beside = path.with_suffix(".writing")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)


if __name__ == "__main__":
    main()
