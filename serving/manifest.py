"""What a bundle says of itself, and the check that its files are the ones it speaks of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data.errors import DaymillError

FORMAT = 1
MANIFEST = "manifest.json"
MODEL, TOKENIZER, GOLDENS, CARD = "model.onnx", "tokenizer.json", "goldens.json", "card.md"
REQUIRED = (MODEL, TOKENIZER, GOLDENS, CARD)

# Largest difference of a logit between the build machine and this one, by precision. fp32 differs by the order of
# sums; INT8 by roundings that flip where another kernel computes the layers between; bf16 keeps 8 bits of mantissa.
TOLERANCE = {"fp32": 1e-3, "int8": 0.1, "bf16": 0.1, "int8+bf16": 0.15}


class BundleError(DaymillError):
    """A folder is not a bundle that can be trusted."""


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class File(Strict):
    sha256: str
    bytes: int


class Runtime(Strict):
    """The engine's package and the versions whose answers we trust: what it was built with, up to the next major."""

    package: Literal["onnxruntime", "openvino"]
    built_with: str
    minimum: str
    below: str

    @property
    def range(self) -> str:
        return f">={self.minimum},<{self.below}"

    def accepts(self, version: str) -> bool:
        return numbers(self.minimum) <= numbers(version) < numbers(self.below)

    @staticmethod
    def of(package: str) -> Runtime:
        """The range that starts at the installed version. Raises BundleError where it is not installed."""
        found = installed_runtime(package)
        if found is None:
            raise BundleError(f"the benchmark chose {package}, which is not installed; install it or choose another")
        major, minor, *_ = numbers(found)
        return Runtime.model_validate(
            {"package": package, "built_with": found, "minimum": f"{major}.{minor}", "below": f"{major + 1}"}
        )


class Preprocess(Strict):
    """How a text is cut before the model sees it: the same numbers as in training."""

    max_len: int = Field(ge=1)  # tokens
    max_chars: int = Field(ge=1)  # characters
    tail: float = Field(default=0.0, ge=0, le=1)  # share of both that comes from the end of a longer text


class Manifest(Strict):
    """manifest.json. `version` names what answers; `digest` covers all of the manifest but the time of its making."""

    format: int
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str
    digest: str
    created: str
    files: dict[str, File]
    opset: dict[str, int]
    ir_version: int
    runtime: Runtime
    precision: Literal["fp32", "int8", "bf16", "int8+bf16"]
    reduced_range: bool = False
    cpu_features: tuple[str, ...]
    labels: tuple[str, ...] = Field(min_length=2)
    positive: str | None
    threshold: float = Field(ge=0, le=1)
    preprocess: Preprocess
    tolerance: float = Field(gt=0)
    lineage: dict[str, Any]
    metrics: dict[str, Any]

    @model_validator(mode="after")
    def check(self) -> Manifest:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"labels {self.labels} repeat")
        if self.positive is not None and self.positive not in self.labels:
            raise ValueError(f"positive label {self.positive!r} is not among {self.labels}")
        if missing := [name for name in REQUIRED if name not in self.files]:
            raise ValueError(f"no {', '.join(missing)} among the files")
        return self

    @property
    def int8(self) -> bool:
        return self.precision.startswith("int8")

    @property
    def binary(self) -> bool:
        """True where one label of two is the one asked about, so that a threshold decides."""
        return self.positive is not None and len(self.labels) == 2


@dataclass(frozen=True)
class Bundle:
    """A folder whose files were checked against its manifest."""

    folder: Path
    manifest: Manifest

    @property
    def model(self) -> Path:
        return self.folder / MODEL


def open_bundle(folder: Path) -> Bundle:
    """The bundle in `folder`, every file hashed. Raises BundleError naming the file that is missing or differs."""
    manifest = read_manifest(folder)
    for name, expected in manifest.files.items():
        path = folder / name
        if Path(name).name != name:
            raise BundleError(f"{folder / MANIFEST}: file name {name!r} leaves the bundle")
        if not path.is_file():
            raise BundleError(f"bundle {folder}: {name} is missing")
        found = file_entry(path)
        if found != expected:
            raise BundleError(
                f"bundle {folder}: {name} is not the file of the manifest (sha256 {found.sha256[:12]}, "
                f"{found.bytes} bytes; expected {expected.sha256[:12]}, {expected.bytes} bytes); build or copy it again"
            )
    return Bundle(folder, manifest)


def read_manifest(folder: Path) -> Manifest:
    """manifest.json, checked against its own digest and version, without a look at the other files."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"no bundle at {folder}: {MANIFEST} is missing") from None
    except ValueError as error:
        raise BundleError(f"{path}: not JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise BundleError(f"{path}: bundle format {found!r}; this Daymill reads format {FORMAT}")
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise BundleError(f"{path}: {problems}") from None
    if (manifest.version, manifest.digest) != (version_of(data), digest_of(data)):
        raise BundleError(f"{path}: was edited after the bundle was built; build it again")
    return manifest


def seal(body: dict[str, Any]) -> dict[str, Any]:
    """A manifest's body with its version and digest."""
    return {"format": FORMAT, "version": version_of(body), "digest": digest_of({"format": FORMAT, **body}), **body}


def version_of(data: dict[str, Any]) -> str:
    """Hash of everything that decides an answer, 12 hex digits: the same model built again has the same version."""
    decisive = ("name", "precision", "reduced_range", "labels", "positive", "threshold", "preprocess")
    files = {name: entry for name, entry in data["files"].items() if name not in (GOLDENS, CARD)}
    parts = {key: data.get(key) for key in decisive} | {"files": files, "engine": data["runtime"]["package"]}
    return _hash(parts)[:12]


def digest_of(data: dict[str, Any]) -> str:
    return _hash({key: value for key, value in data.items() if key not in ("version", "digest", "created")})


def file_entry(path: Path) -> File:
    """Size and SHA-256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return File(sha256=digest, bytes=path.stat().st_size)


def installed_runtime(package: str) -> str | None:
    """Version of an installed runtime, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2026.4.0-22959" is (2026, 4, 0)."""
    parts = []
    for part in version.split("-")[0].split("+")[0].split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def _hash(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
