"""A record's whole story, told from what the stages wrote: where it came from, what each rule measured, where it went.

Nothing is computed anew. Measures come from the score stage and are held against the thresholds as they are now, so the
story says which numbers would have kept a record, and whether they already would. Texts and labels are told only when
asked for.
"""

from __future__ import annotations

import base64
import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from data.errors import DaymillError
from data.lookup import find_rows, nearest, row_numbers, rows_at, rows_with, take
from data.quality.rules import AtLeast, AtMost, OneOf, Rule

Row = dict[str, Any]

MAX_PARTNERS = 1_000  # partners that are told of; `count` says how many there are
SHOWN_REFUSED = 3
DIGITS = 6  # significant ones of a threshold that would keep a record


@dataclass(frozen=True)
class Places:
    """What the stages write; one that has not run has none of it."""

    ingested: Path  # ledger
    quarantine: Path
    records: Path
    measures: Path
    pairs: Path
    cleaned: Path  # ledger
    kept: Path
    review: Path
    divided: Path  # ledger of the split

    def not_run(self) -> list[str]:
        stages = {"score": self.measures, "clean": self.cleaned, "split": self.divided}
        return [stage for stage, path in stages.items() if not path.exists()]


@dataclass(frozen=True)
class Knobs:
    """The parameters that a story is held against, with their full names."""

    quality: Sequence[Rule] = ()
    prefix: str = "clean.quality"
    similarity: float | None = None  # from which near duplicates merge
    similarity_knob: str = "clean.similarity"
    advice: Mapping[str, str] = field(default_factory=dict)  # rule -> what else than a number would have kept a record


def tell(wanted: str, places: Places, knobs: Knobs, with_text: bool = False) -> dict[str, Any]:
    """The story of a record, by its id or by its place `SOURCE:LINE` (or `SOURCE`, a file that was refused whole).

    Keys: id, origin, also (other input records that claimed the id), not_run, and of each stage that knows the record
    ingest, measures, rules, partners, clean, review, split; text and label with `with_text`. Raises DaymillError for an
    unknown record, naming the nearest ids.
    """
    origins = rows_with(places.ingested, wanted, "id") or at_place(wanted, places.ingested)
    if not origins:
        raise DaymillError(refused_with(wanted, places.quarantine) or unknown(wanted, places.ingested))
    origin = next((row for row in origins if row["verdict"] != "quarantined"), origins[0])
    story: dict[str, Any] = {
        "id": origin["id"],
        "origin": {name: origin[name] for name in ("source", "line", "offset")},
        "ingest": decision(origin, knobs),
        "also": [pick(row, "source", "line", "offset", "verdict", "rule", "note") for row in origins if row != origin],
        "not_run": places.not_run(),
    }
    if origin["verdict"] == "quarantined":
        story["ingest"] |= refused(origin, places.quarantine, with_text)
        return story
    return story | later(origin["id"], places, knobs, with_text)


def later(row_id: str, places: Places, knobs: Knobs, with_text: bool) -> dict[str, Any]:
    """What the stages after ingest say of a record.

    Records, measures and the ledger of clean have the same rows, and so have kept records and the ledger of split: one
    search finds the row number, the rest is looked up there.
    """
    story: dict[str, Any] = {"unknown_to": []}
    row = first_row(places.records, row_id)
    measured = settled(places.measures, row_id, row, "score", story)
    if measured is not None:
        story["measures"] = {n: value for n, value in measured.items() if n != "id" and not isinstance(value, bytes)}
        story["rules"] = held(knobs, measured)
    cleaned = settled(places.cleaned, row_id, row, "clean", story)
    followers = rows_following(places.cleaned, row_id) if cleaned is not None else {}
    if places.pairs.exists() and measured is not None and row is not None:
        equals = {at for at, one in followers.items() if one["rule"] == "exact_duplicate"}
        story["partners"] = partners({row, *equals}, row_id, cleaned, places, knobs)
    if cleaned is not None:
        story["clean"] = decision(cleaned, knobs, story.get("rules")) | verdict_now(cleaned, story.get("rules"))
        story["clean"]["stands_for"] = [pick(one, "id", "rule", "similarity") for one in followers.values()]
        story["review"] = reviewed(row_id, places.review, with_text)
    if cleaned is None or cleaned["verdict"] != "dropped":
        row = first_row(places.divided, row_id)
        divided = settled(places.divided, row_id, row, "split", story)
        if divided is not None:
            part = divided["note"] if divided["verdict"] == "kept" else None
            story["split"] = decision(divided, knobs) | {"part": part, "note": None}
        if cleaned is not None:
            kept = settled(places.kept, row_id, row, "clean", story) or {}
            story["clean"] |= {name: kept[name] for name in ("cluster", "weight") if name in kept}
    if with_text:
        found = one_of(rows_with(places.records, row_id, "id", columns=["text", "label"], limit=1))
        story |= {"text": found and found["text"], "label": found and found["label"]}
    return story


