"""Readers: places of records, damage, limits and blocks of any size."""

from __future__ import annotations

import datetime
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from data.errors import DaymillError
from data.readers.csv import read_csv
from data.readers.item import Bad, FileNotes, Found, Item, Limits
from data.readers.json_array import read_json_array, read_json_objects
from data.readers.jsonl import read_jsonl
from data.readers.stream import blocks, zstd_blocks
from data.readers.xml import read_xml
from data.records import read_records, source_files

SMALL = Limits(max_record_bytes=100, raw_bytes=10)


def read(path: Path, limits: Limits | None = None) -> tuple[list[Item], FileNotes]:
    notes = FileNotes()
    return list(read_records(path, limits or Limits(), notes)), notes


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def short(items: list[Item]) -> list[Any]:
    """Line, offset, and the value or the rule."""
    return [(i.line, i.offset, i.rule if isinstance(i, Bad) else i.value) for i in items]


def in_blocks(content: bytes, size: int) -> Any:
    return (content[at : at + size] for at in range(0, len(content), size))


DOCUMENTS: list[tuple[Any, bytes]] = [
    (read_jsonl, b'\xef\xbb\xbf{"a":1}\r\n\n  \n{"b":"' + b"x" * 150 + b'"}\n[1]\nnull\n{"c":\n{"d":"\xff"}\n{"e":2}'),
    (
        read_json_array,
        b' [{"a":"]\\"}"},\n{"b":"' + b"x" * 150 + b'"},,{"c":[1,{}]} {}, {"d":"\\\\"}\n] tail ' + b"z" * 200,
    ),
    (read_json_array, b'[{"a":1},{"b":"\\'),
    (read_json_objects, b'{"a":\n1}\n\n{"b":{"c":"}"}} {"d":1} x {"e":2}\n{"f"'),
    (
        read_xml,
        b'\xef\xbb\xbf<r>\n<x><a>1</a><a>2</a></x>\n<x k=">"/><x>'
        + b"y" * 150
        + b"</x>\n<x>&amp;<![CDATA[<]]></x></r>junk",
    ),
    (read_xml, b"<r><x>a</x><x>caf\xe9 </x></r>"),
    (read_csv, b'\xef\xbb\xbfid,text\n1,"a\n""b"""\n\n2\n3,"c" d\n4,' + b"x" * 150 + b'\n5,caf\xe9\n6,ok\r\n7,"open\n'),
]


@pytest.mark.parametrize("place", range(len(DOCUMENTS)))
def test_the_size_of_blocks_changes_nothing(place: int) -> None:
    reader, content = DOCUMENTS[place]
    whole = list(reader(iter([content]), SMALL, FileNotes()))
    assert any(isinstance(item, Found) for item in whole) and any(isinstance(item, Bad) for item in whole)
    for size in (1, 2, 3, 7, 64):
        pieces = list(reader(in_blocks(content, size), SMALL, FileNotes()))
        assert short(pieces) == short(whole)
        assert [i.size for i in pieces if isinstance(i, Bad)] == [i.size for i in whole if isinstance(i, Bad)]


@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.text(max_size=6) | st.lists(st.integers(), max_size=2)), max_size=6
    )
)
def test_an_array_has_its_elements(records: list[Any]) -> None:
    content = json.dumps(records, indent=1, ensure_ascii=False).encode("utf-8", "replace")
    items = list(read_json_array(in_blocks(content, 5), Limits(), FileNotes()))
    assert [item.value for item in items if isinstance(item, Found)] == json.loads(content)
    for item in items:
        assert item.offset is not None and item.line == content[: item.offset].count(b"\n") + 1
        assert content[item.offset :].startswith(item.raw)


def test_offsets_point_at_the_bytes() -> None:
    for reader, content in DOCUMENTS:
        for item in reader(iter([content]), Limits(raw_bytes=20), FileNotes()):
            assert content[item.offset :].startswith(item.raw), reader
            assert item.line == content[: item.offset].count(b"\n") + 1, reader


