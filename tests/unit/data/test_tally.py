"""Counts of ledgers: every record once, what does not add up is said, and the same examples each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.ledger import VERDICTS, Ledger
from data.tally import Expected, Tally, level_of, tally


def write(path: Path, decisions: list[tuple[str, str, str]], stage: str = "clean") -> Path:
    with Ledger(path) as book:
        for number, (verdict, rule, source) in enumerate(decisions):
            book.add(source=source, verdict=verdict, stage=stage, rule=rule, id=f"r{number:03d}", line=number + 1)
    return path


def small(tmp_path: Path) -> Path:
    return write(
        tmp_path / "ledger.parquet",
        [("kept", "", "d/a.jsonl")] * 5
        + [("dropped", "min_words", "d/a.jsonl")] * 10
        + [("dropped", "near_duplicate", "d/b.jsonl")] * 2
        + [("repaired", "label_tie", "d/b.jsonl")],
    )


def test_counts_by_rule_and_source_with_their_levels(tmp_path: Path) -> None:
    found = tally([Expected("clean", small(tmp_path), 18, 6)])
    assert [(c.level, c.rule, c.verdict, c.source, c.records) for c in found.counts] == [
        ("clean", "", "kept", "d/a.jsonl", 5),
        ("redundancy", "label_tie", "repaired", "d/b.jsonl", 1),
        ("quality", "min_words", "dropped", "d/a.jsonl", 10),
        ("redundancy", "near_duplicate", "dropped", "d/b.jsonl", 2),
    ]
    (balance,) = found.balances
    assert balance.line == "18 in = 6 kept + 12 dropped + 0 quarantined"
    assert found.conserved


@pytest.mark.parametrize(
    ("rows_in", "rows_out", "complaint"),
    [(19, 6, "19 records came in, 18 were decided"), (18, 7, "6 records were kept, 7 are stored")],
)
def test_what_does_not_add_up_is_said(tmp_path: Path, rows_in: int, rows_out: int, complaint: str) -> None:
    found = tally([Expected("clean", small(tmp_path), rows_in, rows_out)])
    assert not found.conserved
    assert found.balances[0].complaint == complaint


def test_a_filter_narrows_counts_and_samples_but_never_the_balance(tmp_path: Path) -> None:
    path = small(tmp_path)
    narrow = tally([Expected("clean", path, 18, 6)], rule="min_words", source="a.jsonl", samples=3)
    assert [(c.rule, c.records) for c in narrow.counts] == [("min_words", 10)]
    assert list(narrow.samples) == [("clean", "min_words")]
    assert narrow.balances == tally([Expected("clean", path, 18, 6)]).balances
    assert tally([Expected("clean", path, 18, 6)], source="jsonl").counts == []


def test_samples_are_spread_and_the_same_each_time(tmp_path: Path) -> None:
    expected = [Expected("clean", small(tmp_path), 18, 6)]
    rows = tally(expected, samples=3).samples["clean", "min_words"]
    assert [row["id"] for row in rows] == ["r005", "r008", "r011"]
    assert rows == tally(expected, samples=3).samples["clean", "min_words"]
    assert len(tally(expected, samples=100).samples["clean", "near_duplicate"]) == 2


@pytest.mark.parametrize(
    ("stage", "rule", "level"),
    [
        ("ingest", "syntax", "format"),
        ("clean", "max_symbol_ratio", "quality"),
        ("clean", "exact_duplicate", "redundancy"),
        ("clean", "reviewed", "labels"),
        ("clean", "domain", "domain"),
        ("split", "straddles", "split"),
    ],
)
def test_every_rule_has_its_level(stage: str, rule: str, level: str) -> None:
    assert level_of(stage, rule) == level


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.sampled_from(["", "a", "b"]), st.sampled_from("xyz"))))
def test_the_counts_add_up_to_the_balance(
    tmp_path_factory: pytest.TempPathFactory, decisions: list[tuple[str, str, str]]
) -> None:
    path = write(tmp_path_factory.mktemp("ledger") / "ledger.parquet", decisions)
    found: Tally = tally([Expected("clean", path, len(decisions), None)])
    assert found.conserved
    assert sum(count.records for count in found.counts) == len(decisions) == found.balances[0].rows_in
