"""New records against earlier ones: as one search over everything would answer, however they were batched or killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data.dedup.drugs
import data.dedup.protect
from data.dedup import index as index_module
from data.dedup.config import FindConfig
from data.dedup.find import find_pairs
from data.dedup.index import Added, Index
from data.dedup.index_kind import IndexConfig, header_of, reached
from data.dedup.protect import ProtectConfig, Protector
from data.dedup.seen import places_of
from data.errors import DaymillError

ROOT = Path(__file__).resolve().parents[4]

WORDS = [
    first + second for first in ("ba", "ke", "li", "mo", "nu", "po", "ra", "si") for second in ("ta", "ve", "xi", "zo")
]


def corpus(seed: int, count: int = 120) -> list[str]:
    """Texts of 60 words, half of them near copies of others: a word replaced, a dose changed, letters in capitals."""
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(count):
        if texts and rng.random() < 0.5:
            words = rng.choice(texts).split(" ")
            kind = rng.randrange(4)
            if kind == 0:
                words[rng.randrange(len(words))] = rng.choice(WORDS)
            elif kind == 1:
                words[-1] = f"{rng.randrange(1, 100)} mg"
            elif kind == 2:
                words[0] = words[0].upper()
            else:
                words = words[: rng.randrange(3, len(words))]
            texts.append(" ".join(words))
        else:
            texts.append(" ".join([*rng.choices(WORDS, k=60), "5 mg"]))
    return texts


def ids_of(texts: list[str], first: int = 0) -> list[str]:
    return [f"r{number:04d}" for number in range(first, first + len(texts))]


def searched(tmp_path: Path, texts: list[str], days: int) -> set[tuple[str, str, float]]:
    """Pairs that may merge, by one search over everything: (new id, earlier id, similarity)."""
    ids = ids_of(texts)
    shard = tmp_path / "part-00000.parquet"
    pq.write_table(pa.table({"id": ids, "text": texts}), shard)
    table = find_pairs([shard], FindConfig(), 1, tmp_path / "work", Protector())
    rows = zip(table["a_row"].to_pylist(), table["b_row"].to_pylist(), table["similarity"].to_pylist(), table["veto"])
    found = set()
    for a, b, similarity, veto in rows:
        earlier, new = min(a, b), max(a, b)
        if earlier < days <= new and veto.as_py() is None:
            found.add((ids[new], ids[earlier], similarity))
    return found


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return corpus(7, 260)


def test_the_verdicts_are_those_of_one_search_over_everything(tmp_path: Path, texts: list[str]) -> None:
    # one of each normalized text, as the search looks at exact copies' best only
    texts = list({text.lower(): text for text in texts}.values())
    days = len(texts) // 2
    index = Index.create(tmp_path / "index")
    assert index.add(texts[:days], ids_of(texts[:days])) == Added(days, 0)
    found = index.query(texts[days:], ids_of(texts[days:], days)).to_pylist()
    merging = {(row["id"], row["earlier"], row["similarity"]) for row in found if row["veto"] is None}
    # the search also compares what a chain of pairs connects: more pairs of records that it knows as near already
    everything = searched(tmp_path, texts, days)
    assert merging <= everything
    bar = index.config.find.jaccard
    assert {row_id for row_id, _, near in merging if near >= bar} == {
        row_id for row_id, _, near in everything if near >= bar
    }
    assert len(merging) > 10 and len(everything - merging) < len(merging) / 10
    assert any(row["veto"] == "number" for row in found)


def answers(path: Path, texts: list[str], sizes: list[int]) -> tuple[pa.Table, Path]:
    index, start = Index.create(path), 0
    for size in sizes:
        index.add(texts[start : start + size], ids_of(texts, 0)[start : start + size])
        start += size
    assert start == len(index) == 80
    return index.query(texts[80:], ids_of(texts[80:], 80)), path


def test_batches_change_neither_answers_nor_the_bytes_of_a_compacted_index(tmp_path: Path, texts: list[str]) -> None:
    texts = texts[:160]
    one, first = answers(tmp_path / "one", texts, [80])
    many, second = answers(tmp_path / "many", texts, [1, 44, 30, 3, 2])
    assert one.equals(many) and len(one) > 10
    assert len(list(second.glob("segment-*"))) > 1
    Index.open(second).compact()
    Index.open(first).compact()
    (left,), (right,) = first.glob("segment-*"), second.glob("segment-*")
    names = sorted(path.name for path in left.iterdir())
    assert names == sorted(path.name for path in right.iterdir())
    assert [name for name in names if (left / name).read_bytes() != (right / name).read_bytes()] == []
    assert Index.open(second).query(texts[80:], ids_of(texts[80:], 80)).equals(one)


def test_of_equal_texts_the_best_by_content_is_named(tmp_path: Path) -> None:
    text = "the very same words in this and in every other of these texts"
    index = Index.create(tmp_path / "index")
    index.add([text, f"{text}  ", text], ["c", "longest", "b"])
    index.add([text], ["a"])
    assert index.query([text.upper()], ["new"]).to_pylist() == [
        {"id": "new", "earlier": "longest", "similarity": 1.0, "veto": None}
    ]
    short = Index.create(tmp_path / "short")
    short.add(["yes", "yes"], ["z", "y"])
    assert short.query(["YES", "no", "", "  "], ["1", "2", "3", "4"]).to_pylist() == [
        {"id": "1", "earlier": "y", "similarity": 1.0, "veto": None}
    ]


def test_keys_that_share_their_first_half_are_told_apart() -> None:
    keys = np.array([[1, 1], [1, 3], [1, 3], [2, 0]], np.uint64)
    wanted = np.array([[1, 3], [1, 2], [2, 0], [0, 0], [1, 1], [3, 3]], np.uint64)
    assert places_of(keys, wanted).tolist() == [1, -1, 3, -1, 0, -1]


def test_a_text_of_nothing_is_nobody_s_equal(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index")
    index.add(["", "   "], ["a", "b"])
    assert index.query(["", "\n"], ["c", "d"]).num_rows == 0


def test_siblings_of_a_template_are_told_apart_and_never_all_compared(tmp_path: Path) -> None:
    sibling = "take {} mg of the new tablets every morning after breakfast and call us when it does not help you".format
    index = Index.create(tmp_path / "index")
    index.add([sibling(dose) for dose in range(500)], [f"d{dose}" for dose in range(500)])
    found = index.query([sibling(1000), sibling(77).upper()], ["new", "again"]).to_pylist()
    new = [row for row in found if row["id"] == "new"]
    assert 0 < len(new) < 40 and {row["veto"] for row in new} == {"number"}
    assert [row["earlier"] for row in found if row["id"] == "again" and row["veto"] is None] == ["d77"]


def test_a_large_bucket_is_compared_with_its_best_only(tmp_path: Path) -> None:
    rng = random.Random(3)
    base = rng.choices(WORDS, k=300)
    copies = []
    for _ in range(40):
        words = list(base)
        words[rng.randrange(300)] = rng.choice(WORDS)
        copies.append(" ".join(words))
    config = IndexConfig(FindConfig(max_bucket=4))
    index = Index.create(tmp_path / "index", config)
    for start in range(0, 40, 10):
        index.add(copies[start : start + 10], [f"c{number}" for number in range(start, start + 10)])
    whole = Index.create(tmp_path / "whole", config)
    whole.add(copies, [f"c{number}" for number in range(40)])
    query = [" ".join(base)]
    assert index.query(query, ["q"]).equals(whole.query(query, ["q"]))
    assert len(index.query(query, ["q"])) < 40


def test_an_id_comes_once(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index")
    index.add(["one text of some words", "another text of other words"], ["a", "b"])
    assert index.add(["one text of some words", "a third one"], ["a", "c"]) == Added(1, 1)
    assert index.add(["twice in one call", "twice in one call"], ["d", "d"]) == Added(1, 1)
    with pytest.raises(DaymillError, match=r"knows 1 of the ids with another text \(b\); nothing was added"):
        index.add(["not what it was", "new"], ["b", "e"])
    assert len(index) == 4


def test_an_addition_that_was_killed_has_not_happened(
    tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ids = tmp_path / "index", ids_of(texts)
    Index.create(path).add(texts[:30], ids[:30])
    before = Index.open(path).query(texts[60:], ids[60:])
    for step in ("write_segment", "open_segment", "sync"):

        def dies(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            index = Index.open(path)
            patched.setattr(index_module, step, dies)
            with pytest.raises(KeyboardInterrupt):
                index.add(texts[30:60], ids[30:60])
        assert Index.open(path).query(texts[60:], ids[60:]).equals(before), step
    (path / ".segment-000009.writing").mkdir()
    assert Index.open(path).add(texts[30:60], ids[30:60]) == Added(30, 0)
    assert sorted(child.name for child in path.iterdir()) == ["lock", "manifest.json", *Index.open(path)._names]


def test_who_has_opened_it_goes_on_while_another_adds(tmp_path: Path, texts: list[str]) -> None:
    path, ids = tmp_path / "index", ids_of(texts)
    Index.create(path).add(texts[:30], ids[:30])
    reader, writer = Index.open(path), Index.open(path)
    before = reader.query(texts[60:], ids[60:])
    writer.add(texts[30:60], ids[30:60])
    assert reader.query(texts[60:], ids[60:]).equals(before)
    assert reader.add(texts[:60], ids[:60]) == Added(0, 60)  # it has seen the other's records by then
    with writer._lock(), pytest.raises(DaymillError, match="another process is adding"):
        reader.add(["x"], ["x"])


ADDS = """
import sys
from data.dedup.index import Index
sys.path.insert(0, {tests!r})
from test_index import corpus, ids_of
texts, index = corpus(7, 260), Index.open({path!r})
print("ready", flush=True)
for start in range(0, 260, 20):
    index.add(texts[start : start + 20], ids_of(texts)[start : start + 20])
    print(start, flush=True)
