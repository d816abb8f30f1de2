"""What an index was made with: keys, hashes and fingerprints of another making never compare, so they never mix."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from data.dedup import protect
from data.dedup.config import FindConfig
from data.dedup.minhash import SCHEME
from data.dedup.protect import ProtectConfig
from data.errors import DaymillError

FORMAT, VERSION = "daymill index of seen texts", 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class IndexConfig:
    """How near duplicates are found; an index keeps the one that it was created with. It looks up bands only."""

    find: FindConfig = field(default_factory=FindConfig)
    protect: ProtectConfig = field(default_factory=ProtectConfig)

    def __post_init__(self) -> None:
        if self.find.simhash:
            raise DaymillError("an index finds near duplicates by bands, not by SimHash: set simhash to false for it")


def header_of(config: IndexConfig) -> dict[str, Any]:
    """Everything that stored keys and fingerprints depend on."""
    bands = config.find.bands
    protected = json.dumps([asdict(config.protect), [constants(module) for module in reached(protect)]], sort_keys=True)
    return {
        "format": FORMAT,
        "version": VERSION,
        **{f"signature {name}": value for name, value in SCHEME.items()},
        "bands": bands.count,
        "rows": bands.rows,
        "shingle": config.find.shingle,
        "floor": config.find.floor,
        "max_bucket": config.find.max_bucket,
        "protect": hashlib.blake2b(protected.encode(), digest_size=16).hexdigest(),
    }


def reached(start: ModuleType) -> list[ModuleType]:
    """The product's modules that one uses, itself among them: of the protector's, the constants decide which
    differences are protected, beside the user's own configuration."""
    found: dict[str, ModuleType] = {}
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            names = {getattr(value, "__module__", None) or "" for value in vars(module).values()}
            names |= {value.__name__ for value in vars(module).values() if isinstance(value, ModuleType)}
            waiting += [sys.modules[name] for name in sorted(names) if name.startswith("data.") and name in sys.modules]
    return [found[name] for name in sorted(found)]


def constants(module: ModuleType) -> list[str]:
    """A module's constants in an order that no hash seed changes."""
    return [f"{name} {canonical(value)}" for name, value in sorted(vars(module).items()) if name.isupper()]


def canonical(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"{value.pattern} {value.flags}"
    if isinstance(value, Mapping):
        return str(sorted((canonical(key), canonical(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return str(sorted(map(canonical, value)))
    if isinstance(value, list | tuple):
        return str([canonical(item) for item in value])
    if callable(value):  # its address would be another one each time
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if not {"header", "config", "segments", "following"} <= set(found) or found["header"]["format"] != FORMAT:
            raise ValueError("no manifest of an index")
    except FileNotFoundError:
        raise DaymillError(f"no index at {path}: create one (daymill seen --add)") from None
    except (ValueError, TypeError, KeyError) as error:
        raise DaymillError(f"{path / MANIFEST} is damaged ({error}): create the index anew from the records") from None
    return dict(found)


def config_of(manifest: Mapping[str, Any]) -> IndexConfig:
    made: dict[str, dict[str, Any]] = manifest["config"]
    protect: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in made["protect"].items()
    }
    return IndexConfig(FindConfig(**made["find"]), ProtectConfig(**protect))


def refuse_another(path: Path, manifest: Mapping[str, Any], config: IndexConfig | None) -> None:
    found = manifest["header"]
    if found.get("version") != VERSION:
        raise DaymillError(f"{path} has version {found.get('version')} instead of {VERSION}: create it anew")
    expected = header_of(config or config_of(manifest))
    other = [
        f"{name} {found.get(name)} instead of {value}" for name, value in expected.items() if found.get(name) != value
    ]
    if other:
        raise DaymillError(
            f"{path} was made otherwise ({', '.join(other)}) and does not compare; create it anew from the records, or "
            "use the parameters that it was created with"
        )