def test_a_record_over_the_limit_is_refused_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", b'{"a":1}\n{"b":"' + b"x" * 5000 + b'"}\n{"c":1}\n')
    items, _ = read(path, SMALL)
    assert short(items) == [(1, 0, {"a": 1}), (2, 8, "size"), (3, 5017, {"c": 1})]
    assert isinstance(items[1], Bad) and (items[1].size, len(items[1].raw)) == (5008, 10)


# Compression


def compress(kind: str, content: bytes) -> bytes:
    return gzip.compress(content, mtime=0) if kind == "gz" else zstandard.compress(content)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_streams_of_several_members(tmp_path: Path, kind: str) -> None:
    content = compress(kind, b'{"a":1}\n{"b"') + compress(kind, b":2}\n")
    items, notes = read(written(tmp_path / f"a.jsonl.{kind}", content))
    assert short(items) == [(1, 0, {"a": 1}), (2, 8, {"b": 2})] and notes.damage is None


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_cut_stream_at_every_byte(tmp_path: Path, kind: str) -> None:
    lines = [f'{{"id":"{i}","text":"row {i * 7919 % 1000}"}}\n'.encode() for i in range(30)]
    whole = compress(kind, b"".join(lines))
    for end in range(1, len(whole)):
        items, notes = read(written(tmp_path / f"a.jsonl.{kind}", whole[:end]))
        assert notes.damage and len([i for i in items if isinstance(i, Bad)]) == 1
        assert isinstance(items[-1], Bad) and items[-1].rule in ("truncated", "corrupt")
        assert [item.raw + b"\n" for item in items[:-1]] == lines[: len(items) - 1]
        assert items[-1].offset == sum(map(len, lines[: len(items) - 1]))
    assert len(read(written(tmp_path / f"a.jsonl.{kind}", whole))[0]) == 30


