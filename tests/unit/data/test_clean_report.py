"""The page of a cleaning run: what it shows, that it needs nothing from elsewhere, and that no text becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.charts import flow, histogram, place_of, short, shortened
from data.clean_report import page

VOID = {"meta", "br"}
HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"

REPORT: dict[str, Any] = {
    "levels": [
        {"name": "format", "in": 10_000_000, "kept": 9_999_999, "dropped_by_rule": {"encoding": 1}, "note": "a word"},
        {"name": "quality", "in": 9_999_999, "kept": 8_999_999, "dropped_by_rule": {"min_chars": 1_000_000, "x": 0}},
        {"name": "redundancy", "in": 8_999_999, "kept": 8_999_999, "dropped_by_rule": {}, "note": ""},
    ],
    "sources": {"mails/a.jsonl": {"in": 9_000_000, "kept": 8_500_000}, "mails/b.jsonl": {"in": 1_000_000, "kept": 0}},
    "histograms": [
        {
            "measure": "chars",
            "edges": [0, 10, 100, 1000],
            "counts": [5, 50, 1],
            "threshold": 10,
            "direction": "min",
            "rule": "min_chars",
        }
    ],
    "clusters": [
        {"survivor": f"id-{n}", "size": n + 2, "similarity_min": 0.8125, "members": ["m1", "m2"], "linked": n}
        for n in range(14)
    ],
    "pairs": {"verified": 4321, "merged": 321, "vetoed": {"number": 3000, "negation": 1000}},
    "groups": [
        {"group": "a", "records": 400, "kept": 300, "label_shares": {"x": 0.125, "y": 0.875}, "mean_weight": 1.5}
    ],
    "bias": {
        "mode": "weights",
        "verdict": "debiased",
        "reason": "the gap shrank",
        "equal_odds": {"before": 0.125, "after": 0.03, "low": -0.14, "high": -0.02, "goal": 0.5},
        "accuracy": {"before": 0.851, "after": 0.845, "budget": 0.015},
        "groups": {"a": {"labels": {"x": 35}, "before": {"x": {"recall": 0.5}}, "after": {"x": {"recall": 0.625}}}},
    },
    "domain": {
        "method": "ngram",
        "on": False,
        "reason": "the lower bound is not above zero",
        "gain": {"metric": "accuracy", "before": 0.5, "after": 0.6, "difference": 0.1, "low": -0.05, "high": 0.2},
    },
    "noise": {"before": 0.23, "after": 0.0175, "how": "by the model"},
    "labels": {"suspected": 77, "reviewed": 5},
    "claims": [{"what": "noise", "claim": "23 % to 4 %", "measured": None}],
}


class Strict(HTMLParser):
    """Fails on a tag that is not closed where it should be; collects text, tags and attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def hostile(value: Any) -> Any:
    """The same report with every string, also every key that is data, a hostile one."""
    if isinstance(value, str):
        return value if value in ("min", "max") else HOSTILE
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if isinstance(value, dict):
        named = {"levels", "dropped_by_rule", "vetoed", "sources"}
        return {
            key: {HOSTILE + str(n): hostile(v) for n, v in enumerate(item.values())}
            if key in named and isinstance(item, dict)
            else hostile(item)
            for key, item in value.items()
        }
    return value


def test_every_count_is_on_the_page() -> None:
    text = Strict(page(REPORT)).text
    for shown in (
        *("10,000,000", "8,999,999", "90.00%", "1,000,000", "min_chars", "encoding", "a word"),
        *("mails/a.jsonl", "94.44%", "at least 10", "4,321", "321", "number", "negation"),
        *("0.812", "12.50%", "mean weight", "label x", "accuracy · before", "0.851", "The level is", "off", "-0.05"),
        *("23.00%", "1.75%", "by the model", "77", "23 % to 4 %", "not measured"),
    ):
        assert shown in text, shown


def test_the_ten_largest_clusters_are_shown_and_no_more() -> None:
    text = Strict(page(REPORT)).text
    assert all(f"id-{n}\n" in text for n in range(4, 14))
    assert not any(f"id-{n}\n" in text for n in range(4))


