"""A record's story: where it came from, what each rule measured, what would have kept it, where it went."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import DaymillError
from data.ledger import Ledger
from data.quality.rules import AtLeast, AtMost, OneOf
from data.shards import KEPT_SCHEMA, RECORD_SCHEMA, ShardWriter
from data.story import Knobs, Places, outward, tell

WORDS = AtLeast("min_words", "words", 2)
SYMBOLS = AtMost("max_symbol_ratio", "symbol_ratio", 0.7)
LANGUAGES = OneOf("languages", "language", 0.8, ("en", "de"))
KNOBS = Knobs((WORDS, SYMBOLS), similarity=0.8, advice={"exact_duplicate": "a text of its own"})
MEASURES = pa.schema(
    [
        ("id", pa.string()),
        ("exact_key", pa.binary(16)),
        ("words", pa.float32()),
        ("symbol_ratio", pa.float32()),
        ("language", pa.string()),
        ("language_p", pa.float32()),
        ("quality", pa.float32()),
    ]
)
PAIRS = pa.schema([("a_row", pa.int64()), ("b_row", pa.int64()), ("similarity", pa.float64()), ("veto", pa.string())])
#            id      key  words symbols
MEASURED = [
    ("short", "k1", 1, 0.71),
    ("best", "k2", 40, 0.1),
    ("equal", "k2", 40, 0.1),
    ("near", "k3", 38, 0.1),
    ("dose", "k4", 40, 0.1),
    ("far", "k5", 40, 0.1),
    ("rival", "k6", 40, 0.1),
    ("alone", "k7", None, 0.1),
]
LABELS = {"rival": "spam"}


def shard(folder: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    with ShardWriter(folder, schema) as writer:
        writer.write(pa.Table.from_pylist(rows, schema=schema))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Eight records that went through, three that did not, and what the stages wrote of them."""
    found = Places(
        *(tmp_path / name for name in ("i.parquet", "q.jsonl", "records", "measures", "pairs.parquet")),
        *(tmp_path / name for name in ("c.parquet", "kept", "review.csv", "s.parquet")),
    )
    with Ledger(found.ingested) as book:
        for number, (row_id, *_) in enumerate(MEASURED):
            line = number + 1
            book.add(
                source="day/notes.jsonl", verdict="kept", stage="ingest", id=row_id, line=line, offset=100 * number
            )
        place: dict[str, Any] = {"stage": "ingest", "verdict": "quarantined"}
        book.add(source="day/notes.jsonl", line=9, offset=800, rule="syntax", note="a comma is missing", **place)
        book.add(source="day/notes.jsonl", line=10, offset=900, rule="duplicate-id", id="best", **place)
        book.add(source="day/broken.xml", rule="dtd", **place)
    entry = {"source": "day/notes.jsonl", "line": 9, "offset": 800, "bytes": 70_000, "raw": "", "rule": "syntax"}
    found.quarantine.write_text(json.dumps(entry | {"raw": base64.b64encode(b'{"id": 1,, "text": "secret').decode()}))
    records = [
        {"id": row_id, "text": f"the text of {row_id}", "label": LABELS.get(row_id, "ham")} for row_id, *_ in MEASURED
    ]
    shard(found.records, RECORD_SCHEMA, records)
    shard(
        found.measures,
        MEASURES,
        [
            {"id": i, "exact_key": key.ljust(16).encode(), "words": words, "symbol_ratio": symbols}
            | {"language": "fr", "language_p": 0.9, "quality": 0.5}
            for i, key, words, symbols in MEASURED
        ],
    )
    pairs = [
        ("equal", "near", 0.93, None),  # verified with `equal`, whose equal `best` stayed
        ("best", "dose", 0.95, "number"),
        ("best", "far", 0.75, None),
        ("best", "rival", 0.9, None),
    ]
    row_of = {row_id: row for row, (row_id, *_) in enumerate(MEASURED)}
    columns = list(zip(*((row_of[a], row_of[b], *more) for a, b, *more in pairs), strict=True))
    pq.write_table(pa.table([pa.array(c, f.type) for c, f in zip(columns, PAIRS)], schema=PAIRS), found.pairs)
    with Ledger(found.cleaned) as book:
        at: dict[str, Any] = {"source": "day/notes.jsonl", "stage": "clean"}
        book.add(id="short", verdict="dropped", rule="min_words", score=1, **at)
        book.add(id="best", verdict="kept", **at)
        book.add(id="equal", verdict="dropped", rule="exact_duplicate", partner="best", similarity=1.0, **at)
        book.add(id="near", verdict="dropped", rule="near_duplicate", partner="best", similarity=0.93, **at)
        for row_id in ("dose", "far", "rival", "alone"):
            book.add(id=row_id, verdict="kept", **at)
    kept = [row | {"cluster": None, "weight": 1.0} for row in records if row["id"] not in ("short", "equal", "near")]
    kept[0]["cluster"], kept[0]["weight"] = "c0ffee", 1.5
    shard(found.kept, KEPT_SCHEMA, kept)
    found.review.write_text("id,given,suggested,confidence,decision,note\nrival,spam,ham,0.97,keep,seen\n")
    with Ledger(found.divided) as book:
        for row_id in ("best", "dose", "far", "rival", "alone"):
            where = (
                {"verdict": "dropped", "rule": "straddles"} if row_id == "far" else {"verdict": "kept", "note": "train"}
            )
            book.add(source="day/notes.jsonl", stage="split", id=row_id, **where)
    return found


