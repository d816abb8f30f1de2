"""ROUGE on values worked out by hand, and the baselines beside it."""

from __future__ import annotations

import numpy as np
import pytest

from training.rouge import lead, lead_words, nearest, rouge, rouge_report


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        # 3 of 4 words shared; pairs: "the cat" of 3; longest common subsequence: the cat ran
        ("the cat ran away", "the cat quickly ran", (3 / 4, 1 / 3, 3 / 4)),
        # all 3 words of the answer in a reference of 6: P 1, R 1/2; order kept: the same for L
        ("police kill the gunman in town", "police gunman town", (2 / 3, 0, 2 / 3)),
        # the same words in another order: ROUGE-1 is 1, the subsequence "a b" or "c" at most 2 of 3
        ("a b c", "c a b", (1.0, 1 / 2, 2 / 3)),
        ("same words here", "Same, words; HERE!", (1.0, 1.0, 1.0)),
        ("nothing shared", "at all", (0.0, 0.0, 0.0)),
        ("one", "", (0.0, 0.0, 0.0)),
        ("one one two", "one two two", (2 / 3, 1 / 2, 2 / 3)),
        ("größe über alles", "größe über", (0.8, 2 / 3, 0.8)),
        ("привет мир", "привет", (2 / 3, 0.0, 2 / 3)),
    ],
)
def test_known_values(reference: str, answer: str, expected: tuple[float, float, float]) -> None:
    found = rouge([reference], [answer])
    assert [float(found[kind][0]) for kind in ("rouge1", "rouge2", "rougeL")] == pytest.approx(expected)


def test_a_report_has_means_and_the_lead_over_each_other_system() -> None:
    references = [f"word{i} end" for i in range(40)]
    report = rouge_report(
        references, {"ours": references, "other": ["nothing"] * 40, "half": references[:20] * 2}, "ours"
    )
    assert report["answers"] == 40 and "ours_leads_by" not in report["ours"]
    assert report["ours"] == {"rouge1": 1.0, "rouge2": 1.0, "rougeL": 1.0}
    assert report["other"]["ours_leads_by"] == [1.0, 1.0]
    low, high = report["half"]["ours_leads_by"]
    assert 0 < low < 0.25 < high < 0.5, "half of the answers have one of two words: 0.25 on average"
    assert lead(np.array([])) == (0.0, 0.0)


def test_lead_words_are_as_many_as_answers_have() -> None:
    assert lead_words(["one two three four", "one"], ["a b", "a b c", "a b"]) == ["one two", "one"]


def test_nearest_takes_the_answer_to_the_most_similar_question() -> None:
    known = ["who is at the door", "what time is it", "how is the weather"]
    answers = ["the postman", "noon", "rainy"]
    assert nearest(known, answers, ["is it time", "weather today"]) == ["noon", "rainy"]
    assert nearest(["?!", "..."], answers[:2], ["hello"]) == ["the postman"]
    assert nearest(known, answers, []) == []