def first_row(path: Path, row_id: str) -> int | None:
    if not path.exists():
        return None
    return next(iter(row_numbers(path, ["id"], lambda keys: pc.equal(keys["id"], row_id), limit=1)), None)


def settled(path: Path, row_id: str, row: int | None, stage: str, story: dict[str, Any]) -> Row | None:
    """A record's row in a stage's output: where it should stand, or else (outputs of different runs) where it does.

    None where the stage has not run, or, which the story then says, ran on other records.
    """
    if not path.exists():
        return None
    found = take(path, [] if row is None else [row]).get(-1 if row is None else row)
    if found is None or found["id"] != row_id:
        found = one_of(rows_with(path, row_id, "id", limit=1))
    if found is None and stage not in story["unknown_to"]:
        story["unknown_to"].append(stage)
    return found


def rows_following(cleaned: Path, row_id: str) -> dict[int, Row]:
    """The records that gave way to this one, by row number."""
    rows = row_numbers(cleaned, ["partner"], lambda keys: pc.equal(keys["partner"], row_id), limit=MAX_PARTNERS)
    return {row: told for row, told in take(cleaned, rows).items() if told["verdict"] == "dropped"}


def at_place(wanted: str, ledger: Path) -> list[Row]:
    """Rows of `SOURCE:LINE`, or of a file that was refused whole. Raises DaymillError where several files are meant."""
    source, colon, line = wanted.rpartition(":")
    found = (
        rows_at(ledger, source, int(line)) if colon and source and line.isdecimal() else rows_at(ledger, wanted, None)
    )
    sources = sorted({row["source"] for row in found})
    if len(sources) > 1:
        listed = ", ".join(sources[:5]) + (f" and {len(sources) - 5} more" if len(sources) > 5 else "")
        raise DaymillError(f"{wanted!r} can be in {len(sources)} files ({listed}); name the folder too")
    return found


def refused_with(wanted: str, quarantine: Path) -> str | None:
    """Where a refused record seems to have had this id: its bytes hold it as a value. None where none does."""
    if not quarantine.exists():
        return None
    quoted = json.dumps(wanted, ensure_ascii=False).encode()
    found = []
    with quarantine.open("rb") as file:
        for line in file:
            entry = json.loads(line)
            if quoted in base64.b64decode(entry["raw"]) and entry["line"] is not None:
                found.append(f"`daymill why {entry['source']}:{entry['line']}` ({entry['rule']})")
                if len(found) == SHOWN_REFUSED:
                    break
    if not found:
        return None
    return f"no record {wanted!r} was taken, but ingest refused a line that names it: {', '.join(found)}"


def unknown(wanted: str, ledger: Path) -> str:
    near = nearest(ledger, wanted)
    hint = f"; the nearest ids: {', '.join(near)}" if near else ""
    return (
        f"no record {wanted!r} came in{hint} (a record without an id: `daymill why FILE:LINE`, "
        "such as notes.jsonl:17; counts by file: `daymill ledger`)"
    )


