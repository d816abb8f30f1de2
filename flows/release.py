"""After the stages: the gate, the champion, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from data.errors import DaymillError
from flows.settings import BUNDLE, RELEASES, find_root
from tasks.params import PARAMS_FILE, Params, load

TEST = Path("artifacts/split/test")


class Release(Params):
    """The floors of the gate: params.yaml, `release`."""

    min_rows: int = Field(ge=1, description="test rows below which no decision is made")
    min_f1: float = Field(ge=0, le=1, description="lower end of the F1 interval")
    min_gain: float = Field(ge=0, le=1, description="lower end of the F1 interval over always giving one label")
    max_flips: float = Field(ge=0, le=1, description="share of decisions that differ from the trained model's")
    max_latency_ms: float | None = Field(gt=0, description="median milliseconds of one text; null: not asked")
    margin: float = Field(ge=0, le=1, description="F1 that a challenger may lose against the champion")


def release(root: Path, why: str = "a run of the pipeline") -> dict[str, Any]:
    """Put the bundle through the gate; promote it when it passes, log the decision when not.

    Returns verdict ("PROMOTE", "HOLD", "REJECT"), reasons, version, figures, and the champion after it. A bundle that
    is the champion already is not judged again.
    """
    from serving import releases
    from serving.gate import Floors, gate_bundle
    from serving.manifest import read_manifest

    bundle, store = root / BUNDLE, root / RELEASES
    version = read_manifest(bundle).version
    champion = releases.champion(store)
    if champion is not None and champion.version == version:
        return found("HOLD", [f"version {version} is the champion already"], version, version, {})

    floors = Floors(**load("release", Release, root / PARAMS_FILE).model_dump())
    verdict = gate_bundle(bundle, store, *labeled_test_rows(root), floors)
    decision = verdict.to_json()
    if verdict.decision == "PROMOTE":
        releases.promote(store, bundle, why, decision=decision)
    else:
        releases.record(store, version, decision, why)
    champion = releases.champion(store)
    serves = champion.version if champion else None
    return found(verdict.decision, list(verdict.reasons), version, serves, verdict.figures)


def found(
    verdict: str, reasons: list[str], version: str, champion: str | None, figures: dict[str, Any]
) -> dict[str, Any]:
    return {"verdict": verdict, "reasons": reasons, "version": version, "champion": champion, "figures": figures}


def labeled_test_rows(root: Path) -> tuple[list[str], list[str]]:
    """Texts and labels of the test split, rows without a label left out."""
    from data.shards import read_table

    table = read_table(root / TEST, columns=["text", "label"]).drop_null()
    if not len(table):
        raise DaymillError(f"{TEST} has no labeled rows: the gate has nothing to judge by")
    return table["text"].to_pylist(), table["label"].to_pylist()


def champion_or_bundle(root: Path) -> Path:
    """The folder that should answer: the champion's, else the bundle that waits for its release."""
    from serving import releases

    champion = releases.champion(root / RELEASES)
    return champion.folder if champion else root / BUNDLE


def show_promotion(why: str) -> int:
    """`daymill promote`: 0 when the bundle serves afterwards."""
    from flows import terminal

    verdict = release(find_root(), why or "daymill promote")
    terminal.show_verdict(verdict)
    return 0 if verdict["champion"] == verdict["version"] else 1


def show_rollback(to: str, why: str) -> int:
    from serving import releases

    print(releases.rollback(find_root() / RELEASES, to or None, why=why).message)
    return 0
