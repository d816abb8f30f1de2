"""The two baselines that every model stands beside: the majority label, and TF-IDF with logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from training.metrics import best_threshold


@dataclass(frozen=True)
class Baseline:
    """Predicted label codes of the validation and test rows, and what was tuned."""

    valid: NDArray[np.int64]
    test: NDArray[np.int64]
    what: str
    threshold: float | None = None


def majority(train: NDArray[np.int64], valid_rows: int, test_rows: int) -> Baseline:
    """Always the most frequent label of the train rows."""
    label = int(np.bincount(train).argmax())
    return Baseline(np.full(valid_rows, label), np.full(test_rows, label), "the most frequent label")


def tfidf(
    train_texts: Sequence[str],
    train_labels: NDArray[np.int64],
    valid_texts: Sequence[str],
    valid_labels: NDArray[np.int64],
    test_texts: Sequence[str],
    positive: int | None,
    max_chars: int = 20_000,
    max_features: int = 200_000,
) -> Baseline:
    """Words and word pairs, TF-IDF, logistic regression; for two labels the threshold maximizes F1 on validation."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    rare = 2 if len(train_texts) >= 100 else 1
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), min_df=rare, sublinear_tf=True, max_features=max_features, dtype=np.float32
    )
    try:
        x_train = vectorizer.fit_transform([text[:max_chars] for text in train_texts])
    except ValueError:  # scikit-learn's word for texts without any word
        return replace(majority(train_labels, len(valid_texts), len(test_texts)), what="no words in the train texts")
    x_valid, x_test = (vectorizer.transform([t[:max_chars] for t in texts]) for texts in (valid_texts, test_texts))
    model = LogisticRegression(C=30.0, max_iter=300).fit(x_train, train_labels)
    what = f"words and pairs, {x_train.shape[1]:,} features, logistic regression"
    if positive is None or len(model.classes_) != 2:
        return Baseline(model.predict(x_valid), model.predict(x_test), what)
    column = list(model.classes_).index(positive)
    valid_scores, test_scores = (model.predict_proba(x)[:, column] for x in (x_valid, x_test))
    threshold = best_threshold(valid_labels == positive, valid_scores)
    negative = int(model.classes_[1 - column])
    valid, test = (np.where(s >= threshold, positive, negative) for s in (valid_scores, test_scores))
    return Baseline(valid, test, what, threshold)