def decision(row: Row, knobs: Knobs, held_rules: Sequence[Row] | None = None) -> dict[str, Any]:
    """A ledger's row as a part of the story, with what would have kept the record: all of it, not one or the other."""
    told = pick(row, "verdict", "rule", "score", "partner", "similarity", "note")
    if row["verdict"] not in ("dropped", "quarantined"):
        return told
    told["would_keep"] = []
    if advice := knobs.advice.get(row["rule"]):
        told["would_keep"].append(advice)
    if row["rule"] == "near_duplicate" and row["similarity"] is not None and row["similarity"] < 1:
        told["would_keep"].append(f"{knobs.similarity_knob} > {outward(row['similarity'], up=True)}")
    broken = next((rule for rule in knobs.quality if rule.rule == row["rule"]), None)
    if broken is not None and held_rules is not None:
        told["would_keep"] += [entry["would_keep"] for entry in held_rules if not entry["holds"]]
    elif isinstance(broken, AtLeast | AtMost) and row["score"] is not None:  # the measures are gone, the ledger is not
        told["would_keep"].append(keeping(broken, f"{knobs.prefix}.{broken.rule}", row["score"]))
    return told


def verdict_now(cleaned: Row, held_rules: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Where the parameters were edited after the stage ran: which rules would drop the record now, as thresholds go."""
    if held_rules is None:
        return {}
    broken = [entry["rule"] for entry in held_rules if not entry["holds"]]
    by_threshold = any(entry["rule"] == cleaned["rule"] for entry in held_rules) and cleaned["verdict"] == "dropped"
    changed = bool(broken) if cleaned["verdict"] != "dropped" else by_threshold and not broken
    return {"changed_since": changed, "broken_now": broken} if changed else {}


def held(knobs: Knobs, measured: Row) -> list[Row]:
    """Each quality rule against the record's measures, decided as the stage decides. Raises DaymillError where the
    measures lack a rule's column."""
    row, told = pa.Table.from_pylist([measured]), []
    for rule in knobs.quality:
        if rule.measure not in measured:
            raise DaymillError(
                f"{rule.rule}: the measures have no column {rule.measure}; `daymill run --until clean` takes them anew"
            )
        broken = bool(rule.look(row)[0][0])
        value = measured[rule.measure]
        told.append(
            {
                "rule": rule.rule,
                "limit": ", ".join(rule.allowed) if isinstance(rule, OneOf) else rule.threshold,
                "measure": rule.measure,
                "value": None if isinstance(value, float) and math.isnan(value) else value,
                "holds": not broken,
                "would_keep": keeping(rule, f"{knobs.prefix}.{rule.rule}", value) if broken else None,
            }
        )
    return told


def keeping(rule: Rule, knob: str, value: Any) -> str:
    """What the knob would have to be, rounded to the keeping side."""
    if isinstance(rule, OneOf):
        return f"{knob} with {value}"
    least = isinstance(rule, AtLeast)
    return f"{knob} {'<=' if least else '>='} {outward(value, up=not least)}"


def partners(own: set[int], row_id: str, cleaned: Row | None, places: Places, knobs: Knobs) -> dict[str, Any]:
    """Near duplicates of a record, most similar first, and what became of each pair.

    Pairs name records by row number and were verified between one record of each text: `own` are the rows of this
    record and its equals, and a partner that gave way to an equal is told by the one that stayed for it.
    """
    asked = pa.array(sorted(own), pa.int64())
    pairs = find_rows(
        places.pairs,
        ["a_row", "b_row"],
        lambda keys: pc.or_kleene(*(pc.is_in(keys[name], value_set=asked) for name in ("a_row", "b_row"))),
    )
    sides = [(pair["b_row"] if pair["a_row"] in own else pair["a_row"], pair) for pair in pairs]
    ids = {row: found["id"] for row, found in take(places.measures, (row for row, _ in sides), ["id"]).items()}
    sides.sort(key=lambda side: (-side[1]["similarity"], ids[side[0]]))
    told = {ids[row]: row for row, _ in sides[:MAX_PARTNERS]}
    fates = rows_of(places.cleaned, told)
    others = {other: fates[other]["partner"] for other in fates if fates[other]["rule"] == "exact_duplicate"}
    fates |= rows_of(places.cleaned, dict.fromkeys(set(others.values()) - fates.keys()))
    asked_labels = told | dict.fromkeys(others.values()) | {row_id: min(own)}
    labels = {one: row["label"] for one, row in rows_of(places.records, asked_labels, ["id", "label"]).items()}
    return {
        "count": len(sides),
        "pairs": [
            {
                "id": others.get(ids[row], ids[row]),
                "similarity": pair["similarity"],
                "veto": pair["veto"],
                "fate": fate(row_id, others.get(ids[row], ids[row]), pair, cleaned, fates, labels, knobs),
            }
            for row, pair in sides[:MAX_PARTNERS]
        ],
    }


def rows_of(path: Path, wanted: Mapping[str, int | None], columns: list[str] | None = None) -> dict[str, Row]:
    """Rows of a file by id: looked up where they should stand, searched for where they do not."""
    if not path.exists() or not wanted:
        return {}
    there = take(path, (row for row in wanted.values() if row is not None), columns).values()
    found = {row["id"]: row for row in there if row["id"] in wanted}
    missing = pa.array(sorted(wanted.keys() - found.keys()), pa.string())
    if len(missing):
        found |= {
            row["id"]: row
            for row in find_rows(path, ["id"], lambda keys: pc.is_in(keys["id"], value_set=missing), columns)
        }
    return found


def fate(
    row_id: str,
    other: str,
    pair: Row,
    cleaned: Row | None,
    fates: Mapping[str, Row],
    labels: Mapping[str, str | None],
    knobs: Knobs,
) -> str:
    """What a pair came to: kept apart by a veto or the threshold, merged, or settled by another decision first."""
    if pair["veto"] is not None:
        below = f", and it is below {knobs.similarity_knob}" if pair["similarity"] < knobs.similarity else ""
        return f"kept apart: {pair['veto']} differs{below}"
    if knobs.similarity is not None and pair["similarity"] < knobs.similarity:
        return f"kept apart: below {knobs.similarity_knob} {knobs.similarity:g}"
    others = fates.get(other)
    if cleaned is None or others is None:
        return "similar enough to merge"
    if cleaned["verdict"] == "dropped" and cleaned["partner"] == other:
        return "this record went to it"
    if others["verdict"] == "dropped" and others["partner"] == row_id:
        return "it went to this record"
    for name, row in (("this record", cleaned), ("it", others)):
        if row["verdict"] == "dropped":
            to = f", to {row['partner']}" if row["partner"] else ""
            return f"{name} was dropped by {row['rule']}{to}"
    mine, its = labels.get(row_id), labels.get(other)
    return "kept apart: their labels contradict" if mine != its and None not in (mine, its) else "both kept"


def reviewed(row_id: str, review: Path, with_text: bool) -> dict[str, Any] | None:
    """The record's line in the review file of suspected labels, or None. Labels are told with the text only."""
    if not review.exists():
        return None
    with review.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row.get("id") == row_id:
                labels = ("given", "suggested", "text", "label")
                return {str(name): value for name, value in row.items() if with_text or name not in labels}
    return None


def refused(origin: Row, quarantine: Path, with_text: bool) -> dict[str, Any]:
    """Size, and with the text the first bytes, of a quarantined record."""
    if not quarantine.exists():
        return {}
    with quarantine.open("rb") as file:
        for line in file:
            entry = json.loads(line)
            if (entry["source"], entry["line"], entry["offset"]) == (
                origin["source"],
                origin["line"],
                origin["offset"],
            ):
                raw = base64.b64decode(entry["raw"])
                told = {"bytes": entry["bytes"], "bytes_stored": len(raw)}
                return told | ({"raw": raw.decode("utf-8", "backslashreplace")} if with_text else {})
    return {}


def outward(value: float, up: bool) -> str:
    """A number in few digits that is not on the wrong side of the measured one."""
    if float(value).is_integer():
        return f"{int(value)}"
    exact = Decimal(repr(value))  # the fewest digits that are this number
    last = Decimal(1).scaleb(exact.adjusted() - DIGITS + 1)
    rounded = exact.quantize(last, ROUND_CEILING if up else ROUND_FLOOR)
    return f"{rounded.normalize():f}"


def pick(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def one_of(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None
