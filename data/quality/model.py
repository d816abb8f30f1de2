"""A learned judge of text quality: how probable it is that a text is a good one, by examples of good and bad.

It looks at the measures and at how familiar the text's characters and words are from the good examples, which is what
catches noise of a kind that no example has; and, where people gave the examples, at the characters and words themselves
(hashed runs of 1 to 4 characters, 1 and 2 words). A logistic regression weighs them, and an isotonic regression over
held-out folds makes its answer a probability under the mix of the examples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.errors import DaymillError
from data.quality.bins import Bins
from data.quality.calibration import Calibration, noise_among, validation_of
from data.quality.grams import BITS, FAMILIARITY, Batch, batch_of, document_counts, looks, rows
from data.quality.measures import MEASURES, measure_batch
from data.text import normalize

VERSION = 1  # of the files, the items' numbers and the measures' meaning
FOLDS = 5
JUDGED_FROM = 5  # words; a third of sound diagnoses of two words would be refused: too little to tell by
LEAST_EXAMPLES = 20  # good, and bad
LEAST_BELIEVED = 500  # good ones that are only believed to be so: fewer cannot tell what is rare from what is noise
LEAST_OF_LANGUAGE = 100  # good examples; texts of a language with fewer are not judged
BATCH = 1_000  # texts
# Good examples that were only not refused by rules hold noise of unknown kinds. They are learned from with a strong
# penalty, without the words themselves, and those that the rest disown are set aside, twice. benchmarks/noise.py tells
# how much noise that leaves.
ROUNDS, DISOWNED = 2, 0.5
# Inverse of the regression's penalty; the weak one is for all examples together, so that more do not loosen it.
WEAK_STRENGTH, STRENGTH = 20.0, 1.0
# Lengths say little of quality and much of where examples came from; languages are a rule's matter.
LEFT_OUT = ("chars", "lines", "sentences", "words", "language", "word_entropy")
NUMERIC = [name for name in MEASURES.names if name not in LEFT_OUT]


@dataclass(frozen=True)
class QualityModel:
    """Scores texts; made by train_quality, kept as arrays and JSON, without pickle.

    It has a part for each fold of the examples, and a text is judged by the part that did not learn from its fold: so a
    noisy text among the good examples does not vouch for itself.
    """

    bins: Bins
    shares: NDArray[np.float32]  # [folds, items]: log share of the good texts that have an item
    weights: NDArray[np.float32]  # [folds, items]
    offsets: NDArray[np.float32]  # [folds, bins]
    intercepts: NDArray[np.float64]  # [folds]
    seed: int
    calibration: Calibration
    validation: dict[str, Any]

    def score(self, texts: Sequence[str], measures: pa.Table | None = None) -> NDArray[np.float32]:
        """Probability of each text to be a good one, float32; NaN for a text of fewer than five words.

        `measures` (of measure_batch) saves measuring again.
        """
        margins = np.zeros(len(texts), np.float32)
        words = np.zeros(len(texts), np.int64)
        for start in range(0, len(texts), BATCH):
            some = texts[start : start + BATCH]
            measured = measure_batch(some) if measures is None else measures.slice(start, BATCH)
            known, words[start : start + BATCH] = numeric(measured), measured["words"].to_numpy()
            fold = np.array([fold_of(text, self.seed) for text in some])
            for part in range(FOLDS):
                at = np.flatnonzero(fold == part)
                looked = looks(batch_of([some[one] for one in at.tolist()]), self.shares[part], self.weights[part])
                binned = self.bins.add_up(np.hstack([known[at], looked[:, :-1]]), self.offsets[part])
                margins[start + at] = binned + looked[:, -1] + np.float32(self.intercepts[part])
        return np.where(words < JUDGED_FROM, np.nan, self.calibration.probability(margins)).astype(np.float32)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self, name) for name in ("shares", "weights", "offsets", "intercepts")}
        with (folder / "model.npz").open("wb") as file:
            np.savez_compressed(file, **arrays, edges=self.bins.edges, calibration=self.calibration.points)
        told = {"version": VERSION, "measures": NUMERIC, "familiarity": list(FAMILIARITY), "bits": BITS}
        told |= {"seed": self.seed, "validation": self.validation}
        (folder / "model.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> QualityModel:
        """Raises DaymillError where the folder holds no model, or one that other code made."""
        try:
            told = json.loads((folder / "model.json").read_text(encoding="utf-8"))
            with np.load(folder / "model.npz", allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError) as error:
            raise DaymillError(
                f"{folder}: holds no quality model ({type(error).__name__}); run the stage again"
            ) from None
        expected = {"version": VERSION, "measures": NUMERIC, "familiarity": list(FAMILIARITY), "bits": BITS}
        other = [name for name, value in expected.items() if told.get(name) != value]
        if other:
            raise DaymillError(f"{folder}: its {', '.join(other)} are another version's; train the quality model again")
        return QualityModel(
            Bins(arrays["edges"]),
            arrays["shares"],
            arrays["weights"],
            arrays["offsets"],
            arrays["intercepts"],
            told["seed"],
            Calibration(arrays["calibration"]),
            told["validation"],
        )


def train_quality(
    good: Sequence[str], bad: Sequence[str], seed: int, parents: Sequence[int] | None = None
) -> QualityModel:
    """Learn from texts that are good and texts that are bad.

    With `parents` (of weak_examples) the good ones are only believed to be so: parents[i] is the place of the good text
    that bad[i] was made of, or -1, and a copy is judged together with it. Without, people chose the examples and all
    count. Same examples and seed give the same model. Raises DaymillError for too few examples.
    """
    if min(len(good), len(bad)) < LEAST_EXAMPLES:
        raise DaymillError(
            f"the quality model has {len(good):,} good and {len(bad):,} bad examples; "
            f"it needs {LEAST_EXAMPLES} of each to learn from"
        )
    texts, truth = [*good, *bad], np.repeat([1, 0], [len(good), len(bad)])
    fold = folds_of(good, bad, parents, seed)
    measured, believed = numeric(measure_batch(texts)), np.ones(len(texts), np.bool_)
    itemed = as_matrix(batch_of(texts)) if parents is None else None
    for last in [False] * ROUNDS * (parents is not None) + [True]:
        shares = familiar_shares(good, fold, believed)
        numbers = np.hstack([measured, familiarity(texts, fold, shares)])
        bins = Bins.of(numbers[believed])
        parts, margins = fit_folds(bins.one_hot(numbers), itemed, truth, fold, believed)
        if not last:
            believed[: len(good)] = margins[: len(good)] >= np.log(DISOWNED / (1 - DISOWNED))
            if believed[: len(good)].sum() < LEAST_EXAMPLES:
                raise DaymillError(
                    "the quality model cannot tell the good examples from noise; give it marked examples"
                )
    weights, offsets, intercepts = (np.stack(arrays) for arrays in zip(*parts))
    noise = 0.0 if parents is None else noise_among(margins, truth)
    calibration = Calibration.of(margins, truth, noise)
    validation = validation_of(margins, truth, fold, noise) | {"set_aside": int((~believed).sum())}
    return QualityModel(bins, np.stack(shares), weights, offsets, intercepts, seed, calibration, validation)


def familiar_shares(good: Sequence[str], fold: NDArray[Any], believed: NDArray[Any]) -> list[NDArray[np.float32]]:
    """For each fold the log share of the believed good texts of the other folds that have an item."""
    own = fold[: len(good)]
    inside = [np.flatnonzero((own == part) & believed[: len(good)]) for part in range(FOLDS)]
    counts = [document_counts(batch_of([good[at] for at in rows_.tolist()])) for rows_ in inside]
    total, texts = sum(counts), sum(map(len, inside))
    return [log_shares(total - count, texts - len(rows_)) for count, rows_ in zip(counts, inside)]


def familiarity(texts: Sequence[str], fold: NDArray[Any], shares: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """FAMILIARITY of each text, by the good texts of the other folds."""
    found, nothing = np.zeros((len(texts), len(FAMILIARITY)), np.float32), np.zeros(1 << BITS, np.float32)
    for part in range(FOLDS):
        at = np.flatnonzero(fold == part)
        found[at] = looks(batch_of([texts[one] for one in at.tolist()]), shares[part], nothing)[:, :-1]
    return found


def fit_folds(
    placed: Any, itemed: Any | None, truth: NDArray[Any], fold: NDArray[Any], believed: NDArray[Any]
) -> tuple[list[tuple[NDArray[np.float32], NDArray[np.float32], float]], NDArray[np.float64]]:
    """For each fold the weights of items and bins and the intercept, learned from the others; and all texts' margins,
    each by the part that did not learn from it."""
    from scipy.sparse import hstack
    from sklearn.linear_model import LogisticRegression

    known = placed if itemed is None else hstack([placed, itemed], format="csr")
    margins, parts = np.zeros(len(truth)), []
    for part in range(FOLDS):
        inside, outside = np.flatnonzero((fold != part) & believed), np.flatnonzero(fold == part)
        model = LogisticRegression(
            C=WEAK_STRENGTH / len(inside) if itemed is None else STRENGTH, max_iter=300, tol=1e-3
        )
        model.fit(known[inside], truth[inside])
        if len(outside):
            margins[outside] = model.decision_function(known[outside])
        learned = model.coef_[0].astype(np.float32)
        weights = learned[placed.shape[1] :] if itemed is not None else np.zeros(1 << BITS, np.float32)
        parts.append((weights, learned[: placed.shape[1]], float(model.intercept_[0])))
    return parts, margins


def log_shares(counts: Any, texts: int) -> NDArray[np.float32]:
    return np.log2((counts + 0.5) / (texts + 1)).astype(np.float32)


def numeric(measures: pa.Table) -> NDArray[np.float32]:
    """The measures that the model looks at, [texts, NUMERIC]; null is NaN."""
    columns = [measures.column(name).combine_chunks().cast(pa.float32()) for name in NUMERIC]
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns]).astype(np.float32)


def as_matrix(batch: Batch) -> Any:
    from scipy.sparse import csr_matrix

    ends, numbers, values = rows(batch)
    return csr_matrix((values, numbers, ends), shape=(len(batch.offsets) - 1, 1 << BITS))


def folds_of(good: Sequence[str], bad: Sequence[str], parents: Sequence[int] | None, seed: int) -> NDArray[np.int64]:
    """A fold for each text by its content; a spoiled copy falls where the text falls that it was made of."""
    made = parents if parents is not None else [-1] * len(bad)
    own = [fold_of(text, seed) for text in good]
    return np.array(own + [own[parent] if parent >= 0 else fold_of(text, seed) for text, parent in zip(bad, made)])


def fold_of(text: str, seed: int) -> int:
    digest = hashlib.blake2b(normalize(text).encode("utf-8", "surrogatepass"), digest_size=8, salt=seed.to_bytes(8))
    return int.from_bytes(digest.digest()) % FOLDS
