"""A made-up corpus whose truth is known: what is noise and of what kind, what repeats what, whose labels lie.

The truth lies beside the records as `_truth.jsonl`; files that begin with "_" or "." are no input. Every record follows
from the seed and its number alone, so a corpus of any size is written in little memory.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from data.samples.grammar import FOOTERS, note

TRUTH = "_truth.jsonl"
NOISE_KINDS = (
    "mojibake",
    "broken_bytes",
    "truncated",
    "empty",
    "symbols",
    "repeated_lines",
    "repeated_words",
    "boilerplate",
    "gibberish",
    "too_short",
    "missing_text",
)
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 180
FRAUD_SHARE = 0.35
GROUP_B_SHARE = 0.3
RECORDS_AN_ENTITY = 8

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Base:
    """A record before anything is done to it, and the label that is true whatever the record will say."""

    text: str
    label: str
    true_label: str
    group: str
    entity: str


def make_synthetic(
    out: Path,
    records: int,
    noise: float,
    seed: int = 0,
    exact: float = 0.05,
    near: float = 0.05,
    siblings: float = 0.02,
    bias: float = 0.15,
    csv_share: float = 0.0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write `records` notes about payments (label fraud or ok) and their truth to `out`; return what was planted.

    round(noise * records) records are noise, all kinds alike often. Of the others, `exact` repeat another record (case
    and white space may differ), `near` repeat it with small changes, and `siblings` have its words with other numbers,
    which makes them other records. In group b, `bias` of the ok records are labelled fraud. `csv_share` of the sound
    records go to notes.csv, the rest to notes.jsonl. Raises DaymillError for numbers that cannot be met.
    """
    _check(
        records, {"noise": noise, "exact": exact, "near": near, "siblings": siblings, "bias": bias, "csv": csv_share}
    )
    if exact + near + siblings > 0.9:
        raise DaymillError("exact + near + siblings is above 0.9; at least a tenth of the records must be originals")
    roles = _roles(records, noise, exact, near, siblings, seed)
    originals = [number for number, role in enumerate(roles) if role == "original"]
    out.mkdir(parents=True, exist_ok=True)
    names = ["notes.jsonl", TRUTH] + (["notes.csv"] if csv_share > 0 else [])
    parts = {name: out / f".{name}.part" for name in names}
    lines = Counter({"notes.csv": 1})
    with parts["notes.jsonl"].open("wb") as notes, parts[TRUTH].open("w", encoding="utf-8", newline="\n") as truth:
        table = parts["notes.csv"].open("w", encoding="utf-8", newline="") if csv_share > 0 else None
        fields = ["id", "text", "label", "group", "entity", "date"]
        writer = csv.DictWriter(table, fields) if table else None
        if writer:
            writer.writeheader()
        for number, role in enumerate(roles):
            rng = random.Random(f"{seed}/record/{number}")
            record, told = _record(number, role, originals, records, rng, seed, bias)
            to_csv = writer is not None and role not in NOISE_KINDS and rng.random() < csv_share
            told["file"] = "notes.csv" if to_csv else "notes.jsonl"
            lines[told["file"]] += 1
            told["line"] = lines[told["file"]]
            if writer is not None and to_csv:
                writer.writerow(record)
            else:
                notes.write(_line(record, role, rng) + b"\n")
            truth.write(json.dumps(told) + "\n")
            if progress:
                progress(number + 1, records)
        if table:
            table.close()
    for name, part in parts.items():
        os.replace(part, out / name)
    counts = Counter(roles)
    return {
        "records": records,
        "noisy": sum(counts[kind] for kind in NOISE_KINDS),
        "exact": counts["exact"],
        "near": counts["near"],
        "siblings": counts["sibling"],
        "kinds": {kind: counts[kind] for kind in NOISE_KINDS},
    }


def _check(records: int, shares: dict[str, float]) -> None:
    if records < 1:
        raise DaymillError(f"records is {records}; expected at least 1")
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise DaymillError(f"{name} is {share}; expected a share between 0 and 1")


def _roles(records: int, noise: float, exact: float, near: float, siblings: float, seed: int) -> list[str]:
    """What becomes of each record, with exact counts, in a random order."""
    noisy = round(noise * records)
    roles = [NOISE_KINDS[number % len(NOISE_KINDS)] for number in range(noisy)]
    sound = records - noisy
    for role, share in (("exact", exact), ("near", near), ("sibling", siblings)):
        roles += [role] * int(share * sound)
    roles += ["original"] * (records - len(roles))
    random.Random(f"{seed}/roles").shuffle(roles)
    return roles


