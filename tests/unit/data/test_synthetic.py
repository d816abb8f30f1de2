"""The made-up corpus: what it says it planted is what is in its files."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from data.dedup.exact import exact_key
from data.errors import DaymillError
from data.quality.measures import measure_batch
from data.quality.rules import QualityConfig, decide, rules_of
from data.samples.synthetic import NOISE_KINDS, TRUTH, make_synthetic

RECORDS = 3000
Corpus = tuple[dict[str, Any], dict[str, dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    out = tmp_path_factory.mktemp("synthetic")
    counts = make_synthetic(out, RECORDS, 0.23, seed=7)
    return counts, truth_of(out), read(out)


def truth_of(out: Path) -> dict[str, dict[str, Any]]:
    told = [json.loads(line) for line in (out / TRUTH).read_text(encoding="utf-8").splitlines()]
    return {entry["id"]: entry for entry in told}


def read(out: Path) -> list[dict[str, Any]]:
    rows = []
    for line in (out / "notes.jsonl").read_bytes().split(b"\n")[:-1]:
        try:
            rows.append(json.loads(line))
        except ValueError:
            rows.append({})
    return rows


def sound(corpus: Corpus) -> dict[str, dict[str, Any]]:
    _, truth, rows = corpus
    return {row["id"]: row for row in rows if row and truth[row["id"]]["noise"] is None}


@pytest.mark.parametrize(("records", "noise"), [(1, 0.0), (1, 1.0), (10, 0.23), (1000, 0.23), (999, 0.5), (40, 1.0)])
def test_the_share_of_noise_is_exact(tmp_path: Path, records: int, noise: float) -> None:
    counts = make_synthetic(tmp_path, records, noise)
    truth = truth_of(tmp_path)
    noisy = round(noise * records)
    assert counts["noisy"] == sum(entry["noise"] is not None for entry in truth.values()) == noisy
    assert counts["records"] == len(truth) == len((tmp_path / "notes.jsonl").read_bytes().split(b"\n")) - 1 == records


def test_every_kind_is_planted_alike_often(corpus: Corpus) -> None:
    counts, truth, _ = corpus
    kinds = Counter(entry["noise"] for entry in truth.values() if entry["noise"])
    assert set(kinds) == set(NOISE_KINDS)
    assert max(kinds.values()) - min(kinds.values()) <= 1
    assert counts["kinds"] == dict(kinds)


def test_the_truth_names_the_line_of_each_record(corpus: Corpus) -> None:
    _, truth, rows = corpus
    for entry in truth.values():
        row = rows[entry["line"] - 1]
        assert row.get("id", entry["id"]) == entry["id"]
        assert bool(row) == (entry["noise"] not in {"truncated", "broken_bytes"})


def test_noise_is_noise_and_the_rest_is_not(corpus: Corpus) -> None:
    _, truth, rows = corpus
    read = list(filter(None, rows))
    first, _ = decide(measure_batch([row.get("text") for row in read]), rules_of(QualityConfig()))
    dropped: dict[str, list[bool]] = defaultdict(list)
    for row, rule in zip(read, first, strict=True):
        dropped[truth[row["id"]]["noise"] or "sound"].append(rule >= 0)
    assert not any(dropped["sound"])
    for kind in (
        "mojibake",
        "empty",
        "symbols",
        "repeated_lines",
        "repeated_words",
        "too_short",
        "missing_text",
        "gibberish",
    ):
        assert all(dropped[kind]), kind
    assert all("text" not in row for row in rows if row and truth[row["id"]]["noise"] == "missing_text")


def test_exact_duplicates_are_equal_and_nothing_else_is(corpus: Corpus) -> None:
    counts, truth, _ = corpus
    clusters = defaultdict(set)
    for row_id, row in sound(corpus).items():
        clusters[exact_key(row["text"])].add(row_id)
    merged = sum(len(cluster) - 1 for cluster in clusters.values())
    assert merged == counts["exact"] > 0
    for row_id, entry in truth.items():
        if entry["duplicate"] == "exact":
            assert any({row_id, entry["duplicate_of"]} <= cluster for cluster in clusters.values())


def test_near_duplicates_share_nearly_all_words_and_siblings_differ_in_numbers(corpus: Corpus) -> None:
    _, truth, _ = corpus
    rows = sound(corpus)
    pairs = Counter()
    for row_id, entry in truth.items():
        partner = entry["duplicate_of"] if entry["duplicate"] == "near" else entry["sibling_of"]
        if partner is None:
            continue
        one, other = rows[row_id]["text"], rows[partner]["text"]
        assert exact_key(one) != exact_key(other)
        if entry["sibling_of"]:
            assert [w for w in one.split() if not any(map(str.isdigit, w))] == [
                w for w in other.split() if not any(map(str.isdigit, w))
            ]
        else:
            shared = set(one.replace(".", "").split()) & set(other.replace(".", "").split())
            assert len(shared) >= 0.8 * len(set(other.replace(".", "").split()))
        assert rows[row_id]["label"] == rows[partner]["label"]
        pairs["sibling" if entry["sibling_of"] else "near"] += 1
    assert pairs["near"] > 50 and pairs["sibling"] > 20


def test_the_bias_is_in_group_b_only_and_in_one_direction(corpus: Corpus) -> None:
    _, truth, _ = corpus
    flips = [(entry["group"], entry["label"]) for entry in truth.values() if entry["label_flipped"]]
    ok_in_b = sum(entry["group"] == "b" and entry["label"] == "ok" for entry in truth.values())
    assert set(flips) == {("b", "ok")}
    assert 0.08 < len(flips) / ok_in_b < 0.25
    for row in sound(corpus).values():
        entry = truth[row["id"]]
        assert (row["label"] != entry["label"]) == entry["label_flipped"]
        assert row["group"] == entry["group"]


def test_an_entity_has_one_group_and_dates_rise(corpus: Corpus) -> None:
    rows = list(sound(corpus).values())
    groups = defaultdict(set)
    for row in rows:
        groups[row["entity"]].add(row["group"])
    assert all(len(found) == 1 for found in groups.values())
    dates = [row["date"] for row in rows]
    assert dates == sorted(dates)
    assert dates[0] >= "2026-01-01" and dates[-1] < "2026-07-01"


def test_the_label_can_be_learned_from_the_words(corpus: Corpus) -> None:
    _, truth, _ = corpus
    rows = [row for row_id, row in sound(corpus).items() if not truth[row_id]["duplicate_of"]]
    half = len(rows) // 2
    counts = {label: Counter() for label in ("ok", "fraud")}
    for row in rows[:half]:
        counts[truth[row["id"]]["label"]].update(set(row["text"].split()))
    odds = {w: math.log((counts["fraud"][w] + 1) / (counts["ok"][w] + 1)) for w in counts["ok"] | counts["fraud"]}
    shift = -sum(sum(odds.get(w, 0) for w in set(row["text"].split())) for row in rows[:half]) / half
    right = [
        (sum(odds.get(w, 0) for w in set(row["text"].split())) + shift > 0) == (truth[row["id"]]["label"] == "fraud")
        for row in rows[half:]
    ]
    assert sum(right) / len(right) > 0.9


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_synthetic(tmp_path / name, 200, 0.23, seed=seed)
    files = {name: [path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in "abc"}
    assert files["a"] == files["b"]
    assert all(one != other for one, other in zip(files["a"], files["c"], strict=True))


def test_a_share_can_be_csv(tmp_path: Path) -> None:
    make_synthetic(tmp_path, 400, 0.23, csv_share=0.5)
    truth = truth_of(tmp_path)
    with (tmp_path / "notes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert 100 < len(rows) == sum(entry["file"] == "notes.csv" for entry in truth.values()) < 250
    assert len(rows) + len(read(tmp_path)) == 400
    assert all(truth[row["id"]]["noise"] is None and row["text"] for row in rows)


def test_the_truth_is_no_input(tmp_path: Path) -> None:
    make_synthetic(tmp_path, 20, 0.2)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] not in "_.") == ["notes.jsonl"]


@pytest.mark.parametrize(
    ("records", "noise", "message"), [(0, 0.1, "records is 0"), (10, 1.5, "noise is 1.5"), (10, -0.1, "noise is -0.1")]
)
def test_numbers_that_cannot_be_met_are_refused(tmp_path: Path, records: int, noise: float, message: str) -> None:
    with pytest.raises(DaymillError, match=message):
        make_synthetic(tmp_path / "out", records, noise)
    assert not (tmp_path / "out").exists()
