"""The wrapper that all stages share: params, lock, progress, atomic outputs, checked deps, one result line."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from data.errors import DaymillError
from data.parent import end_with_parent
from tasks.code import fresh_fingerprint
from tasks.params import ParamsError, load
from tasks.pipeline_file import stage_file
from tasks.progress import Progress

WORK = Path("artifacts/.work")
METRICS = Path("artifacts/metrics")


@dataclass(frozen=True)
class Result:
    """What a stage says at its end: rows in and out, the key metric of the stage table, and all metrics."""

    rows_in: int
    rows_out: int
    key: str
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass
class Context:
    """What a stage's body may use besides its params."""

    name: str
    root: Path
    work: Path
    outs: tuple[Path, ...]

    @contextmanager
    def out(self, place: str | Path) -> Iterator[Path]:
        """A path beside `place` to write a file or a folder to; renamed to `place` when the block ends well."""
        final = Path(place)
        if not any(final == out or out in final.parents for out in self.outs):
            raise DaymillError(f"stage {self.name} writes {final}, which dvc.yaml does not list among its outs")
        final.parent.mkdir(parents=True, exist_ok=True)
        beside = final.with_name(f".{final.name}.writing")
        remove(beside)
        yield beside
        if not beside.exists():
            raise DaymillError(f"stage {self.name} wrote nothing for {final}")
        remove(final)
        os.rename(beside, final)

    def progress(self, total: int | None, unit: str, label: str = "") -> Progress:
        return Progress(label or self.name, total, unit)


ParamsModel = TypeVar("ParamsModel", bound=BaseModel)


def run(name: str, model: type[ParamsModel], body: Callable[[ParamsModel, Context], Result]) -> None:
    """Run a stage as `python -m tasks.<name>` and exit: 0 done, 1 error, 2 bad parameters."""
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with stage_lock(name):
            execute(name, model, body)
    except ParamsError as error:
        sys.exit(complain(name, error, 2))
    except DaymillError as error:
        sys.exit(complain(name, error, 1))
    except KeyboardInterrupt:
        sys.exit(complain(name, "interrupted; what was finished is kept for the next run", 130))


def execute(name: str, model: type[ParamsModel], body: Callable[[ParamsModel, Context], Result]) -> None:
    params = load(name, model)
    stage = stage_file(name)
    before = {dep: content_hash(dep) for dep in stage.deps}
    code = fresh_fingerprint(f"tasks.{name}")
    key = hashlib.sha256(json.dumps([sorted(map(str, before.items())), params.model_dump_json()]).encode())
    work = WORK / name / key.hexdigest()[:16]
    discard_other_work(work)
    started = time.time()
    mark(name, {"pid": os.getpid(), "started": started, "ended": None})

    result = body(params, Context(name, Path.cwd(), work, stage.outs))

    moved = [str(dep) for dep in stage.deps if content_hash(dep) != before[dep]]
    moved += ["params.yaml"] if load(name, model) != params else []
    moved += moved_modules(code, fresh_fingerprint(f"tasks.{name}"))
    if moved:  # DVC hashes after the command and would record the wrong link (treeverse/dvc#11058)
        raise DaymillError(f"changed while the stage ran: {', '.join(moved)}; the result is not recorded, run again")
    summary = {
        "stage": name,
        "seconds": round(time.time() - started, 3),
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "key": result.key,
        "metrics": result.metrics,
        "peak_mb": round(peak_mb()),
    }
    METRICS.mkdir(parents=True, exist_ok=True)
    write_text(METRICS / f"{name}.json", json.dumps(summary, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(work, ignore_errors=True)
    mark(name, {"pid": os.getpid(), "started": started, "ended": time.time()})
    print(json.dumps(summary), flush=True)


@contextmanager
def stage_lock(name: str) -> Iterator[None]:
    """One writer a stage. flock: the kernel frees it when the process dies, however it dies."""
    path = WORK / name / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise DaymillError(f"already running: {file.read().strip() or 'another process'}") from None
        file.truncate(0)
        file.write(f"since {time.strftime('%Y-%m-%d %H:%M:%S')} by pid {os.getpid()}\n")
        file.flush()
        yield


def moved_modules(before: str, after: str) -> list[str]:
    """Project modules whose code differs between two fingerprints."""
    old, new = json.loads(before)["modules"], json.loads(after)["modules"]
    return sorted(name for name in old | new if old.get(name) != new.get(name))


def content_hash(path: Path) -> str:
    """Hash of a file or of every file below a folder, names included."""
    if not path.exists():
        ours = path.parts[0] in ("artifacts", "expectations")
        remedy = "run `dvc repro`" if ours else "correct its name in params.yaml"
        raise DaymillError(f"input {path} is missing: {remedy}")
    digest = hashlib.blake2b(digest_size=16)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        digest.update(str(file.relative_to(path)).encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def discard_other_work(work: Path) -> None:
    """Keep what a killed run of the same inputs, params and code left; drop what belongs to others."""
    if work.parent.exists():
        for old in work.parent.iterdir():
            if old.is_dir() and old != work:
                shutil.rmtree(old)
    work.mkdir(parents=True, exist_ok=True)


def mark(name: str, values: dict[str, Any]) -> None:
    """A marker outside DVC's outs: that the command really ran, which a flow asks (Cached or not)."""
    write_text(WORK / name / "last_run.json", json.dumps(values) + "\n")


def write_text(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.writing")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def peak_mb() -> float:
    """Peak resident memory of this process and of its largest child, MiB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return max(own, child) / unit


def complain(name: str, error: object, code: int) -> int:
    print(f"error: {name}: {error}", file=sys.stderr, flush=True)
    return code