def test_a_dropped_record_names_every_rule_it_breaks_and_what_would_keep_it(places: Places) -> None:
    story = tell("short", places, KNOBS)
    assert story["origin"] == {"source": "day/notes.jsonl", "line": 1, "offset": 0}
    assert story["clean"]["would_keep"] == ["clean.quality.min_words <= 1", "clean.quality.max_symbol_ratio >= 0.71"]
    assert [(rule["rule"], rule["holds"], rule["would_keep"]) for rule in story["rules"]] == [
        ("min_words", False, "clean.quality.min_words <= 1"),
        ("max_symbol_ratio", False, "clean.quality.max_symbol_ratio >= 0.71"),
    ]
    assert "split" not in story and story["not_run"] == []
    assert "changed_since" not in story["clean"]


def test_a_survivor_knows_whom_it_stands_for_and_what_became_of_its_neighbors(places: Places) -> None:
    story = tell("best", places, KNOBS)
    assert [(pair["id"], pair["similarity"], pair["fate"]) for pair in story["partners"]["pairs"]] == [
        ("dose", 0.95, "kept apart: number differs"),
        ("near", 0.93, "it went to this record"),
        ("rival", 0.9, "kept apart: their labels contradict"),
        ("far", 0.75, "kept apart: below clean.similarity 0.8"),
    ]
    assert [row["id"] for row in story["clean"]["stands_for"]] == ["equal", "near"]
    assert (story["clean"]["cluster"], story["clean"]["weight"]) == ("c0ffee", 1.5)
    assert (story["split"]["verdict"], story["split"]["part"]) == ("kept", "train")
    assert [(row["line"], row["rule"]) for row in story["also"]] == [(10, "duplicate-id")]


def test_a_near_duplicate_tells_the_one_that_stayed_for_its_partner(places: Places) -> None:
    story = tell("near", places, KNOBS)
    (pair,) = story["partners"]["pairs"]
    assert (pair["id"], pair["fate"]) == ("best", "this record went to it")
    assert story["clean"]["partner"] == "best" and story["clean"]["similarity"] == 0.93
    assert story["clean"]["would_keep"] == ["clean.similarity > 0.93"]
    assert tell("equal", places, KNOBS)["clean"]["would_keep"] == ["a text of its own"]


def test_what_a_text_does_not_have_breaks_no_rule(places: Places) -> None:
    story = tell("alone", places, KNOBS)
    assert [rule["holds"] for rule in story["rules"]] == [True, True]
    assert story["partners"] == {"count": 0, "pairs": []}


def test_a_language_that_is_surely_another_names_itself(places: Places) -> None:
    knobs = dataclasses.replace(KNOBS, quality=(LANGUAGES,))
    assert tell("best", places, knobs)["rules"][0] == {
        "rule": "languages",
        "limit": "en, de",
        "measure": "language",
        "value": "fr",
        "holds": False,
        "would_keep": "clean.quality.languages with fr",
    }
    unsure = dataclasses.replace(KNOBS, quality=(dataclasses.replace(LANGUAGES, threshold=0.95),))
    assert tell("best", places, unsure)["rules"][0]["holds"]


def test_a_rule_without_its_measure_is_an_error(places: Places) -> None:
    knobs = dataclasses.replace(KNOBS, quality=(AtMost("max_new", "new", 1),))
    with pytest.raises(DaymillError, match="max_new: the measures have no column new"):
        tell("best", places, knobs)


