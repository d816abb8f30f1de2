"""The file in which a person says which doubtful labels stand: written for a spreadsheet, read strictly, obeyed.

A row has id, given, suggested, confidence, decision and note. `decision` is empty while nobody decided, or keep (the
given label stands), drop (the record goes), relabel (to the label in `suggested`, which may be overwritten by another).
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import pyarrow as pa

from data.errors import DaymillError

COLUMNS = ("id", "given", "suggested", "confidence", "decision", "note")
NEEDED = ("id", "decision")
Action = Literal["keep", "relabel", "drop"]
ACTIONS: tuple[Action, ...] = get_args(Action)
# A spreadsheet runs a cell that begins with one of these (OWASP, CSV injection); a quote before it makes it text.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
EXAMPLES = 5


class ReviewDecision(NamedTuple):
    """What a person decided on one record: the label to give it where relabelled, and who or why."""

    action: Action
    label: str | None = None
    note: str = ""
    given: str = ""


def write_review(
    path: Path,
    doubts: pa.Table,
    decided: Mapping[str, ReviewDecision],
    texts: Sequence[str] | None = None,
) -> None:
    """Write the doubts (columns of find_label_errors) by rank, with what was decided so far.

    Decisions on records that are in doubt no more follow at the end, by id: none is ever lost. `texts`, one a doubt,
    adds them as a last column; without it no text is in the file.
    """
    rows: list[dict[str, str]] = []
    columns = ("id", "label", "suggested", "p_suggested", "rank")
    found = zip(*(doubts.column(name).to_pylist() for name in columns), texts or [""] * doubts.num_rows, strict=True)
    for record, given, suggested, chance, _, text in sorted(found, key=lambda row: (row[4], row[0])):
        row = dict(zip(COLUMNS, (record, given, suggested, f"{chance:.4f}", "", "")))
        rows.append(row | _said(decided.get(record)) | {"text": text})
    doubted = {row["id"] for row in rows}
    for record in sorted(decided.keys() - doubted):
        row = dict.fromkeys(COLUMNS, "") | {"id": record, "given": decided[record].given, "text": ""}
        rows.append(row | _said(decided[record]))
    names = [*COLUMNS, "text"] if texts is not None else list(COLUMNS)
    beside = path.with_name(f".{path.name}.writing")
    with beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")  # ends lines with CRLF, as RFC 4180 says
        writer.writeheader()
        writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    os.replace(beside, path)


def read_review(path: Path, labels: Collection[str] | None = None) -> dict[str, ReviewDecision]:
    """The decisions by record id; rows without a decision are left out.

    Commas, semicolons or tabs may separate the cells, as spreadsheets write them. Raises DaymillError, with the file's
    lines, for missing columns, a decision that is none, a record that is decided twice, a relabelling to nothing or,
    where `labels` are given, to a label that is none of them.
    """
    decided: dict[str, ReviewDecision] = {}
    wrong: list[str] = []
    first: dict[str, int] = {}
    for line, row in _rows(path):
        record, said = _meant(row["id"]), row["decision"].strip().casefold()
        if not record:
            wrong.append(f"{path}:{line}: no id")
        elif record in first:
            wrong.append(f"{path}:{line}: the record {record} is already in line {first[record]}")
        elif said and said not in ACTIONS:
            wrong.append(f"{path}:{line}: the decision is none of {', '.join(ACTIONS)}, or empty for none")
        first.setdefault(record, line)
        label = _meant(row["suggested"]) if said == "relabel" else None
        if said == "relabel" and not label:
            wrong.append(f"{path}:{line}: relabel needs the new label in the column suggested")
        elif label is not None and labels is not None and label not in labels:
            wrong.append(f"{path}:{line}: no record has the label in the column suggested; mind case and spaces")
        if said in ACTIONS:
            decision = ReviewDecision(cast(Action, said), label, _meant(row["note"]), _meant(row["given"]))
            decided.setdefault(record, decision)
    if wrong:
        more = f"\n... and {len(wrong) - EXAMPLES:,} more" if len(wrong) > EXAMPLES else ""
        raise DaymillError("\n".join(wrong[:EXAMPLES]) + more)
    return decided


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Rows with the lines on which they begin; blank ones are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise DaymillError(f"{path}: cannot be read as UTF-8 text ({type(error).__name__})") from None
    head = content.partition("\n")[0]
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
    rows: list[tuple[int, dict[str, str]]] = []
    names: list[str] | None = None
    begins = 1
    try:
        for cells in reader:
            if names is None:
                names = [cell.strip().casefold() for cell in cells]
                missing = [name for name in NEEDED if name not in names]
                if missing:
                    raise DaymillError(
                        f"{path}:1: column {', '.join(missing)} is missing; expected {', '.join(NEEDED)}"
                    )
            elif any(map(str.strip, cells)):
                if len(cells) != len(names):
                    raise DaymillError(f"{path}:{begins}: {len(cells)} cells, expected {len(names)}")
                rows.append((begins, dict.fromkeys(COLUMNS, "") | dict(zip(names, cells, strict=True))))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DaymillError(f"{path}:{begins}: is no CSV ({error})") from None
    if names is None:
        raise DaymillError(f"{path}:1: is empty; expected a head with {', '.join(COLUMNS)}")
    return rows


def _said(decision: ReviewDecision | None) -> dict[str, str]:
    if decision is None:
        return {}
    said = {"decision": decision.action, "note": decision.note}
    return said | ({"suggested": decision.label} if decision.label is not None else {})


def _harmless(cell: str | None) -> str:
    cell = cell or ""
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _meant(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
