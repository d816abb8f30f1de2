"""The compiled scanner and the strict parser decide alike: records, ledger, quarantine, tallies, whatever comes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import data.fast_intake as fast_intake
import data.intake as intake_module
from data.decided import Decided, decided
from data.fast_intake import decide_lines
from data.intake import Intake, restored, stored
from data.readers import stream
from data.readers.item import Limits
from data.readers.line_chunks import line_chunks
from data.readers.lines import lines
from data.records import is_json_lines
from data.validate import field_map

CASES = Path(__file__).parents[2] / "cases"
# Large ones in blocks of 16 bytes would take minutes.
PATHS = [path for path in sorted(CASES.glob("format*/*.jsonl*")) if is_json_lines(path)]
IN_PIECES = [
    (path, chunk)
    for path in PATHS
    for chunk in (16, 300, 1 << 20)
    if chunk == 1 << 20 or ".gz" not in path.name or path.stat().st_size < 1000
]
# Compiling takes long once a machine, and hypothesis would blame the example.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def scanner_from_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fast_intake, intake_module):
        monkeypatch.setattr(module, "TYPED_ROWS", 0)


def in_pieces(patch: pytest.MonkeyPatch, size: int) -> None:
    patch.setattr(fast_intake, "CHUNK", size)
    patch.setattr(stream, "BLOCK", size)


def tables(found: list[Decided]) -> tuple[list[Any], list[Any], list[Any]]:
    for done in found:
        done.records.validate(full=True)
    records = pa.concat_tables([done.records for done in found]).to_pylist() if found else []
    ledger = pa.concat_tables([done.ledger for done in found]).to_pylist() if found else []
    return records, ledger, [refusal for done in found for refusal in done.refused]


def assert_alike(path: Path, mapping: dict[str, Any] | None = None, **limits: int) -> Intake:
    strict, fast = (Intake(field_map(mapping), Limits(**limits)) for _ in range(2))
    expected = tables([decided(batch) for batch in strict.decide("demo", path)])
    assert tables(list(decide_lines(fast, "demo", path))) == expected
    assert stored(fast.tallies[0]) == stored(strict.tallies[0])
    assert list(fast.tallies[0].shapes) == list(strict.tallies[0].shapes)
    assert (fast.mapper.objects, fast.mapper.matched) == (strict.mapper.objects, strict.mapper.matched)
    assert len(fast.seen) == len(strict.seen)
    return fast


@pytest.mark.parametrize(("path", "chunk"), IN_PIECES, ids=lambda value: getattr(value, "name", None))
def test_format_cases(path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces(monkeypatch, chunk)
    assert_alike(path)


WORDS = (
    '"2024-02-29" "2023-02-29" "2024-05-01T10:00:00Z" "0000-01-01" 1 -0 -0.0 1.50 0.5 1e5 1E400 01 1. - .5 '
    "12345678901234567890 123456789012345.5 0.00001234 1e-7 1.0 NaN -Infinity null nul true false tru \\ "
    '"" "\\u00a0" "\\u3000" "\\/" "\\u0000" "\\x" "\\ud83d\\ude00" "\\ud800" "\\udc00\\ud800" "\\u003a" "unended '
    '"a\\nb\\"c" "é" "你好" "😀"'
).encode()
BYTES = [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc2\xa0"', b'"\t"', b'" "', b'"\xf4\x90\x80\x80"', b'"\xe2\x80"']
SCALARS = st.sampled_from(WORDS.split() + BYTES)
TEXTS = st.text(max_size=40).map(lambda text: json.dumps(text).encode())
RAW_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(
    lambda text: json.dumps(text, ensure_ascii=False).encode()
)
NUMBERS = (st.integers() | st.floats(allow_nan=False)).map(lambda number: json.dumps(number).encode())
NESTED = st.recursive(
    SCALARS | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[" + b", ".join(items) + b"]")
        | st.lists(st.tuples(st.sampled_from([b'"a"', b'"b"', b'"\\u0061"']), inner), max_size=3).map(
            lambda pairs: b"{" + b",".join(key + b":" + value for key, value in pairs) + b"}"
        )
    ),
    max_leaves=5,
)
VALUES = st.one_of(SCALARS, TEXTS, RAW_TEXTS, NUMBERS, NESTED)
IDS = st.integers(0, 12).flatmap(lambda n: st.sampled_from([b"%d" % n, b'"%d"' % n, b'"content-%d"' % n]))
PAIRS = st.one_of(
    st.tuples(st.just(b'"id"'), IDS),
    st.tuples(st.just(b'"text"'), TEXTS | RAW_TEXTS | st.sampled_from([b'"one"', b'"two"'])),
    st.tuples(
        st.sampled_from([b'"id"', b'"text"', b'"label"', b'"date"', b'"x"', b'"k\\u0078"', '"é"'.encode()]), VALUES
    ),
)
BETWEEN = st.sampled_from([b",", b", ", b" ,\t", b"\r,"])
OBJECTS = st.tuples(
    st.lists(PAIRS, max_size=7, unique_by=lambda pair: pair[0]) | st.lists(PAIRS, max_size=4), BETWEEN
).map(lambda made: b"{" + made[1].join(key + b": " + value for key, value in made[0]) + b"}")
LINES = st.one_of(
    OBJECTS, OBJECTS, OBJECTS, st.sampled_from([b"", b" \t\r", b"[]", b"{", b'{"text":"a"}}']), st.binary(max_size=20)
)
MAPPINGS = st.sampled_from([None, {"text": ["text", "x"]}, {"id": None}, {"label": "x", "date": None}])


@relaxed
@given(st.lists(LINES, max_size=12), st.sampled_from([b"", b"\n"]), MAPPINGS, st.sampled_from([10, 200, 1 << 20]))
def test_any_lines(rows: list[bytes], end: bytes, mapping: dict[str, Any] | None, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        in_pieces(patch, chunk)
        path = Path(folder, "a.jsonl")
        path.write_bytes(b"\n".join(rows) + end)
        assume(is_json_lines(path))
        assert_alike(path, mapping)
        assert_alike(path, mapping, max_record_bytes=30, raw_bytes=7)


def test_the_scanner_takes_what_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: were all lines left to the strict parser, both would be alike for nothing."""
    strict: list[bytes] = []
    really = fast_intake.line_item
    monkeypatch.setattr(fast_intake, "line_item", lambda *given: strict.append(given[2]) or really(*given))
    path = tmp_path / "a.jsonl"
    rows: list[Any] = [{"id": i, "text": f"é \n {i}", "date": "2024-05-01", "meta": {"a": [i]}} for i in range(50)]
    path.write_text("".join(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate(rows)) + "{\n")
    assert_alike(path)
    assert strict == [b"{"]


