"""The target's examples out of a file, read as strictly as any records, with the lines that are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.errors import DaymillError
from data.intake import Intake
from data.readers.item import Limits
from data.validate import FieldMap, field_map

SHOWN = 5  # refused records that an error names


@dataclass(frozen=True)
class Target:
    """Examples in the order of the file; a label is None where an example has none."""

    ids: list[str]
    texts: list[str]
    labels: list[str | None]


def load_target(
    path: str | Path,
    fields: FieldMap | Mapping[str, str | Sequence[str] | None] | None = None,
    limits: Limits | None = None,
) -> Target:
    """Records of one file in any format that ingest reads, their fields mapped by `fields`.

    Raises DaymillError where there is no file, where a record is refused (with its line and rule: of so few examples
    none is left out silently) and where a mapped name is in no record.
    """
    file = Path(path)
    if not file.is_file():
        raise DaymillError(f'target {path} is no file; expected records such as {{"text": ..., "label": ...}} a line')
    intake = Intake(fields if isinstance(fields, FieldMap) else field_map(fields), limits or Limits())
    result, refused = Target([], [], []), []
    for batch in intake.decide(file.name, file):
        for record in batch.kept:
            result.ids.append(record.id)
            result.texts.append(record.text)
            result.labels.append(record.label)
        for place in sorted(batch.refused):
            line, note = batch.lines[place], batch.notes[place]
            where = f"line {line:,}" if line is not None else "the file"
            refused.append(f"{where}: {batch.rules[place]}" + (f" ({note})" if note else ""))
    if refused:
        more = f"; and {len(refused) - SHOWN:,} more" if len(refused) > SHOWN else ""
        raise DaymillError(
            f"target {path}: {len(refused):,} examples cannot be read: {'; '.join(refused[:SHOWN])}{more}. "
            "Correct them, or take them out"
        )
    intake.complain()
    return result