"""


@pytest.mark.slow
def test_kill_9_leaves_whole_additions_only(tmp_path: Path, texts: list[str]) -> None:
    path, ids = tmp_path / "index", ids_of(texts)
    Index.create(path)
    command = [sys.executable, "-c", ADDS.format(tests=str(Path(__file__).parent), path=str(path))]
    rng = random.Random(1)
    for _ in range(4):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(rng.randrange(2, 5)):  # known additions pass quickly, the kill falls into any of them
                child.stdout.readline()
            child.kill()
        assert len(Index.open(path)) % 20 == 0
    index = Index.open(path)
    index.add(texts, ids)
    whole = Index.create(tmp_path / "whole")
    whole.add(texts, ids)
    assert index.query(texts[:50], ids[:50]).equals(whole.query(texts[:50], ids[:50]))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (IndexConfig(FindConfig(shingle=4)), "shingle 5 instead of 4"),
        (IndexConfig(FindConfig(jaccard=0.7)), "bands "),
        (IndexConfig(protect=ProtectConfig(words=("acme",))), "protect "),
        (IndexConfig(protect=ProtectConfig(kinds=("number",))), "protect "),
    ],
)
def test_what_was_made_otherwise_never_mixes(tmp_path: Path, config: IndexConfig, told: str) -> None:
    Index.create(tmp_path / "index")
    assert len(Index.open(tmp_path / "index", IndexConfig())) == 0
    with pytest.raises(DaymillError, match=f"was made otherwise .*{told}"):
        Index.open(tmp_path / "index", config)


@pytest.mark.slow
def test_the_header_is_the_same_in_every_process() -> None:
    code = "from data.dedup.index_kind import IndexConfig, header_of; print(header_of(IndexConfig()))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            cwd=ROOT,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert told == {f"{header_of(IndexConfig())}\n".encode()}


def test_an_index_knows_no_simhash() -> None:
    with pytest.raises(DaymillError, match="not by SimHash"):
        IndexConfig(FindConfig(simhash=True))


def test_another_vocabulary_or_hash_never_mixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    Index.create(path)
    with monkeypatch.context() as patched:
        patched.setattr(data.dedup.drugs, "NAMES", data.dedup.drugs.NAMES | {"newdrug"})
        with pytest.raises(DaymillError, match="protect"):
            Index.open(path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["header"]["signature seed"] = "2"
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DaymillError, match="signature seed 2 instead of 1"):
        Index.open(path)


def test_the_header_knows_every_module_that_protects() -> None:
    names = {module.__name__ for module in reached(data.dedup.protect)}
    assert {
        "data.text",
        "data.dedup.vocabulary",
        "data.dedup.drugs",
        "data.dedup.items",
        "data.dedup.patterns",
    } <= names


def test_what_is_damaged_or_not_there_is_said(tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(DaymillError, match="no index at"):
        Index.open(tmp_path / "nowhere")
    index = Index.create(tmp_path / "index")
    index.add(texts[:5], ids_of(texts[:5]))
    with pytest.raises(DaymillError, match="exists and is not empty"):
        Index.create(tmp_path / "index")
    shutil.rmtree(next((tmp_path / "index").glob("segment-*")))
    with pytest.raises(DaymillError, match="is damaged"):
        Index.open(tmp_path / "index")
    (tmp_path / "index/manifest.json").write_text("{}")
    with pytest.raises(DaymillError, match="is damaged"):
        Index.open(tmp_path / "index")
