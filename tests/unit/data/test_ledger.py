"""The ledger holds every decision, in order, and notices a record that is missing or counted twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import data.ledger as ledger_module
from data.errors import DaymillError
from data.ledger import LEDGER_SCHEMA, Ledger, check_conservation, ledger_table, read_ledger


def test_rows_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "FLUSH_ROWS", 3)
    path = tmp_path / "ledger.parquet"
    with Ledger(path) as ledger:
        for i in range(5):
            ledger.add(source="d/a.jsonl", line=i + 1, offset=i * 10, id=f"r{i}", verdict="kept", stage="ingest")
        ledger.extend(ledger_table({"source": "d/b.csv", "id": ["r5", None], "verdict": "dropped"}, 2, "clean"))
        ledger.add(source="d/c", verdict="quarantined", stage="ingest", rule="dtd", similarity=0.5, partner="r0")
    rows = read_ledger(path).to_pylist()
    assert [row["id"] for row in rows] == ["r0", "r1", "r2", "r3", "r4", "r5", None, None]
    filled = {name: value for name, value in rows[1].items() if value is not None}
    assert filled == {
        "source": "d/a.jsonl",
        "line": 2,
        "offset": 10,
        "id": "r1",
        "verdict": "kept",
        "stage": "ingest",
        "rule": "",
    }
    assert (rows[7]["rule"], rows[7]["similarity"], rows[7]["partner"]) == ("dtd", 0.5, "r0")
    assert ledger.counts == {"kept": 5, "dropped": 2, "quarantined": 1, "repaired": 0}


def test_an_empty_ledger_has_its_columns(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.parquet"):
        pass
    assert read_ledger(tmp_path / "l.parquet").schema.equals(LEDGER_SCHEMA)


def test_same_decisions_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Ledger(tmp_path / name) as ledger:
            ledger.add(source="s", verdict="kept", stage="ingest", id="r")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failed_stage_leaves_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Ledger(tmp_path / "l.parquet") as ledger:
        ledger.add(source="s", verdict="kept", stage="ingest")
        raise RuntimeError("killed")
    assert not list(tmp_path.iterdir())


def verdicts(*names: str) -> pa.Table:
    return ledger_table({"source": "s", "verdict": list(names)}, len(names), "ingest")


def test_conservation_counts_a_repaired_record_as_kept() -> None:
    counts = check_conservation(4, verdicts("kept", "repaired", "dropped", "quarantined"))
    assert counts == {"kept": 2, "dropped": 1, "quarantined": 1, "repaired": 1}
    assert counts["kept"] + counts["dropped"] + counts["quarantined"] == 4


@pytest.mark.parametrize(("rows_in", "what"), [(3, "no decision"), (1, "decided twice")])
def test_a_lost_or_doubled_record_is_an_error(rows_in: int, what: str) -> None:
    with pytest.raises(DaymillError, match=what):
        check_conservation(rows_in, verdicts("kept", "kept"))


def test_conservation_reads_a_file(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.add(source="s", verdict="kept", stage="ingest")
    assert check_conservation(1, tmp_path / "l")["kept"] == 1
    with pytest.raises(DaymillError, match="no ledger"):
        check_conservation(1, tmp_path / "other")


def test_unknown_verdicts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lost"), Ledger(tmp_path / "l") as ledger:
        ledger.add(source="s", verdict="lost", stage="ingest")
    with pytest.raises(ValueError, match="lost"), Ledger(tmp_path / "l") as ledger:
        ledger.extend(verdicts("lost"))
