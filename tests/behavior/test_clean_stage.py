"""clean and split as stages: records in, kept records, ledgers, expectations and a page that needs no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import DaymillError
from data.expectations import _observed, load_suite
from data.ledger import Ledger
from data.shards import RECORD_SCHEMA, ShardWriter, read_table
from tasks.clean import main as clean
from tasks.clean_params import Clean
from tasks.params import load
from tasks.score import Score
from tasks.score import main as score
from tasks.split import Shares, Split
from tasks.split import main as split
from tasks.stage import Context, Result

ROOT = Path(__file__).resolve().parents[2]
SPLIT = Split(
    by="group",
    shares=Shares(train=0.7, valid=0.1, test=0.2),
    salt="daymill",
    skip_title=True,
    keep="test",
    undated="train",
    valid_from=None,
    test_from=None,
    label_share_tolerance=0.2,
    on_missing_label="error",
)
SUITES = Path(__file__).resolve().parents[2] / "expectations"
OUTS = tuple(Path(f"artifacts/{name}") for name in ("score", "clean", "split"))


@pytest.fixture(autouse=True)
def in_a_root_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_records(rows: list[dict[str, Any]], shard_rows: int = 50_000) -> None:
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in RECORD_SCHEMA.names}
    with ShardWriter("artifacts/ingest/records", shard_rows=shard_rows) as writer:
        writer.write(pa.table(columns, schema=RECORD_SCHEMA))
    with Ledger("artifacts/ingest/ledger.parquet") as ledger:
        for row in rows:
            ledger.add(source=row["source"], verdict="kept", stage="ingest", id=row["id"])


def note(number: int, **given: Any) -> dict[str, Any]:
    words = "".join(chr(97 + int(digit)) for digit in f"{number:04d}")
    return {
        "id": f"n{number}",
        "text": f"This is the note on {words} and what became of it",
        "label": ("ham", "spam")[number % 2],
        "date": f"2026-01-{number % 28 + 1:02d}",
        "source": "notes/a.jsonl",
        "extra": "{}",
    } | given


def run_clean(tmp_path: Path, suites: tuple[str, ...] = (), measured: bool = False, **knobs: Any) -> Result:
    """score, unless `measured`, and clean; with the shipped knobs but for the learned model and near duplicates."""
    if not measured:
        context = Context("score", tmp_path, tmp_path / "work/score", OUTS)
        context.work.mkdir(parents=True, exist_ok=True)
        measured_by = load("score", Score, ROOT / "params.yaml")
        learned = measured_by.learned.model_copy(update={"rows": 0})  # it needs real texts, and time
        score(measured_by.model_copy(update={"learned": learned}), context)
    shipped = load("clean", Clean, ROOT / "params.yaml")
    given = {"suites": suites, "input_suites": (), "similarity": 1.0} | knobs
    return clean(shipped.model_copy(update=given), Context("clean", tmp_path, tmp_path / "work/clean", OUTS))


def suite(tmp_path: Path, *expectations: dict[str, Any], **more: Any) -> str:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"name": "mine", "expectations": expectations} | more))
    return str(path)


def messy() -> list[dict[str, Any]]:
    rows = [note(n) for n in range(200)]
    rows += [note(200, text="", label=None), note(201, text="!!! ??? *** ###"), note(202, text="spam " * 300)]
    rows += [note(203, text=rows[7]["text"].upper(), label="spam"), note(204, text=rows[8]["text"] + " ")]
    return [*rows, note(205, text=rows[9]["text"], label="ham")]


def test_every_record_is_decided_once_with_its_reason(tmp_path: Path) -> None:
    write_records(messy())
    result = run_clean(tmp_path)
    ledger = {row["id"]: row for row in pq.read_table("artifacts/clean/ledger.parquet").to_pylist()}
    kept = read_table("artifacts/clean/records").to_pylist()

    assert (result.rows_in, result.rows_out) == (206, len(kept)) == (206, 200)
    assert len(ledger) == 206
    assert Counter(row["rule"] for row in ledger.values() if row["verdict"] == "dropped") == {
        "min_chars": 1,
        "max_symbol_ratio": 1,
        "max_repeated_ngrams": 1,
        "exact_duplicate": 3,
    }
    assert ledger["n200"]["score"] == 0.0
    assert (ledger["n8"]["verdict"], ledger["n8"]["partner"], ledger["n8"]["similarity"]) == ("dropped", "n204", 1.0)
    assert ledger["n1"] == ledger["n1"] | {"verdict": "kept", "rule": "", "source": "notes/a.jsonl", "stage": "clean"}
    assert {row["id"] for row in kept} == {row_id for row_id, row in ledger.items() if row["verdict"] != "dropped"}


def test_keep_all_keeps_one_a_label_and_the_shipped_suite_holds(tmp_path: Path) -> None:
    rows = messy()
    write_records([*rows, note(206, text=rows[9]["text"], label=rows[9]["label"])])
    result = run_clean(tmp_path, (str(SUITES / "records.json"),), on_label_conflict="keep_all")
    kept = {row["id"]: row["label"] for row in read_table("artifacts/clean/records").to_pylist()}
    same = [kept[row_id] for row_id in ("n9", "n205", "n206") if row_id in kept]
    assert sorted(same) == ["ham", "spam"]
    assert result.metrics["dropped_by_rule"]["exact_duplicate"] == 3


def test_what_a_person_said_of_a_label_wins_over_its_copies(tmp_path: Path) -> None:
    """Two copies say otherwise, and were not looked at; a relabelled record stays the one that survives."""
    rows = [*messy(), note(206, text=rows_text(9), label="ham"), note(207, text=rows_text(11), label="ham")]
    write_records(rows)
    (tmp_path / "judgments").mkdir()
    header = "id,given,suggested,confidence,decision,note\n"
    (tmp_path / "judgments/labels.csv").write_text(header + "n9,spam,,,keep,seen\nn11,,ham,,relabel,\nn999,,,,drop,\n")
    run_clean(tmp_path, review="judgments/labels.csv")
    kept = {row["id"]: row["label"] for row in read_table("artifacts/clean/records").to_pylist()}
    assert kept["n9"] == "spam" and not {"n205", "n206"} & kept.keys()
    assert {kept[row_id] for row_id in ("n11", "n207") if row_id in kept} == {"ham"}
    (tmp_path / "judgments/labels.csv").write_text(header + "n9,ham,,,keep,shifted\n")
    with pytest.raises(DaymillError, match="review of record n9 is of another label"):
        run_clean(tmp_path, measured=True, review="judgments/labels.csv")


def rows_text(number: int) -> str:
    return str(note(number)["text"])


def test_a_contradicted_label_is_removed_and_the_ledger_says_repaired(tmp_path: Path) -> None:
    write_records(messy())
    run_clean(tmp_path)
    survivor = next(
        row for row in pq.read_table("artifacts/clean/ledger.parquet").to_pylist() if row["verdict"] == "repaired"
    )
    assert {survivor["id"], survivor["partner"]} == {"n9", "n205"}
    kept = {row["id"]: row for row in read_table("artifacts/clean/records").to_pylist()}
    assert kept[survivor["id"]]["label"] is None
    assert kept["n1"]["label"] == "spam"


def test_shards_and_order_change_neither_survivors_nor_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, (rows, shard_rows) in enumerate([(messy(), 50_000), (messy(), 7), (messy()[::-1], 50_000)]):
        root = tmp_path / str(number)
        root.mkdir()
        shutil.copy(ROOT / "params.yaml", root)
        monkeypatch.chdir(root)
        write_records(rows, shard_rows)
        run_clean(root)
        ids = sorted(read_table("artifacts/clean/records", ["id"])["id"].to_pylist())
        found.append((ids, sorted(Path("artifacts/clean/records").iterdir())[0].read_bytes()))
    assert found[0] == found[1]
    assert found[0][0] == found[2][0]


def test_nothing_left_is_an_error_that_counts_the_reasons(tmp_path: Path) -> None:
    write_records([note(n, text="!!! ??? *** ###") for n in range(3)])
    with pytest.raises(DaymillError, match=r"none of 3 records is left \(max_symbol_ratio 3\)"):
        run_clean(tmp_path)


def test_split_writes_parts_with_clusters_a_ledger_and_a_report(tmp_path: Path) -> None:
    write_records([*messy(), note(300, label=None)])
    run_clean(tmp_path)
    result = split(SPLIT, Context("split", tmp_path, tmp_path / "work", OUTS))
    report = json.loads(Path("artifacts/split/report.json").read_text())
    ledger = pq.read_table("artifacts/split/ledger.parquet").to_pylist()

    assert result.rows_in == len(ledger) == 201
    clusters = {}
    for name in ("train", "valid", "test"):
        table = read_table(f"artifacts/split/{name}")
        assert table.column_names == [*RECORD_SCHEMA.names, "cluster", "weight"]
        assert table.num_rows == report["parts"][name]["rows"] == sum(row["note"] == name for row in ledger)
        assert all(re.fullmatch("[0-9a-f]{32}", cluster) for cluster in table["cluster"].to_pylist())
        clusters[name] = set(table["cluster"].to_pylist())
        assert name == "train" or table["label"].null_count == 0
    assert not clusters["train"] & clusters["test"] and not clusters["valid"] & (clusters["train"] | clusters["test"])
    assert sum(report["parts"]["test"]["label_shares"].values()) == pytest.approx(1)


def test_a_suite_that_cannot_be_read_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text('{"expectations": [\n  {"type": }\n]}')
    with pytest.raises(DaymillError, match=r"suite.json:2: not JSON"):
        load_suite(path)
    path.write_text('{"expectation": []}')
    with pytest.raises(DaymillError, match="list named `expectations`"):
        load_suite(path)
    path.write_text('{"expectations": [{"kwargs": {}}]}')
    with pytest.raises(DaymillError, match="expectation 1 has no `type`"):
        load_suite(path)
    with pytest.raises(DaymillError, match="no such suite"):
        load_suite(tmp_path / "missing.json")


def test_what_was_found_is_a_number_and_never_a_text() -> None:
    assert _observed({"observed_value": 1234.5}, of_type=False) == "1234.5"
    assert _observed({"observed_value": "str"}, of_type=True) == "str"
    assert _observed({"observed_value": "secret"}, of_type=False) == "another value"
    assert _observed({"observed_value": ["secret", "other"]}, of_type=False) == "2 values"


@pytest.mark.slow
def test_the_shipped_suite_holds_and_the_page_needs_no_network(tmp_path: Path) -> None:
    write_records(messy())
    run_clean(tmp_path, (str(SUITES / "records.json"), str(SUITES / "spam.json")))
    page = Path("artifacts/clean/docs/index.html").read_text()
    expected = len(load_suite(SUITES / "records.json").expectations)
    assert f"all {expected} expectations hold" in page  # the mails' suite does not concern these records
    assert "exact_duplicate" in page
    assert not re.search(r"https?://|<script|<link|@import|url\(|\ssrc=", page)
    assert "note on" not in page


@pytest.mark.slow
def test_a_failing_expectation_stops_the_stage_with_at_most_five_ids(tmp_path: Path) -> None:
    rows = [note(n) for n in range(40)] + [note(n, label="secret-label") for n in range(40, 60)]
    write_records(rows)
    label_set = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "label", "value_set": ["ham", "spam"]},
    }
    with pytest.raises(DaymillError) as error:
        run_clean(tmp_path, (suite(tmp_path, label_set),))
    message = str(error.value)
    assert "1 of 1 expectations failed" in message
    assert "20 of 60 records" in message
    assert len(re.findall(r"\bn\d+\b", message)) == 5
    assert "secret" not in message
    assert not Path("artifacts/clean/records").exists()
    assert "secret" not in (page := Path("artifacts/clean/docs/index.html").read_text())
    assert "fails" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ({"type": "expect_nonsense", "kwargs": {}}, "expect_nonsense"),
        ({"type": "expect_column_values_to_be_unique", "kwargs": {"colum": "id"}}, "colum"),
        ({"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "nothing"}}, "nothing"),
        ({"type": "expect_column_values_to_be_unique", "kwargs": {"column": "label"}}, "60 of 60 records"),
        ({"type": "expect_column_mean_to_be_between", "kwargs": {"column": "label"}}, "cannot be computed"),
        (
            {"type": "expect_column_max_to_be_between", "kwargs": {"column": "date", "min_value": "2026-02-01"}},
            "found 2026-01-28",
        ),
        (
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "date", "min_value": "2026-01-02"}},
            "of 60 records, such as n0",
        ),
        (
            {
                "type": "expect_column_quantile_values_to_be_between",
                "kwargs": {"column": "chars", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 5]]}},
            },
            "median, min, max",
        ),
        ({"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 61}}, "found 60"),
        ({"type": "expect_column_max_to_be_between", "kwargs": {"column": "chars", "max_value": 5}}, "found 4"),
        ({"type": "expect_table_columns_to_match_set", "kwargs": {"column_set": ["id", "x"]}}, '"missing": ["x"]'),
    ],
)
def test_each_kind_of_failure_says_what_it_found(tmp_path: Path, expectation: dict[str, Any], message: str) -> None:
    write_records([note(n) for n in range(60)])
    with pytest.raises(DaymillError) as error:
        run_clean(tmp_path, (suite(tmp_path, expectation),))
    assert message in str(error.value)
    assert not re.search("Traceback|ham|spam", str(error.value))


@pytest.mark.slow
def test_a_suite_for_some_sources_sees_only_their_records(tmp_path: Path) -> None:
    write_records([note(n) for n in range(20)] + [note(n, source="other/b.jsonl", label=None) for n in range(20, 30)])
    not_null = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "label"}}
    run_clean(tmp_path, (suite(tmp_path, not_null, only_sources=["notes/*"]),))
    with pytest.raises(DaymillError, match="10 of 10 records"):
        run_clean(tmp_path, (suite(tmp_path, not_null, only_sources=["other/?.jsonl"]),))


WATCHED_IMPORT = """
import os, sys
class Watch:
    def find_spec(self, name, *rest):
        if name == "great_expectations":
            print(os.environ.get("GX_ANALYTICS_ENABLED"), flush=True)
sys.meta_path.insert(0, Watch())
import data.expectations
assert "great_expectations" not in sys.modules
data.expectations._library()
"""


@pytest.mark.slow
def test_the_library_is_imported_late_and_with_its_telemetry_off() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WATCHED_IMPORT],
        cwd=SUITES.parent,
        env=os.environ | {"GX_ANALYTICS_ENABLED": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["false"]
