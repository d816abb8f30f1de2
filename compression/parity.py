"""Does an exported graph answer as the torch model it came from? Logits, decisions and F1 on real rows.

Decisions alone are not enough: on an easy task a badly rounded model still decides well. So the logits are compared
too, and rows alone with rows in company: an answer must not depend on its neighbors or its padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.sessions import Ids, Logits
from data.batching import IGNORE, budget_batches
from data.errors import DaymillError
from data.tokens import pad
from training.checkpoint import Card
from training.decision import decide
from training.metrics import confusion, headline
from training.rows import Rows

Run = Callable[[Ids, Ids], Logits]  # ids, mask [N, T] -> logits [N, C]


class ParityError(DaymillError):
    """An exported graph does not answer as its model does."""


@dataclass(frozen=True)
class Bars:
    """What an engine may differ by. Mean differences are relative to the spread of the model's own logits."""

    fp32_max_diff: float = 1e-4  # any logit of any row
    fp32_flips: int = 0
    flip_share: float = 0.005  # reduced precision: share of rows that are decided otherwise
    mean_diff: float = 0.005  # reduced precision: mean |logit difference| over the spread (std) of the logits
    isolation_int8: float = 1e-6  # any logit of a row alone, beside other rows, or padded
    isolation_fp32: float = 1e-5  # last bits of a logit of 10: the order of sums
    isolation_bf16: float = 0.05  # bf16 keeps 8 bits of a number, so the order of sums shows


@dataclass(frozen=True)
class Parity:
    """How far an engine's answers are from its model's, and whether it may serve."""

    graph: str
    precision: str
    rows: int
    max_diff: float
    mean_diff: float  # mean |logit difference|
    relative_diff: float  # the same over the spread of the model's logits
    flips: int
    flip_share: float
    f1: float
    isolation: float
    reasons: tuple[str, ...] = field(default=())  # why not

    @property
    def passed(self) -> bool:
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        values = {key: _finite(value) for key, value in asdict(self).items() if key != "reasons"}
        return values | {"passed": self.passed, "reason": "; ".join(self.reasons) or "within all bars"}


def predict(run: Run, rows: Sequence[NDArray[np.integer]], max_tokens: int = 2048) -> Logits:
    """Logits [N, C] in the order of `rows`, computed in batches of similar length."""
    batches = budget_batches([len(row) for row in rows], max_tokens)
    logits = np.concatenate([run(*pad([rows[at] for at in batch])) for batch in batches])
    ordered = np.empty_like(logits)
    ordered[np.concatenate(batches)] = logits
    return ordered


def compare(
    run: Run, reference: Logits, rows: Rows, card: Card, *, graph: str, precision: str, bars: Bars, isolated: int = 32
) -> Parity:
    """Judge an engine by its model's logits `reference` [N, C] on all rows; `isolated` of them also one by one."""
    logits = predict(run, rows.tokens)
    difference = np.abs(logits.astype(np.float64) - reference)
    difference[~np.isfinite(logits)] = np.inf
    ours, theirs = (decide(x, card.labels, card.positive, card.threshold) for x in (np.nan_to_num(logits), reference))
    spread = float(np.std(reference.astype(np.float64), axis=0).mean())
    mean = float(difference.mean())
    step = max(1, len(rows) // isolated)
    found = Parity(
        graph=graph,
        precision=precision,
        rows=len(rows),
        max_diff=float(difference.max()),
        mean_diff=mean,
        relative_diff=mean / max(spread, 1e-12),
        flips=int((ours != theirs).sum()),
        flip_share=float((ours != theirs).mean()),
        f1=f1_of(ours, rows, card),
        isolation=isolation(run, rows.tokens[::step][:isolated], card.model.max_len),
    )
    return judge(found, bars)


def judge(measured: Parity, bars: Bars) -> Parity:
    """The same with its reasons: every bar that it misses, with the figure and the bar."""
    reasons = []
    if measured.precision == "fp32":
        if not measured.max_diff <= bars.fp32_max_diff:
            reasons.append(f"largest logit difference {measured.max_diff:.2g}, bar {bars.fp32_max_diff:g}")
        if measured.flips > bars.fp32_flips:
            reasons.append(f"{measured.flips} decisions flipped, bar {bars.fp32_flips}")
    else:
        if not measured.relative_diff <= bars.mean_diff:
            reasons.append(
                f"mean logit difference {measured.relative_diff:.2%} of the logits' spread, bar {bars.mean_diff:.2%}"
            )
        if measured.flip_share > bars.flip_share:
            reasons.append(f"{measured.flip_share:.2%} of decisions flipped, bar {bars.flip_share:.2%}")
    isolation_bars = {"fp32": bars.isolation_fp32, "bf16": bars.isolation_bf16}
    bar = isolation_bars.get(measured.precision, bars.isolation_int8)
    if not measured.isolation <= bar:
        reasons.append(f"neighbors or padding move a logit by {measured.isolation:.2g}, bar {bar:g}")
    return Parity(**{**measured.__dict__, "reasons": tuple(reasons)})


def isolation(run: Run, rows: Sequence[NDArray[np.integer]], max_len: int) -> float:
    """Largest change of a logit when a row gets strange neighbors, or is padded to twice its length.

    Dynamic quantization fails here: one caller's outlier sets the range of all (onnxruntime#10111).
    """
    worst = 0.0
    for row in rows:
        row = row[: max(1, max_len // 2)]
        alone = run(*pad([row]))
        strangers = [np.full_like(row, row.max()), row[::-1], np.zeros(len(row) + 1, dtype=row.dtype)]
        beside = run(*pad([*strangers[:2], row]))[2:]
        padded = [np.pad(array, ((0, 0), (0, len(row)))) for array in pad([row])]
        in_company = run(*pad([strangers[2], row]))[1:]
        for other in (beside, run(*padded), in_company):
            worst = max(worst, float(np.abs(other.astype(np.float64) - alone).max()))
    return worst


def f1_of(chosen: NDArray[np.int64], rows: Rows, card: Card) -> float:
    """The headline F1 on the rows that have a label."""
    labelled = rows.labels != IGNORE
    positive = card.labels.index(card.positive) if card.positive is not None else None
    return float(headline(confusion(rows.labels[labelled], chosen[labelled], len(card.labels)), positive))


def _finite(value: Any) -> Any:
    """None for what was not measured: JSON has no infinity."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