def test_what_is_missing_is_said() -> None:
    text = Strict(page({})).text
    assert "Not on this page" in text and "the level did not run" in text and "no record came in" in text
    assert "Not on this page" not in Strict(page(REPORT)).text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    parsed = Strict(page(REPORT))
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "use", "image"}
    assert "//" not in page(REPORT).replace("<!doctype", "") and "@import" not in page(REPORT)
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on") or key in ("src", "href")]


def test_hostile_strings_stay_text() -> None:
    parsed = Strict(page(hostile(REPORT)))
    tags = {tag for tag, _ in parsed.tags}
    assert "script" not in tags and "img" not in tags
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on")]
    assert HOSTILE in parsed.text


def test_long_ids_keep_their_ends_and_are_whole_in_a_title() -> None:
    name = "begin-" + "x" * 300 + "-the-end"
    report = {"clusters": [{"survivor": name, "size": 2, "similarity_min": 1.0, "members": [], "linked": 0}]}
    parsed = Strict(page(report))
    shown = next(line for line in parsed.text.splitlines() if line.startswith("begin-"))
    assert len(shown) <= 80 and shown.endswith("-the-end")
    assert name in [attrs.get("title") for _, attrs in parsed.tags]


def rects(svg: str, kind: str) -> list[dict[str, str | None]]:
    return [attrs for tag, attrs in Strict(svg).tags if attrs.get("class") == kind]


def test_the_band_is_as_thick_as_the_records_that_are_left() -> None:
    levels = [
        {"name": "a", "in": 400, "kept": 200, "dropped_by_rule": {"r": 150, "s": 50}},
        {"name": "b", "in": 200, "kept": 100, "dropped_by_rule": {"t": 100}},
    ]
    bands = [float(attrs["height"] or 0) for attrs in rects(flow(levels), "band")]
    assert bands == [75.0, 37.5] and len(rects(flow(levels), "drop")) == 3


def test_many_rules_become_one_branch_with_their_sum() -> None:
    rules = {f"rule{n:02}": n + 1 for n in range(40)}
    levels = [{"name": "quality", "in": 10_000, "kept": 10_000 - sum(rules.values()), "dropped_by_rule": rules}]
    text = Strict(flow(levels)).text
    assert len(rects(flow(levels), "drop")) == 6
    assert "35 more rules" in text and f"{sum(range(1, 36)):,} ·" in text
    table = Strict(page({"levels": levels})).text
    assert all(rule in table for rule in rules)


@pytest.mark.parametrize("count", [0, 1])
def test_none_and_one_record(count: int) -> None:
    levels = [{"name": "format", "in": count, "kept": count, "dropped_by_rule": {"r": 0}}]
    assert ("<svg" in page({"levels": levels})) == bool(count)
    Strict(page({"levels": levels}))


def test_a_threshold_colors_what_it_drops() -> None:
    svg = histogram([0, 1, 2, 3, 4], [10, 10, 10, 10], 1.5, "min")
    drops, keeps = rects(svg, "drops"), rects(svg, "keeps")
    assert (len(drops), len(keeps)) == (2, 3)  # the bin that the threshold cuts is in both
    assert (len(rects(histogram([0, 1, 2], [1, 1], 1, "max"), "drops"))) == 1
    assert not rects(histogram([0, 1, 2], [1, 1], None, "min"), "drops")
    assert not rects(histogram([0, 1, 2], [1, 1], 0, "min"), "drops")  # 0 is a threshold, and nothing is below it
    assert rects(histogram([0, 1, 2], [1, 1], 0, "min"), "threshold")
    assert histogram([], [], 1, "min") == ""


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20, unique=True).map(sorted),
    st.floats(allow_nan=False),
)
@settings(max_examples=60, deadline=None)
def test_a_threshold_stands_inside_the_picture_on_its_side(edges: list[float], value: float) -> None:
    place = place_of(value, edges)
    assert 0 <= place <= len(edges) - 1
    below = sum(edge <= value for edge in edges) - 1
    assert below - 1e-9 <= place <= below + 1 + 1e-9 or place in (0, len(edges) - 1)


def test_numbers_are_short() -> None:
    shown = [short(value) for value in (None, 0, 0.0, 12, 1234567, 0.123456, 1234.56, float("nan"), float("inf"))]
    assert shown == ["–", "0", "0", "12", "1,234,567", "0.123", "1,234.6", "–", "∞"]
    assert shortened("abcdef", 4) == "abc…" and shortened("abcd", 4) == "abcd"
