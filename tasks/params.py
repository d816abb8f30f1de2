"""The one loader of params.yaml: typed, frozen, unknown keys refused, errors with a line to look at.

YAML 1.2, so that `1e-4` is a float for us as it is for DVC (PyYAML would read a string).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from data.errors import DaymillError

PARAMS_FILE = Path("params.yaml")


class Params(BaseModel):
    """Base of every stage's params model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, protected_namespaces=())


def whole_from_one(value: float) -> float:
    if value >= 1 and value != int(value):
        raise ValueError("expected a share of the steps below 1, or a whole number of steps")
    return value


Warmup = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="Share of the steps; from 1 on a count of them."),
    AfterValidator(whole_from_one),
]


def tell_cut(stage: str, wanted: float, steps: int) -> None:
    """Say where a run was too short for its warm-up."""
    if wanted > max(1, steps):
        print(
            f"{stage}: the run is short for a warm-up of {wanted:,.0f} steps; {steps:,}, half of it, are taken",
            flush=True,
        )


class ParamsError(DaymillError):
    """params.yaml holds something a stage cannot take (exit code 2)."""


ParamsModel = TypeVar("ParamsModel", bound=BaseModel)


def load(section: str, model: type[ParamsModel], path: Path = PARAMS_FILE) -> ParamsModel:
    """The section of params.yaml as its stage's model. Raises ParamsError naming every wrong key at once."""
    document = read(path)
    values = document.get(section)
    if values is None:
        known = ", ".join(str(key) for key in document)
        raise ParamsError(f"{path}: no section `{section}:`{nearest(section, document)} (sections: {known})")
    if not isinstance(values, Mapping):
        raise ParamsError(f"{path}:{line_of(document, (section,))}: `{section}` is not a mapping of knobs")
    try:
        return model.model_validate(plain(values))
    except ValidationError as error:
        raise ParamsError("\n".join(explain(error, document, section, model, path))) from None


def read(path: Path = PARAMS_FILE) -> Any:
    """params.yaml as ruamel's round-trip mapping, which knows the line of each key."""
    yaml = YAML(typ="rt")
    try:
        document = yaml.load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path} is missing: run from the root of the checkout") from None
    except YAMLError as error:
        raise ParamsError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(document, Mapping):
        raise ParamsError(f"{path}: expected one section a stage, found {type(document).__name__}")
    return document


def explain(error: ValidationError, document: Any, section: str, model: type[BaseModel], path: Path) -> Iterator[str]:
    """One line a problem: where, which key, what it got, what was expected, the nearest key."""
    for problem in error.errors():
        where = (section, *problem["loc"])
        key = ".".join(str(part) for part in where)
        place = f"{path}:{line_of(document, where)}: {key}"
        if problem["type"] == "extra_forbidden":
            names = field_names(model, problem["loc"][:-1])
            yield f"{place}: unknown key{nearest(str(where[-1]), names)} (known: {', '.join(sorted(names))})"
        elif problem["type"] == "missing":
            yield f"{place}: missing"
        else:
            yield f"{place}: got {problem['input']!r}; {problem['msg']}"


def field_names(model: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Keys that are legal at a place inside a params model."""
    current: Any = model
    for part in loc:
        annotation = current.model_fields[part].annotation if part in current.model_fields else None
        options = [annotation, *get_args(annotation)]
        current = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
        if current is None:
            return set()
    return set(current.model_fields)


def nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, [str(key) for key in known], n=1)
    return f", did you mean `{close[0]}`?" if close else ""


def line_of(document: Any, where: tuple[int | str, ...]) -> int:
    """1-based line of the deepest key of `where` that is in the file."""
    line = 1
    node = document
    for part in where:
        try:
            line = node.lc.data[part][0] + 1
            node = node[part]
        except (AttributeError, KeyError, TypeError, IndexError):
            break
    return line


def plain(node: Any) -> Any:
    """ruamel's containers as plain dicts, lists and scalars."""
    if isinstance(node, Mapping):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node