def test_a_cursor_goes_on_where_the_first_run_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces(monkeypatch, 200)
    path = tmp_path / "a.jsonl"
    path.write_text("\ufeff" + "".join(json.dumps({"id": i, "text": "t" * i}) + "\n\n" for i in range(60)))
    whole = Intake(field_map(), Limits())
    expected = list(decide_lines(whole, "demo", path))
    half = Intake(field_map(), Limits())
    reader = decide_lines(half, "demo", path)
    found = [next(reader) for _ in range(3)]
    half.tallies = [restored(json.loads(json.dumps(stored(half.tallies[0]))))]
    found += decide_lines(half, "demo", path, found[-1].cursor)
    assert tables(found) == tables(expected)
    assert stored(half.tallies[0]) == stored(whole.tallies[0])


def test_a_file_that_breaks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        yield b'{"id":1,"text":"a"}\n{"id":2,"te'
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fast_intake, "blocks", broken)
    path = tmp_path / "a.jsonl"
    records, ledger, refused = tables(list(decide_lines(Intake(field_map(), Limits()), "demo", path)))
    assert [record["id"] for record in records] == ["1"]
    assert [row["rule"] for row in ledger] == ["", "unreadable"] and len(refused) == 1


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 40), st.integers(1, 25))
def test_chunks_hold_the_lines_of_a_stream(blocks: list[bytes], size: int, limit: int) -> None:
    blocks = [block for block in (block.replace(b"\x00", b"\n") for block in blocks) if block]
    found = []
    for chunk in line_chunks(iter(blocks), lambda: size, limit, 3):
        if chunk.size >= 0:
            found.append((chunk.offset, chunk.data if chunk.size <= limit else chunk.data[:3], chunk.size, chunk.ended))
            continue
        offset = chunk.offset
        for line in chunk.data[:-1].split(b"\n"):
            found.append((offset, line if len(line) <= limit else line[:3], len(line), True))
            offset += len(line) + 1
    assert found == list(lines(blocks, limit, 3))