def test_of_a_cut_stream_everything_that_decompresses_is_kept(tmp_path: Path) -> None:
    content = b"".join(b'{"id":%d}\n' % (i * 7919 % 100_003) for i in range(20_000))
    whole = compress("gz", content)
    items, _ = read(written(tmp_path / "a.jsonl.gz", whole[: len(whole) * 3 // 4]))
    assert len(items) > 14_000


def test_a_wrong_checksum_is_damage_though_every_line_came_out(tmp_path: Path) -> None:
    whole = bytearray(compress("gz", b'{"a":1}\n{"a":2}\n'))
    whole[-6] ^= 1
    items, _ = read(written(tmp_path / "a.jsonl.gz", bytes(whole)))
    assert short(items) == [(1, 0, {"a": 1}), (2, 8, {"a": 2}), (3, 16, "corrupt")]


def test_what_follows_a_gzip_stream(tmp_path: Path) -> None:
    whole = compress("gz", b'{"a":1}\n')
    assert len(read(written(tmp_path / "a.jsonl.gz", whole + b"\0" * 700))[0]) == 1
    assert short(read(written(tmp_path / "a.jsonl.gz", whole + b"text"))[0])[1:] == [(2, 8, "corrupt")]


@pytest.mark.parametrize(("content", "rule"), [(b"", "truncated"), (b'{"a":1}\n', "corrupt")])
def test_a_name_that_promises_compression(tmp_path: Path, content: bytes, rule: str) -> None:
    assert short(read(written(tmp_path / "a.jsonl.gz", content))[0]) == [(1, 0, rule)]


def test_compression_is_told_by_the_bytes(tmp_path: Path) -> None:
    assert short(read(written(tmp_path / "a.jsonl", compress("zst", b'{"a":1}')))[0]) == [(1, 0, {"a": 1})]


def test_a_zstd_bomb_comes_in_small_blocks() -> None:
    bomb = zstandard.compress(b"\0" * 50_000_000, level=19)
    assert len(bomb) < 10_000
    assert sum(len(block) for block in zstd_blocks(io.BytesIO(bomb), FileNotes())) == 50_000_000


@pytest.mark.parametrize("name", ["a.json.gz", "a.xml.gz", "a.csv.gz"])
def test_a_cut_is_one_entry_in_every_format(tmp_path: Path, name: str) -> None:
    text = {
        "a.json.gz": b'[{"a":1},{"a":2},{"a":"' + b"cut" * 50,
        "a.xml.gz": b"<r><x>1</x><x>2</x><x>" + b"cut" * 50,
        "a.csv.gz": b"a\n1\n2\ncut" + b"cut" * 50,
    }[name]
    items, _ = read(written(tmp_path / name, compress("gz", text)[:-8]))
    assert [type(item) for item in items] == [Found, Found, Bad]
    assert isinstance(items[2], Bad) and items[2].rule == "truncated"


# JSON


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b" \n", []),
        (b"[]", []),
        (b'{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b'{\n "a": 1\n}\n', [{"a": 1}]),
        (b'{"a":1}\n{"a":\n{"a":3}', [{"a": 1}, "syntax", {"a": 3}]),
        (b'[{"a":1},]', [{"a": 1}, "syntax"]),
        (b'[{"a":1}', [{"a": 1}, "syntax"]),
        (b'[{"a":1},{"a":tru},{"a":3}]', [{"a": 1}, "syntax", {"a": 3}]),
        (b"42", [42]),
    ],
)
def test_kinds_of_json_files(tmp_path: Path, content: bytes, expected: list[Any]) -> None:
    assert [entry[2] for entry in short(read(written(tmp_path / "a.json", content))[0])] == expected


def test_other_encodings_refuse_the_file_once(tmp_path: Path) -> None:
    content = '{"a":1}\n{"a":2}\n'.encode("utf-16")
    assert short(read(written(tmp_path / "a.jsonl", content))[0]) == [(1, 0, "encoding")]


# XML


def xml(content: bytes) -> list[Any]:
    return [entry[2] for entry in short(list(read_xml(iter([content]), Limits(), FileNotes())))]


def test_xml_values() -> None:
    content = b"<r><x id='1'><a>1</a><a>2</a><b><c/></b></x><x>text</x><x/><x><a>1</a> beside </x></r>"
    assert xml(content) == [
        {"@id": "1", "a": ["1", "2"], "b": {"c": ""}},
        {"#text": "text"},
        {},
        {"a": "1", "#text": " beside "},
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<!DOCTYPE r><r><x>a</x></r>", ["dtd"]),
        (b'<!DOCTYPE r SYSTEM "http://example.com/r.dtd"><r/>', ["dtd"]),
        (b"<r><x>a</x><x>&nbsp;</x></r>", [{"#text": "a"}, "syntax"]),
        (b"<r><x>a</x>", [{"#text": "a"}, "syntax"]),
        (b"<r><x>a</y></r>", ["syntax"]),
        (b"<r/>", []),
        (b" \n", []),
        (b'<?xml version="1.0" encoding="ISO-8859-1"?><r><x>\xe9</x></r>', [{"#text": "\u00e9"}]),
        (b'<?xml version="1.0" encoding="gb2312"?><r><x>a</x></r>', ["encoding"]),
        (b'<?xml version="1.0" encoding="no-such"?><r><x>a</x></r>', ["encoding"]),
        (b"<r><x>" + b"<d>" * 70 + b"</d>" * 70 + b"</x><x>a</x></r>", ["depth", {"#text": "a"}]),
        (b"<r>" * 30_000, ["depth"]),
    ],
)
def test_xml_decisions(content: bytes, expected: list[Any]) -> None:
    assert xml(content) == expected


# CSV


def table(content: bytes, limits: Limits | None = None) -> list[Any]:
    return short(list(read_csv(iter([content]), limits or Limits(), FileNotes())))


def test_csv_starting_lines() -> None:
    content = b'id,text\n1,"a\nb"\n2,x,y\n\n3,"c ""d"""\n4\n'
    assert table(content) == [
        (2, 8, {"id": "1", "text": "a\nb"}),
        (4, 16, "fields"),
        (6, 23, {"id": "3", "text": 'c "d"'}),
        (7, 35, "fields"),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b"a;b\n1;2\n", [{"a": "1", "b": "2"}]),
        (b"a\tb\n1\t\n", [{"a": "1", "b": None}]),
        (b",b\n1,2\n", [{"column 1": "1", "b": "2"}]),
        (b"a,a\n1,2\n3,4\n", ["header"]),
        (b"a,\xff\n1,2\n3,4\n", ["encoding"]),
        (b"a,b\n1,\xff\n3,4\n", ["encoding", {"a": "3", "b": "4"}]),
        (b'a,b\n1,"open\n2,3\n', ["syntax"]),
        (b'a,b\n1,"open\n2,"next"\n3,4\n', ["syntax", {"a": "3", "b": "4"}]),
    ],
)
def test_csv_decisions(content: bytes, expected: list[Any]) -> None:
    assert [entry[2] for entry in table(content)] == expected


