"""ROUGE of answers beside baselines (Lin 2004): shared words, word pairs and longest common subsequence, as F1.

The counting is the package rouge-score's; words are runs of letters and digits of any script, lower-cased, since its
own tokenizer drops all that is not ASCII. No stemming.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("rouge1", "rouge2", "rougeL")
WORD = re.compile(r"[^\W_]+")
DRAWS = 1000  # of the bootstrap


class Words:
    """Splits texts into words, as rouge-score asks for it."""

    def tokenize(self, text: str) -> list[str]:
        return WORD.findall(text.lower())


def rouge(references: Sequence[str], answers: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """F1 of each answer by kind; 0 where an answer or its reference has no word, or no pair."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(KINDS, tokenizer=Words())
    scored = [scorer.score(reference, answer) for reference, answer in zip(references, answers, strict=True)]
    return {kind: np.array([scores[kind].fmeasure for scores in scored], dtype=np.float64) for kind in KINDS}


def rouge_report(references: Sequence[str], answers: Mapping[str, Sequence[str]], ours: str) -> dict[str, Any]:
    """Mean F1 by system and kind; for the system `ours` also the 95 % interval of its lead over each other one.

    Intervals are of ROUGE-L, by a paired bootstrap over the answers.
    """
    found = {name: rouge(references, texts) for name, texts in answers.items()}
    report: dict[str, Any] = {"answers": len(references)}
    for name, scores in found.items():
        report[name] = {kind: round(mean(values), 4) for kind, values in scores.items()}
        if name != ours:
            low, high = lead(found[ours]["rougeL"] - scores["rougeL"])
            report[name]["ours_leads_by"] = [round(low, 4), round(high, 4)]
    return report


def lead(differences: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of a mean difference."""
    if not len(differences):
        return 0.0, 0.0
    draws = np.random.default_rng(0).integers(0, len(differences), (DRAWS, len(differences)))
    low, high = np.quantile(differences[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)


def mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def lead_words(prompts: Sequence[str], train_answers: Sequence[str]) -> list[str]:
    """The first words of each prompt, as many as an answer of the train split has in the middle."""
    count = round(median(len(answer.split()) for answer in train_answers))
    return [" ".join(prompt.split()[: max(1, count)]) for prompt in prompts]


def nearest(train_prompts: Sequence[str], train_answers: Sequence[str], prompts: Sequence[str]) -> list[str]:
    """The answer to the most similar prompt of the train split, by TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(token_pattern=WORD.pattern, sublinear_tf=True, dtype=np.float32)
    try:
        known = vectorizer.fit_transform(train_prompts)
    except ValueError:  # scikit-learn's word for texts without any word
        return [train_answers[0]] * len(prompts)
    if not prompts:
        return []
    chosen = np.asarray((vectorizer.transform(prompts) @ known.T).argmax(axis=1)).ravel()
    return [train_answers[int(at)] for at in chosen]
