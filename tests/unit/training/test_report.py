"""The report of a classifier, the baselines beside it, the labels and the threshold."""

import numpy as np
import pytest
import torch

from data.batching import IGNORE
from data.errors import DaymillError
from training.baselines import majority, tfidf
from training.config import ModelConfig
from training.finetune import Labelled, calibrate, classifier_from, positive_label
from training.model import Transformer
from training.report import MOST_SLICES, part_report, slice_report
from training.rows import Rows


def rows(labels: list[int], names: list[str] | None = None) -> Rows:
    n = len(labels)
    tokens = [np.array([3, 4], dtype=np.int32)] * n
    return Rows([str(i) for i in range(n)], tokens, np.array(labels), names or ["ham", "spam"], [None] * n, ["f"] * n)


def test_a_part_stands_beside_its_baselines() -> None:
    truth = np.array([0, 1] * 50)
    ours, words = truth.copy(), truth.copy()
    ours[:4], words[:20] = 1, 1
    report = part_report(truth, ours, 1, {"tfidf": words, "majority": np.zeros(100, dtype=int)})
    assert report["rows"] == 100
    assert report["f1_low"] <= report["f1"] <= report["f1_high"]
    assert report["f1"] == pytest.approx(100 / 102, abs=1e-5)
    assert report["majority_f1"] == 0
    assert report["paired_diff"] == pytest.approx(report["f1"] - report["tfidf_f1"], abs=1e-5)
    assert 0 < report["paired_low"] < report["paired_diff"] < report["paired_high"]


def test_slices_say_nothing_where_there_is_nothing_to_say() -> None:
    truth, predicted = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 1, 1, 0])
    report = slice_report(["a", "a", "b", "b", None], truth, predicted, 1)
    assert list(report) == ["a", "b"]
    assert report["a"]["f1"] is None and report["a"]["accuracy"] == 0.5
    assert report["b"]["f1"] == 1.0 and report["b"]["rows"] == 2


def test_many_slices_are_cut_to_the_largest() -> None:
    keys = [f"s{i}" for i in range(200)] + ["big"] * 5
    codes = np.zeros(len(keys), dtype=int)
    report = slice_report(keys, codes, codes, None)
    assert len(report) == MOST_SLICES and "big" in report
    assert slice_report([None, None], codes[:2], codes[:2], None) == {}


def test_majority_answers_the_most_frequent_label() -> None:
    baseline = majority(np.array([2, 2, 0]), 2, 3)
    assert baseline.valid.tolist() == [2, 2] and baseline.test.tolist() == [2, 2, 2]


def test_words_learn_and_their_threshold_is_tuned() -> None:
    texts = ["buy cheap pills now", "meeting at noon today", "cheap pills offer", "notes of the meeting"] * 5
    labels = np.array([1, 0, 1, 0] * 5)
    found = tfidf(texts, labels, texts[:4], labels[:4], ["pills cheap", "the meeting notes"], positive=1)
    assert found.test.tolist() == [1, 0]
    assert found.threshold is not None and 0 < found.threshold < 1


def test_texts_without_words_leave_the_majority() -> None:
    found = tfidf(["!", "?", "."], np.array([1, 1, 0]), ["!"], np.array([1]), ["?", "!"], positive=1)
    assert found.test.tolist() == [1, 1] and found.what == "no words in the train texts"


def test_words_with_three_labels() -> None:
    texts = ["red red", "green green", "blue blue"] * 4
    found = tfidf(texts, np.array([0, 1, 2] * 4), texts[:3], np.arange(3), ["blue", "red"], positive=None)
    assert found.test.tolist() == [2, 0] and found.threshold is None


def test_the_positive_label_is_the_wanted_or_the_rarer_one() -> None:
    data = rows([0, 0, 0, 1])
    assert positive_label(data, None) == "spam"
    assert positive_label(data, "ham") == "ham"
    assert positive_label(rows([0, 1, 1]), None) == "ham"
    assert positive_label(rows([0, 1, 2], ["a", "b", "c"]), None) is None
    with pytest.raises(DaymillError, match=r"'scam'.*\['ham', 'spam'\]"):
        positive_label(data, "scam")


def test_the_threshold_comes_from_validation() -> None:
    logits = np.log(np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]], dtype=np.float32))
    assert calibrate(logits, rows([0, 0, 1, 1]), "spam") == pytest.approx(0.3, abs=1e-3)
    assert calibrate(logits, rows([0, 0, 1, 1]), None) == 0.5


def test_a_classifier_takes_the_weights_and_its_own_settings() -> None:
    backbone = Transformer(ModelConfig.from_depth(1, 20, max_len=8))
    model = classifier_from(backbone, 3, dropout=0.2, causal=False, seed=1)
    assert torch.equal(model.backbone.embed.weight, backbone.embed.weight)
    assert (model.backbone.config.dropout, model.backbone.config.causal) == (0.2, False)
    again = classifier_from(backbone, 3, dropout=0.2, causal=False, seed=1)
    assert torch.equal(model.head.weight, again.head.weight)


def test_parts_without_labels_are_named() -> None:
    full, none = rows([0, 1]), rows([IGNORE, IGNORE]).labelled()
    Labelled(full, full, full).check()
    with pytest.raises(DaymillError, match="the valid split has no labelled rows"):
        Labelled(full, none, full).check()
    with pytest.raises(DaymillError, match="expected at least two"):
        Labelled(rows([0], ["ham"]), full, full).check()