def test_an_open_quote_does_not_swallow_the_rest() -> None:
    content = b'a,b\n1,"open\n' + b"2,ok\n" * 100
    assert [entry[2] for entry in table(content, SMALL)].count({"a": "2", "b": "ok"}) > 70


def test_csv_fields_longer_than_the_module_allows() -> None:
    assert table(b"a\n" + b"x" * 300_000 + b"\n")[0][2] == {"a": "x" * 300_000}


# Parquet


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet_values(tmp_path: Path) -> None:
    columns = {
        "id": pa.array([1.0, float("nan"), float("inf")]),
        "date": pa.array([datetime.datetime(2024, 5, 1, 10)] * 3, pa.timestamp("us")),
        "blob": pa.array([b"ok", b"\xff", None]),
        "deep": pa.array([[{"k": [1]}], None, []]),
    }
    items, _ = read(parquet(tmp_path / "a.parquet", columns))
    date = "2024-05-01T10:00:00"
    assert short(items) == [
        (1, None, {"id": 1.0, "date": date, "blob": "ok", "deep": [{"k": [1]}]}),
        (2, None, {"id": None, "date": date, "blob": b"\xff", "deep": None}),
        (3, None, "number"),
    ]


def test_parquet_rows_by_groups(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"id": list(range(5000))}, row_group_size=700)
    items, _ = read(path)
    assert [(item.line, item.value) for item in items if isinstance(item, Found)] == [
        (i + 1, {"id": i}) for i in range(5000)
    ]


def test_a_parquet_string_that_is_no_utf8_costs_its_row(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"\xff\xfe", b"c"])
    strings = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    items, _ = read(parquet(tmp_path / "a.parquet", {"text": strings}))
    assert short(items) == [(1, None, {"text": "a"}), (2, None, "encoding"), (3, None, {"text": "c"})]


def test_a_damaged_row_group_is_one_entry(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"id": [f"r{i}" for i in range(300)]}, row_group_size=100)
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    items, _ = read(written(tmp_path / "b.parquet", bytes(content)))
    assert len(items) == 201 and short(items)[100] == (101, None, "corrupt")


def test_a_file_that_is_no_parquet_is_refused_whole(tmp_path: Path) -> None:
    assert short(read(written(tmp_path / "a.parquet", b"PAR1 not"))[0]) == [(None, None, "unreadable")]


# Files of a source


def test_files_of_unknown_type_and_unreadable_ones_count_one(tmp_path: Path) -> None:
    assert short(read(written(tmp_path / "notes.txt", b"a\nb\n"))[0]) == [(None, None, "unknown-type")]
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert short(read(tmp_path / "gone.jsonl")[0]) == [(None, None, "unreadable")]


def test_source_files_are_sorted_and_named_by_dataset(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/z.csv", "a.jsonl", ".hidden.jsonl", "_SUCCESS", ".git/x.jsonl", "notes.txt"):
        path = tmp_path / "demo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    names = [name for name, _ in source_files(tmp_path / "demo")]
    assert names == ["demo/a.jsonl", "demo/a/z.csv", "demo/b.jsonl", "demo/notes.txt"]
    assert [name for name, _ in source_files(tmp_path / "demo" / "b.jsonl")] == ["demo/b.jsonl"]


def test_a_source_without_files_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="does not exist"):
        source_files(tmp_path / "nowhere")
    with pytest.raises(DaymillError, match="no file that can be read"):
        source_files(tmp_path)
    written(tmp_path / "notes.txt", b"")
    with pytest.raises(DaymillError, match=r"notes\.txt"):
        source_files(tmp_path)


def test_blocks_of_a_plain_file(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    assert b"".join(blocks(written(tmp_path / "a.jsonl", content), FileNotes())) == content
