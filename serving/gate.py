"""The release gate: may the challenger serve instead of the champion?

Both answer the same test rows. The policy, in this order:

REJECT   a floor is broken, or the challenger is worse: the whole interval of the F1 difference is below zero
HOLD     the challenger is the champion; there are too few rows; or the difference is inconclusive: its interval
         reaches below -margin
PROMOTE  floors hold and the challenger is not worse by more than the margin (equal quality is welcome: a newer model
         has seen newer records)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from data.errors import DaymillError
from serving import releases
from serving.engine import Engine
from serving.evaluate import Codes, latency_ms, majority_f1, measure
from serving.manifest import Manifest, open_bundle
from training.metrics import Interval, bootstrap_interval, paired_bootstrap

Decision = Literal["PROMOTE", "HOLD", "REJECT"]


@dataclass(frozen=True)
class Floors:
    """What every model that serves must reach, and how much worse than the champion it may be."""

    min_rows: int = 200  # test rows below which no decision is made
    min_f1: float = 0.5  # lower end of the F1 interval
    min_gain: float = 0.05  # lower end of the F1 interval over always giving the most frequent label
    max_flips: float = 0.005  # share of answers that differ from the trained model's
    max_latency_ms: float | None = None  # median of one text; None: not asked
    margin: float = 0.015  # F1 that the challenger may lose against the champion
    level: float = 0.95  # of the intervals
    draws: int = 2000  # bootstrap resamples
    seed: int = 0


@dataclass(frozen=True)
class Verdict:
    """The decision, its reasons in words, and the figures behind them."""

    decision: Decision
    reasons: tuple[str, ...]
    figures: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"reasons": list(self.reasons)}


def judge(
    challenger: Codes,
    champion: Codes | None,
    truth: Codes,
    floors: Floors,
    positive: int | None = None,
    flip_share: float | None = None,
    latency: float | None = None,
    same_model: bool = False,
) -> Verdict:
    """Judge predictions [N] against labels [N], all as codes; F1 of `positive`, macro F1 where None.

    `flip_share` is the challenger's parity with the model it was exported from, `latency` its milliseconds a text.
    A floor whose figure is None is broken: what was not measured was not proven.
    """
    f1 = bootstrap_interval(truth, challenger, positive, level=floors.level, draws=floors.draws, seed=floors.seed)
    floor = majority_f1(truth, positive)
    figures: dict[str, Any] = {
        "rows": len(truth),
        **named("f1", f1),
        "majority_f1": round(floor, 4),
        "flip_share": flip_share,
        "latency_ms": None if latency is None else round(latency, 3),
    }
    difference: Interval | None = None
    if champion is not None:
        difference = paired_bootstrap(
            truth, challenger, champion, positive, level=floors.level, draws=floors.draws, seed=floors.seed
        )
        theirs = bootstrap_interval(truth, champion, positive, level=floors.level, draws=floors.draws, seed=floors.seed)
        figures |= named("champion_f1", theirs) | named("difference", difference)

    if len(truth) < floors.min_rows:
        return Verdict("HOLD", (f"{len(truth)} test rows; a decision needs {floors.min_rows}",), figures)
    if same_model:
        return Verdict("HOLD", ("the challenger is the champion: the same version",), figures)
    if broken := tuple(broken_floors(f1, floor, flip_share, latency, floors)):
        return Verdict("REJECT", broken, figures)
    held = f"floors hold: F1 {show(f1)}, floor {floors.min_f1:g}, majority {floor:.3f}"
    if difference is None:
        return Verdict("PROMOTE", ("no champion yet", held), figures)
    said = f"F1 differs from the champion's by {show(difference, '+.4f')}"
    if difference.high < 0:
        return Verdict("REJECT", (f"worse than the champion: {said}",), figures)
    if difference.low < -floors.margin:
        return Verdict("HOLD", (f"inconclusive: {said}; a loss beyond {floors.margin:g} is not ruled out",), figures)
    better = "better than the champion" if difference.low > 0 else f"not worse than the champion by {floors.margin:g}"
    return Verdict("PROMOTE", (f"{better}: {said}", held), figures)


def broken_floors(
    f1: Interval, majority: float, flip_share: float | None, latency: float | None, floors: Floors
) -> list[str]:
    """A reason for each absolute floor that does not hold."""
    broken = []
    if f1.low < floors.min_f1:
        broken.append(f"F1 {show(f1)}: its lower end is below the floor {floors.min_f1:g}")
    if f1.low < majority + floors.min_gain:
        broken.append(f"F1 {show(f1)}: its lower end is not {floors.min_gain:g} above the majority's {majority:.3f}")
    if flip_share is None:
        broken.append("parity with the trained model was not measured")
    elif flip_share > floors.max_flips:
        broken.append(
            f"{flip_share:.2%} of the answers differ from the trained model's; at most {floors.max_flips:.2%}"
        )
    if floors.max_latency_ms is not None:
        if latency is None:
            broken.append("latency was not measured")
        elif latency > floors.max_latency_ms:
            broken.append(f"{latency:.2f} ms a text in the median; at most {floors.max_latency_ms:g}")
    return broken


def gate_bundle(
    bundle: Path, root: Path, texts: Sequence[str], labels: Sequence[str], floors: Floors, threads: int | None = None
) -> Verdict:
    """Run challenger and champion, each by its own bundle's engine, on the same rows, one after the other.

    Raises DaymillError for a damaged bundle or rows whose label the challenger does not know.
    """
    challenger = Engine(open_bundle(bundle), threads)
    ours = measure(challenger, texts, labels, floors.seed, floors.draws)
    latency = latency_ms(challenger, texts)
    current = releases.champion(root)
    theirs = None
    if current is not None:
        engine = Engine(open_bundle(current.folder), threads)
        theirs = translate(engine.predict(texts).chosen, engine.manifest.labels, challenger.manifest.labels)
    return judge(
        ours.predicted,
        theirs,
        ours.truth,
        floors,
        ours.positive,
        parity_flips(challenger.manifest),
        latency,
        same_model=current is not None and current.version == challenger.manifest.version,
    )


def translate(codes: Codes, theirs: Sequence[str], ours: Sequence[str]) -> Codes:
    """The champion's codes in the challenger's labels; a label that the challenger lacks gets a code of its own."""
    codes_of = {label: code for code, label in enumerate([*ours, *sorted(set(theirs) - set(ours))])}
    return np.array([codes_of[label] for label in theirs], dtype=np.int64)[codes]


def parity_flips(manifest: Manifest) -> float | None:
    """Share of decisions that differ from the trained model's, as export measured it for this engine and precision."""
    flips = manifest.metrics.get("parity", {}).get("flip_share")
    if flips is not None and not isinstance(flips, int | float):
        raise DaymillError(f"bundle {manifest.version}: parity.flip_share is {flips!r}; expected a number")
    return flips


def named(name: str, interval: Interval) -> dict[str, float]:
    return {
        name: round(interval.value, 4),
        f"{name}_low": round(interval.low, 4),
        f"{name}_high": round(interval.high, 4),
    }


def show(interval: Interval, form: str = ".3f") -> str:
    return f"{interval.value:{form}} ({interval.low:{form}} to {interval.high:{form}})"
