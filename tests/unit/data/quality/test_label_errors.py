"""Doubtful labels: planted ones are found, sound ones mostly not, and the order of the records plays no part."""

from __future__ import annotations

import random

import pytest

from data.quality.label_errors import SCHEMA, find_label_errors, fold
from data.samples.grammar import note

ROWS = 300


@pytest.fixture(scope="module")
def planted() -> tuple[list[str], list[str | None], list[str], set[str]]:
    rng = random.Random(5)
    truth = [rng.choice(("fraud", "ok")) for _ in range(ROWS)]
    texts = [note(rng, label) for label in truth]
    ids = [f"r{number:03d}" for number in range(ROWS)]
    flipped = set(rng.sample(range(ROWS), ROWS // 10))
    labels: list[str | None] = [
        ("ok" if label == "fraud" else "fraud") if row in flipped else label for row, label in enumerate(truth)
    ]
    return texts, labels, ids, {ids[row] for row in flipped}


def test_planted_errors_are_found(planted: tuple[list[str], list[str | None], list[str], set[str]]) -> None:
    texts, labels, ids, flipped = planted
    found = find_label_errors(texts, labels, ids, seed=0)
    assert found.schema.equals(SCHEMA)
    doubted = set(found["id"].to_pylist())
    assert len(doubted & flipped) >= 0.75 * len(flipped)
    assert len(doubted & flipped) >= 0.75 * len(doubted)
    assert found["rank"].to_pylist() == list(range(1, len(doubted) + 1))
    for row in found.to_pylist():
        assert row["label"] == labels[ids.index(row["id"])] != row["suggested"]
        assert row["p_suggested"] > row["p_given"]
    best = found["id"].to_pylist()[: len(doubted) // 2]
    assert len(set(best) & flipped) >= len(set(doubted - set(best)) & flipped)


def test_the_order_of_the_records_plays_no_part(
    planted: tuple[list[str], list[str | None], list[str], set[str]],
) -> None:
    texts, labels, ids, _ = planted
    rows = list(range(ROWS))
    random.Random(1).shuffle(rows)
    shuffled = find_label_errors([texts[r] for r in rows], [labels[r] for r in rows], [ids[r] for r in rows], seed=0)
    assert shuffled.equals(find_label_errors(texts, labels, ids, seed=0))


def test_what_cannot_be_judged_is_not(planted: tuple[list[str], list[str | None], list[str], set[str]]) -> None:
    texts, labels, ids, _ = planted
    assert find_label_errors([], [], [], 0).num_rows == 0
    assert find_label_errors(texts, [None] * ROWS, ids, 0).num_rows == 0
    assert find_label_errors(texts, ["ok"] * ROWS, ids, 0).num_rows == 0
    some = [None if row % 4 == 0 else "rare" if row < 15 else label for row, label in enumerate(labels)]
    doubted = find_label_errors(texts, some, ids, 0)
    assert not set(doubted["id"].to_pylist()) & {ids[row] for row in range(ROWS) if row % 4 == 0 or row < 15}
    assert "rare" not in doubted["suggested"].to_pylist()
    with pytest.raises(ValueError, match="folds is 1"):
        find_label_errors(texts, labels, ids, 0, folds=1)


def test_copies_share_a_fold() -> None:
    assert fold("One  text\n", 3, 5) == fold("one TEXT", 3, 5)
    assert len({fold(f"text {n}", 3, 5) for n in range(50)}) == 5
    assert [fold(f"text {n}", 3, 5) for n in range(50)] != [fold(f"text {n}", 4, 5) for n in range(50)]
