"""The split: nothing related crosses a boundary, and tomorrow's records move none of today's."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import DaymillError
from data.split import (
    DROPPED,
    PARTS,
    TEST,
    TRAIN,
    VALID,
    Assignment,
    Keys,
    SplitConfig,
    split,
    template_key,
    to_microseconds,
)

Row = dict[str, Any]
LOOSE = SplitConfig(on_missing_label="warn", label_share_tolerance=1.0)


def row(number: int, **given: Any) -> Row:
    return {"id": f"r{number}", "text": f"{WORDS[number % 676]} note of the day", "label": "ab"[number % 2]} | given


WORDS = [f"{chr(97 + a) * 4}{chr(97 + b) * 4}" for a in range(26) for b in range(26)]


def keys_of(rows: list[Row], skip_title: bool = True) -> Keys:
    keys = Keys()
    fields = ("id", "text", "label", "entity", "date")
    keys.add(*([row.get(name) for row in rows] for name in fields), skip_title)  # type: ignore[arg-type]
    return keys


def assign(rows: list[Row], config: SplitConfig = LOOSE, **knobs: Any) -> Assignment:
    return split(keys_of(rows), dataclasses.replace(config, **knobs))


def parts_of(rows: list[Row], **knobs: Any) -> dict[str, int]:
    return {row["id"]: int(part) for row, part in zip(rows, assign(rows, **knobs).parts, strict=True)}


def test_shares_are_met_and_every_record_has_a_part() -> None:
    parts = assign([row(n) for n in range(676)]).parts
    shares = [float((parts == part).mean()) for part in (TRAIN, VALID, TEST)]
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=0.05)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Your order 4711 was sent to you today", "Your order 815 was sent to you today"),
        ("Take 5 mg of the medicine a day", "Take 12.5 mg of the medicine a day"),
        ("See http://a.example/x?id=1 for the offer", "see https://b.example/other for the offer"),
        ("Write to me@a.example for the offer", "Write to you.too@b.example for the offer"),
        ("First subject\n\nThe letter that went to all of us", "Other subject\n\nThe letter that went to all of us"),
        ("<p>The letter</p> that went to all", "<div class=x>The letter</div> that went to all"),
    ],
)
def test_siblings_of_a_template_share_a_cluster(one: str, other: str) -> None:
    assert template_key(one, "1") == template_key(other, "2")


def test_a_template_of_almost_nothing_groups_nothing() -> None:
    assert template_key("1.2 3.4 5.6", "1") != template_key("9.8 7.6 5.4", "2")
    assert template_key("1.2 3.4 5.6", "1") == template_key("1.2  3.4 5.6", "2")
    assert template_key("", "1") != template_key("", "2")
    assert template_key("First title here\n\n42", "1") != template_key("Other title here\n\n42", "2")


def test_a_title_counts_where_it_is_asked_to() -> None:
    one, other = "First subject\n\nThe letter to all of us", "Other subject\n\nThe letter to all of us"
    assert template_key(one, "1", skip_title=False) != template_key(other, "2", skip_title=False)


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.sampled_from(WORDS[:60]).map(lambda word: f"{word} note of the day"),
            "label": st.sampled_from(["a", "b", None]),
            "entity": st.sampled_from([None, None, "e1", "e2", "e3", "e4"]),
            "date": st.sampled_from([None, *(f"2026-01-{day:02d}" for day in range(1, 29))]),
        }
    ),
    max_size=60,
)
# enough of each label in each part, so that the properties are not about errors
FILL = [row(n + 60, id=f"fill{n}", date=f"2026-01-{n % 28 + 1:02d}") for n in range(140)]


def numbered(found: list[Row]) -> list[Row]:
    return [record | {"id": f"r{n}"} for n, record in enumerate(found)]


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.sampled_from(["group", "date"]), st.sampled_from(["test", "train"]))
def test_no_cluster_and_no_entity_crosses_a_boundary(found: list[Row], by: Any, keep: Any) -> None:
    rows = numbered(found) + FILL
    keys = keys_of(rows)
    parts = split(keys, dataclasses.replace(LOOSE, by=by, keep=keep)).parts
    where = defaultdict(set)
    for cluster, entity, part in zip(keys.clusters, keys.entities, parts.tolist(), strict=True):
        if part != DROPPED:
            where["cluster", cluster].add(part)
            if entity is not None:
                where["entity", entity].add(part)
    assert all(len(places) == 1 for places in where.values())


@settings(max_examples=60, deadline=None)
@given(RECORDS, RECORDS)
def test_tomorrows_records_move_none_of_todays(today: list[Row], tomorrow: list[Row]) -> None:
    rows = numbered(today) + FILL
    later = [record | {"id": f"new{n}"} for n, record in enumerate(tomorrow)]
    before, after = parts_of(rows), parts_of(rows + later)
    for row_id, part in before.items():
        # a train record may have to make room for a twin in the test; none ever changes its part
        assert after[row_id] in {part, DROPPED} or part == DROPPED
        if part == TEST:
            assert after[row_id] == TEST


@settings(max_examples=30, deadline=None)
@given(RECORDS, st.randoms(use_true_random=False), st.sampled_from(["group", "date"]))
def test_the_order_of_the_records_changes_nothing(found: list[Row], shuffler: random.Random, by: Any) -> None:
    rows = numbered(found) + FILL
    shuffled = rows.copy()
    shuffler.shuffle(shuffled)
    assert parts_of(rows, by=by) == parts_of(shuffled, by=by)


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_by_date_the_test_is_later_than_valid_is_later_than_train(found: list[Row]) -> None:
    rows = numbered(found) + FILL
    parts = assign(rows, by="date").parts
    dates = np.array([to_microseconds(record.get("date")) for record in rows])
    labelled = np.array([record["label"] is not None and bool(record.get("date")) for record in rows])
    train, valid, test = (dates[labelled & (parts == part)] for part in (TRAIN, VALID, TEST))
    assert train.max() < valid.min()
    assert valid.max() < test.min()


def test_another_salt_draws_other_parts() -> None:
    rows = [row(n) for n in range(200)]
    assert parts_of(rows) != parts_of(rows, salt="another")


def test_an_entity_keeps_its_records_together_whatever_they_say() -> None:
    parts = assign([row(n, entity=f"e{n % 40}") for n in range(400)]).parts
    assert all(len(set(parts[n::40].tolist()) - {DROPPED}) == 1 for n in range(40))


def test_a_cluster_of_two_entities_loses_its_records_on_one_side_and_says_so() -> None:
    rows = [row(n, entity=f"e{n}") for n in range(300)]
    rows += [row(n, id=f"twin{n}", entity=f"twin{n}") for n in range(300)]
    for keep, stays, loses in (("test", TEST, TRAIN), ("train", TRAIN, TEST)):
        assignment = assign(rows, keep=keep)
        alone = assign(rows[:300]), assign(rows[300:])
        before = np.concatenate([half.parts for half in alone])
        dropped = assignment.parts == DROPPED
        assert {assignment.rules[row] for row in np.flatnonzero(dropped)} == {"straddles"}
        assert stays not in before[dropped]
        assert loses in before[dropped]


def test_unlabelled_records_are_for_training_only() -> None:
    rows = [row(n, label=None if n % 3 == 0 else "ab"[n % 2]) for n in range(600)]
    parts = assign(rows).parts
    assert set(parts[::3].tolist()) == {TRAIN}
    assert {VALID, TEST} <= set(parts.tolist())


def test_an_unlabelled_twin_of_a_test_record_is_not_trained_on() -> None:
    rows = [row(n) for n in range(300)]
    twins = [row(n, id=f"twin{n}", label=None) for n in range(300)]
    parts = assign(rows + twins).parts
    assert set(parts[300:][parts[:300] != TRAIN].tolist()) == {DROPPED}


def test_without_any_label_all_parts_are_filled() -> None:
    assignment = assign([row(n, label=None) for n in range(300)])
    assert set(assignment.parts.tolist()) == {TRAIN, VALID, TEST}
    assert "no record has a label" in assignment.warnings[0]


def test_records_without_a_date_follow_the_policy() -> None:
    rows = [*FILL, row(1, id="undated", date=None), row(2, id="unreadable", date="yesterday")]
    assert assign(rows, by="date", undated="train").parts[-2:].tolist() == [TRAIN, TRAIN]
    dropped = assign(rows, by="date", undated="drop")
    assert dropped.parts[-2:].tolist() == [DROPPED, DROPPED]
    assert dropped.rules[-2:] == ["undated", "undated"]


def test_given_dates_are_the_boundaries() -> None:
    parts = parts_of(FILL, by="date", valid_from="2026-01-10", test_from="2026-01-20")
    expected = {
        r["id"]: TRAIN if r["date"] < "2026-01-10" else VALID if r["date"] < "2026-01-20" else TEST for r in FILL
    }
    assert parts == expected


def test_a_zone_is_honored_and_no_zone_is_utc() -> None:
    assert to_microseconds("2026-01-01T00:00:00+02:00") == to_microseconds("2025-12-31T22:00:00")
    assert to_microseconds("1970-01-01T00:00:01.5Z") == 1_500_000
    assert to_microseconds("1969-12-31") == -86_400_000_000


def test_label_shares_that_differ_give_a_warning_with_the_difference() -> None:
    rows = [row(n, date=f"2026-{n // 28 + 1:02d}-{n % 28 + 1:02d}", label="a" if n < 168 else "b") for n in range(240)]
    rows += [row(n + 240, date="2026-01-02", label="b") for n in range(5)]
    rows += [row(n + 250, date="2026-12-02", label="a") for n in range(3)]
    assignment = assign(rows, by="date", label_share_tolerance=0.1)
    assert any("differ by up to" in warning and "by: group" in warning for warning in assignment.warnings)
    tolerated = assign(rows, by="date", label_share_tolerance=1.0)
    assert not any("differ by" in warning for warning in tolerated.warnings)


def test_zero_tolerance_warns_of_any_difference() -> None:
    rows = [row(n) for n in range(400)]
    assert any("differ by" in warning for warning in assign(rows, label_share_tolerance=0.0).warnings)


def test_a_part_that_lacks_a_label_is_an_error_or_a_warning_and_names_no_label() -> None:
    rows = [row(n, label="common") for n in range(300)] + [row(400, label="secret-rare")]
    with pytest.raises(DaymillError, match=r"no record of 1 of the 2 labels") as error:
        assign(rows, on_missing_label="error")
    assert "secret" not in str(error.value)
    assert any("no record of 1 of the 2" in warning for warning in assign(rows, on_missing_label="warn").warnings)


@pytest.mark.parametrize(
    ("rows", "knobs", "message"),
    [
        ([], {}, "no records"),
        ([row(1), row(2)], {}, "would have no labelled records"),
        ([row(n) for n in range(50)], {"by": "date"}, "no record has a date"),
        ([row(n, date="2026-01-01") for n in range(50)], {"by": "date"}, "too few distinct dates"),
        (FILL, {"by": "date", "valid_from": "soon"}, "expected an ISO 8601 date"),
        (FILL, {"by": "date", "valid_from": "2026-02-01", "test_from": "2026-01-01"}, "valid_from >= test_from"),
    ],
)
def test_what_cannot_be_split_is_a_clear_error(rows: list[Row], knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(DaymillError, match=message):
        assign(rows, **knobs)


def test_the_parts_have_their_names_in_order() -> None:
    assert [PARTS[part] for part in (TRAIN, VALID, TEST)] == ["train", "valid", "test"]
