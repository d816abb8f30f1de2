"""Every format case is decided as expected, quickly and in little memory, with nothing heavy imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from data.check import check_file, render_table
from data.errors import DaymillError
from data.intake import Intake
from data.readers.item import Limits
from data.validate import field_map

CASES = Path(__file__).parents[2] / "cases" / "format"
EXPECTED: dict[str, dict[str, Any]] = json.loads((CASES / "expect.json").read_text(encoding="utf-8"))


def test_every_case_has_an_expectation() -> None:
    assert {path.name for path in CASES.iterdir()} == {*EXPECTED, "expect.json"}


@pytest.mark.parametrize("name", EXPECTED)
def test_format_case(name: str) -> None:
    expected = EXPECTED[name]
    result = check_file(CASES / name)
    assert (result.kept, result.quarantined) == (expected["kept"], expected["quarantined"])
    assert len(result.entries) == result.quarantined
    if "lines" in expected:
        assert {str(entry["line"]): entry["rule"] for entry in result.entries} == expected["lines"]
    if "rule" in expected:
        assert [entry["rule"] for entry in result.entries] == [expected["rule"]]
    records = [record for batch in Intake(field_map(), Limits()).decide(name, CASES / name) for record in batch.kept]
    assert [record.text for record in records] == expected.get("texts", [record.text for record in records])
    assert [record.id for record in records] == expected.get("ids", [record.id for record in records])


def test_places_of_what_was_cut() -> None:
    assert check_file(CASES / "cut.jsonl.gz").entries == [{"line": 3930, "offset": 339603, "rule": "truncated"}]
    assert check_file(CASES / "ragged.csv").entries == [
        {"line": 3, "offset": 26, "rule": "fields"},
        {"line": 4, "offset": 45, "rule": "fields"},
    ]
    assert check_file(CASES / "bom.jsonl").notes == ["a byte order mark was stripped"]


# VmHWM where there is /proc: ru_maxrss of a child also holds the peak of the process that started it.
CHILD = """
import json, os, resource, sys, time
from data.check import check_file

def peak_mb():
    if os.path.exists("/proc/self/status"):
        return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)

for path in sys.argv[1:]:
    started = time.monotonic()
    result = check_file(path)
    seconds = time.monotonic() - started
    heavy = sorted({"numpy", "pandas", "pyarrow", "torch", "rich"} & set(sys.modules))
    print(json.dumps([result.kept, result.quarantined, seconds, peak_mb(), heavy]))
"""


def in_child(*paths: Path) -> list[tuple[int, int, float, float, list[str]]]:
    """Kept, quarantined, seconds, peak MB so far and heavy modules for every file, decided by a fresh process."""
    done = subprocess.run([sys.executable, "-c", CHILD, *map(str, paths)], capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]  # type: ignore[misc]


def test_cases_take_under_a_second_and_200_mb() -> None:
    answers = in_child(*(CASES / name for name in EXPECTED))
    assert len(answers) == len(EXPECTED)
    for _, _, seconds, peak, heavy in answers:
        assert seconds < 1 and peak < 200 and not heavy


def test_records_larger_than_the_limit_are_not_held(tmp_path: Path) -> None:
    size = 80_000_000
    files = {
        "line.jsonl": (b'{"text":"', b'"}\n'),
        "array.json": (b'[{"text":"', b'"}]'),
        "tree.xml": (b"<r><x><text>", b"</text></x></r>"),
        "tag.xml": (b'<r><x a="', b'"/></r>'),
        "table.csv": (b"text\n", b"\n"),
    }
    for name, (before, after) in files.items():
        with (tmp_path / name).open("wb") as file:
            file.write(before)
            for _ in range(size // 1_000_000):
                file.write(b"x" * 1_000_000)
            file.write(after)
        kept, quarantined, _, peak, _ = in_child(tmp_path / name)[0]
        (tmp_path / name).unlink()
        assert (kept, quarantined) == (0, 1)
        assert peak < 75, name


def test_ids_are_counted_within_the_file_and_equal_records_without_ids_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text":"same"}\n{"text":"same"}\n{"text":"same"}\n{"text":"other"}\n')
    ids = [r.id for batch in Intake(field_map(), Limits()).decide("a", path) for r in batch.kept]
    assert ids[:3] == [ids[0], ids[0] + "-2", ids[0] + "-3"] and len(set(ids)) == 4
    assert check_file(path).notes == ["4 ids made from content"]


def test_a_json_line_has_four_keys(tmp_path: Path) -> None:
    line = json.loads(check_file(CASES / "id_types.jsonl").json_line())
    assert line == {
        "file": str(CASES / "id_types.jsonl"),
        "kept": 1,
        "quarantined": 1,
        "entries": [{"line": 2, "offset": 34, "rule": "duplicate-id"}],
    }


def test_mapping_and_limits_are_taken() -> None:
    assert check_file(CASES / "table.csv", {"text": "label"}).kept == 2
    assert check_file(CASES / "table.csv", limits=Limits(max_record_bytes=20)).entries[0]["rule"] == "size"
    wrong = check_file(CASES / "table.csv", {"text": "txt"})
    assert wrong.kept == 0 and "did you mean `text`" in wrong.notes[0]


def test_the_table_for_people() -> None:
    names = ("null_and_wrong_types.jsonl", "good.jsonl.gz", "blank_lines.jsonl")
    table = render_table([check_file(CASES / name) for name in names])
    assert "line 2, byte 82: text" in table
    assert "and 2 more; in all 4 not-an-object, 3 text" in table
    assert "note: 3 blank lines" in table
    assert table.splitlines()[-1].split() == ["3", "files", "6", "7"]


def test_a_path_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="does not exist"):
        check_file(tmp_path / "no.jsonl")
    with pytest.raises(DaymillError, match="is a folder"):
        check_file(tmp_path)