def test_thresholds_that_were_edited_since_are_noticed(places: Places) -> None:
    looser = dataclasses.replace(KNOBS, quality=(dataclasses.replace(WORDS, threshold=1),))
    assert (
        tell("short", places, looser)["clean"] | {"changed_since": True, "broken_now": []}
        == tell("short", places, looser)["clean"]
    )
    stricter = dataclasses.replace(KNOBS, quality=(dataclasses.replace(WORDS, threshold=41),))
    assert tell("best", places, stricter)["clean"]["broken_now"] == ["min_words"]


def test_a_record_without_an_id_is_found_by_its_place(places: Places) -> None:
    story = tell("notes.jsonl:9", places, KNOBS)
    assert (story["id"], story["ingest"]["rule"], story["ingest"]["bytes"]) == (None, "syntax", 70_000)
    assert "secret" not in json.dumps(story)
    assert "secret" in tell("notes.jsonl:9", places, KNOBS, with_text=True)["ingest"]["raw"]
    assert tell("broken.xml", places, KNOBS)["ingest"]["rule"] == "dtd"
    assert tell("day/notes.jsonl:1", places, KNOBS)["id"] == "short"
    # the place of a record whose id was taken tells of this one, not of the one that has the id
    assert tell("notes.jsonl:10", places, KNOBS)["ingest"]["rule"] == "duplicate-id"


def test_an_id_that_only_a_refused_line_has_leads_to_that_line(places: Places) -> None:
    entry = {"source": "day/notes.jsonl", "line": 11, "offset": 0, "bytes": 30, "rule": "text", "note": "empty"}
    raw = base64.b64encode(b'{"id": "EMP3", "text": ""}').decode()
    places.quarantine.write_text(json.dumps(entry | {"raw": raw}) + "\n")
    with pytest.raises(DaymillError, match=r"refused a line that names it: `daymill why day/notes\.jsonl:11` \(text\)"):
        tell("EMP3", places, KNOBS)
    with pytest.raises(DaymillError, match="no record 'EMP' came in"):
        tell("EMP", places, KNOBS)


def test_text_and_labels_are_told_only_when_asked_for(places: Places) -> None:
    silent = json.dumps(tell("rival", places, KNOBS))
    assert "the text of" not in silent and "spam" not in silent and "0.97" in silent
    open_ = tell("rival", places, KNOBS, with_text=True)
    assert (open_["text"], open_["label"], open_["review"]["suggested"]) == ("the text of rival", "spam", "ham")


def test_an_unknown_id_gets_the_nearest_ones(places: Places) -> None:
    with pytest.raises(DaymillError, match=r"no record 'dsoe' came in; the nearest ids: dose"):
        tell("dsoe", places, KNOBS)
    with pytest.raises(DaymillError, match=r"no record 'notes.jsonl:99'"):
        tell("notes.jsonl:99", places, KNOBS)


def test_stages_that_have_not_run_are_named(places: Places, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    early = dataclasses.replace(places, measures=nowhere, pairs=nowhere, cleaned=nowhere, divided=nowhere)
    story = tell("best", early, KNOBS)
    assert story["not_run"] == ["score", "clean", "split"]
    assert not {"rules", "partners", "clean", "split"} & set(story)
    without_clean = tell("near", dataclasses.replace(places, cleaned=nowhere), KNOBS)
    assert without_clean["partners"]["pairs"][0]["fate"] == "similar enough to merge"


def test_outputs_in_another_order_are_searched(places: Places) -> None:
    table = pq.read_table(places.cleaned)
    pq.write_table(table.take(list(range(len(table)))[::-1]), places.cleaned)
    story = tell("best", places, KNOBS)
    assert story["clean"]["verdict"] == "kept"
    assert story["partners"]["pairs"][0]["fate"] == "kept apart: number differs"
    assert story["unknown_to"] == []


def test_outputs_of_an_earlier_run_are_told_apart_from_a_stage_that_has_not_run(places: Places) -> None:
    with Ledger(places.ingested) as book:
        book.add(source="day/notes.jsonl", verdict="kept", stage="ingest", id="new", line=1, offset=0)
    assert tell("new", places, KNOBS)["unknown_to"] == ["score", "clean", "split"]


@given(st.floats(2**-20, 2**30, width=32), st.booleans())
def test_a_rounded_threshold_is_never_on_the_wrong_side(value: float, up: bool) -> None:
    rounded = float(outward(value, up))
    assert rounded >= value if up else rounded <= value
    assert math.isclose(rounded, value, rel_tol=1e-4)