def _record(
    number: int, role: str, originals: list[int], records: int, rng: random.Random, seed: int, bias: float
) -> tuple[dict[str, str], dict[str, Any]]:
    of = rng.choice(originals) if role in {"exact", "near", "sibling"} else None
    base = _base(number if of is None else of, records, seed, bias)
    text = {"exact": _exact, "near": _near, "sibling": _sibling}.get(role, _spoil(role))(base.text, rng)
    date = FIRST_DAY + timedelta(seconds=(number + rng.random()) / records * DAYS * 86_400)
    record = {
        "id": _id(number),
        "text": text,
        "label": base.label,
        "group": base.group,
        "entity": base.entity,
        "date": date.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    truth = {
        "id": record["id"],
        "noise": role if role in NOISE_KINDS else None,
        "duplicate": role if role in {"exact", "near"} else None,
        "duplicate_of": _id(of) if of is not None and role != "sibling" else None,
        "sibling_of": _id(of) if of is not None and role == "sibling" else None,
        "group": base.group,
        "label": base.true_label,
        "label_flipped": base.label != base.true_label,
    }
    return record, truth


def _base(number: int, records: int, seed: int, bias: float) -> Base:
    rng = random.Random(f"{seed}/base/{number}")
    entity = rng.randrange(max(1, records // RECORDS_AN_ENTITY))
    group = "b" if random.Random(f"{seed}/entity/{entity}").random() < GROUP_B_SHARE else "a"
    true_label = "fraud" if rng.random() < FRAUD_SHARE else "ok"
    flipped = true_label == "ok" and group == "b" and rng.random() < bias
    return Base(note(rng, true_label), "fraud" if flipped else true_label, true_label, group, f"customer-{entity:06d}")


def _id(number: int) -> str:
    return f"note-{number:08d}"


def _line(record: dict[str, str], role: str, rng: random.Random) -> bytes:
    """The record as a line of JSON, or what a broken writer left of it."""
    said = {name: value for name, value in record.items() if not (name == "text" and role == "missing_text")}
    line = json.dumps(said, ensure_ascii=False).encode("utf-8")
    if role == "truncated":
        return line[: rng.randint(len(line) // 3, len(line) - 2)].decode("utf-8", "ignore").encode("utf-8")
    if role == "broken_bytes":
        at = line.index(b'"text": "') + 9 + rng.randint(0, 40)
        return line[:at] + bytes([rng.choice((0xC3, 0xE9, 0xFF))]) + b" " + line[at:]
    return line


def _exact(text: str, rng: random.Random) -> str:
    return rng.choice((str, str.upper, str.lower, lambda t: t.replace(". ", ".  \n"), lambda t: f" {t}\n"))(text)


def _near(text: str, rng: random.Random) -> str:
    """One word taken out or doubled, a footer added, or two sentences swapped; numbers and names stay."""
    words, sentences = text.split(" "), text.split(". ")
    at = rng.choice(
        [i for i, word in enumerate(words) if word in {"the", "a", "and", "was", "with", "for", "in", "of"}]
    )
    change = rng.randrange(4)
    if change == 0:
        del words[at]
    elif change == 1:
        words.insert(at, words[at])
    elif change == 2:
        return f"{text} {rng.choice(FOOTERS)}"
    else:
        first, second = sentences[0].rstrip("."), sentences[1].rstrip(".")
        return ". ".join([second, first, *sentences[2:]]).rstrip(".") + "."
    return " ".join(words)


def _sibling(text: str, rng: random.Random) -> str:
    return re.sub(r"\d+", lambda found: str(int(found[0]) + rng.randint(1, 9)), text)


def _spoil(role: str) -> Callable[[str, random.Random], str]:
    """What a kind of noise makes of a text; kinds that spoil the line and not the text leave it."""
    spoilers: dict[str, Callable[[str, random.Random], str]] = {
        "mojibake": lambda text, _rng: _misread(text),
        "empty": lambda _text, rng: rng.choice(("", " ", "\n\t ")),
        "symbols": lambda _text, rng: "".join(rng.choices("!?#*~%$&/=+-_.:;|<> ", k=rng.randint(20, 120))),
        "repeated_lines": lambda text, rng: "\n".join([text.split(". ")[0]] * rng.randint(12, 40)),
        "repeated_words": lambda text, rng: " ".join([rng.choice(text.split())] * rng.randint(60, 300)),
        "boilerplate": lambda _text, rng: " ".join(rng.sample(FOOTERS, rng.randint(4, 7))),
        "gibberish": lambda _text, rng: " ".join(_gibberish(rng) for _ in range(rng.randint(15, 60))),
        "too_short": lambda _text, rng: rng.choice(("ok", "n/a", "-", "test", "see", "??", "x", "tbd")),
    }
    return spoilers.get(role, lambda text, _rng: text)


def _misread(text: str) -> str:
    # accents on every vowel, as in other languages, and UTF-8 read as a western charset
    return text.translate(str.maketrans("aeiou", "áéíóú")).encode("utf-8").decode("latin-1")


def _gibberish(rng: random.Random) -> str:
    return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=rng.randint(3, 11)))
