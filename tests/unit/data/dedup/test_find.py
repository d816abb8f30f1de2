"""Pairs of a whole corpus: verified, protected, and the same whatever the shards, workers and order."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.dedup.exact import exact_key
from data.dedup.find import PAIRS_SCHEMA, FindConfig, find, find_pairs
from data.dedup.pairs import decide_pair
from data.dedup.protect import Protector
from data.dedup.stars import stars
from data.errors import DaymillError
from data.quality.scripts import TOKEN
from data.text import normalize
from data.workers import Local

ROOT = Path(__file__).resolve().parents[4]
CASES = ROOT / "tests/cases/near_duplicates.jsonl"
Pair = tuple[str, str, float, str | None]


@dataclass(frozen=True)
class Numbers:
    """Protects numbers; strictly, also the word "urgent"."""

    pairwise: bool = False

    @property
    def config(self) -> str:
        return repr(self)

    def fingerprint(self, text: str) -> int:
        return int.from_bytes(hashlib.blake2b(repr(numbers(text)).encode(), digest_size=8).digest(), "big")

    def veto(self, a: str, b: str) -> str | None:
        if numbers(a) != numbers(b):
            return "number"
        return "word" if self.pairwise and ("urgent" in a) != ("urgent" in b) else None


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def words(generator: random.Random, count: int) -> list[str]:
    return ["".join(generator.choices("bcdfghklmnprstvw", k=5)) for _ in range(count)]


def corpus(seed: int = 0) -> list[tuple[str, str | None]]:
    """Ids and texts: lone ones, edited ones, copies, siblings of a template, and texts of nothing."""
    generator = random.Random(seed)
    texts: list[str | None] = []
    for _ in range(60):
        text = words(generator, generator.randint(3, 120))
        texts.append(" ".join(text))
        for _ in range(generator.choice([0, 1, 2])):
            edited = list(text)
            edited[generator.randrange(len(edited))] = "changed"
            texts.append(" ".join(edited))
        if generator.random() < 0.2:
            texts += [" ".join(text).upper(), " ".join(text)]
    form = words(generator, 60)
    texts += [" ".join([*form[:30], "dose", str(dose), "mg", *form[30:]]) for dose in range(40)]
    texts += ["", None, "!!", " ", "one two", "One  two", "今天天气很好我们去公园散步吧", "今天天气很好我们去公园散步"]
    return [(f"id-{at}", text) for at, text in enumerate(texts)]


def write(folder: Path, rows: Sequence[tuple[str, str | None]], shards: int = 1) -> list[Path]:
    folder.mkdir(parents=True)
    size = -(-len(rows) // shards)
    paths = []
    for at in range(shards):
        ids, texts = zip(*rows[at * size : (at + 1) * size], strict=True)
        paths.append(folder / f"part-{at:05d}.parquet")
        pq.write_table(pa.table({"id": pa.array(ids), "text": pa.array(texts, pa.string())}), paths[-1])
    return paths


def search(folder: Path, rows: Sequence[tuple[str, str | None]], shards: int = 1, **settings: object) -> list[Pair]:
    config = FindConfig(**settings)  # type: ignore[arg-type]
    table = find_pairs(write(folder, rows, shards), config, 1, folder / "work", Numbers())
    return named(table, rows)


def named(table: pa.Table, rows: Sequence[tuple[str, str | None]]) -> list[Pair]:
    assert table.schema == PAIRS_SCHEMA
    return [(rows[row["a_row"]][0], rows[row["b_row"]][0], row["similarity"], row["veto"]) for row in table.to_pylist()]


def shingles(text: str | None) -> set[tuple[str, ...]]:
    tokens = TOKEN.findall(normalize(text or ""))
    return {tuple(tokens[at : at + 5]) for at in range(len(tokens) - 4)}


def test_pairs_are_those_that_comparing_all_with_all_finds(tmp_path: Path) -> None:
    rows = corpus()
    texts = dict(rows)
    found = {frozenset(pair[:2]): pair for pair in search(tmp_path / "r", rows)}
    for pair in found.values():
        one, other = shingles(texts[pair[0]]), shingles(texts[pair[1]])
        assert pair[2] == len(one & other) / len(one | other) >= 0.7
        assert pair[3] == Numbers().veto(texts[pair[0]] or "", texts[pair[1]] or "")
    distinct = {normalize(text or ""): row_id for row_id, text in rows if shingles(text)}
    exact = {row_id: key for key, ids in group(rows).items() for row_id in ids}
    merged = {frozenset(exact[row_id] for row_id in pair) for pair, (_, _, _, veto) in found.items() if veto is None}
    ids = sorted(distinct.values())
    sets = {row_id: shingles(texts[row_id]) for row_id in ids}
    expected = {
        frozenset((exact[a], exact[b]))
        for at, a in enumerate(ids)
        for b in ids[:at]
        if numbers(texts[a] or "") == numbers(texts[b] or "") and len(sets[a] & sets[b]) / len(sets[a] | sets[b]) >= 0.8
    }
    assert len(expected) > 20
    assert len(expected - merged) <= 1  # 99 % are promised


def group(rows: Sequence[tuple[str, str | None]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for row_id, text in rows:
        groups.setdefault(normalize(text or ""), []).append(row_id)
    return groups


@pytest.mark.parametrize("simhash", [False, True])
def test_shards_and_order_change_nothing(tmp_path: Path, simhash: bool) -> None:
    rows = corpus()
    whole = search(tmp_path / "1", rows, simhash=simhash)
    assert len(whole) > 60
    random.Random(1).shuffle(rows)
    assert search(tmp_path / "2", rows, 2, simhash=simhash) == whole
    random.Random(2).shuffle(rows)
    assert search(tmp_path / "7", rows, 7, simhash=simhash) == whole


def test_siblings_of_a_template_never_merge_and_share_a_cluster(tmp_path: Path) -> None:
    generator = random.Random(3)
    form = words(generator, 100)
    rows = [(f"id-{dose}", " ".join([*form, "take", str(dose), "mg", "daily"])) for dose in range(2000)]
    pairs = search(tmp_path / "r", rows)
    assert {veto for *_, veto in pairs} == {"number"}
    assert len(pairs) == 1999  # a tree: as few links as connect them
    assert {row_id for pair in pairs for row_id in pair[:2]} == {row_id for row_id, _ in rows}


def test_many_of_a_kind_take_few_pairs(tmp_path: Path) -> None:
    generator = random.Random(4)
    form = words(generator, 150)
    rows = []
    for at in range(400):
        text = list(form)
        text[generator.randrange(150)] = f"w{chr(97 + at % 26)}{chr(97 + at // 26)}"
        rows.append((f"id-{at}", " ".join(text)))
    table = find_pairs(write(tmp_path / "r", rows), FindConfig(max_bucket=8), 1, tmp_path / "work")
    assert table["veto"].null_count == table.num_rows < 15 * 400 < 400 * 399 // 2
    assert survivors(table, [text for _, text in rows]) == 1  # any two are near


def survivors(table: pa.Table, texts: list[str]) -> int:
    order = sorted(range(len(texts)), key=lambda row: (-len(texts[row]), digest(texts[row])))
    a, b, similarity = (table[name].to_numpy() for name in ("a_row", "b_row", "similarity"))
    return len(texts) - len(stars(np.argsort(order), a, b, similarity).members)


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def test_no_chain_joins_what_nobody_compared(tmp_path: Path) -> None:
    generator = random.Random(5)
    first, second = words(generator, 100), words(generator, 100)
    rows = [
        ("1", " ".join([*first, "x"])),
        ("2", " ".join([*second, "y"])),
        ("3", " ".join(first)),
        ("4", " ".join(second)),
    ]
    table = find_pairs(write(tmp_path / "r", rows), FindConfig(), 1, tmp_path / "work")
    assert {frozenset(pair[:2]) for pair in named(table, rows)} == {frozenset("13"), frozenset("24")}
    a, b = table["a_row"].to_numpy(), table["b_row"].to_numpy()
    found = stars(np.arange(4), a, b, table["similarity"].to_numpy())
    assert found.members.tolist() == [2, 3] and found.survivors.tolist() == [0, 1]


def test_of_exact_copies_the_best_takes_part(tmp_path: Path) -> None:
    text = " ".join(words(random.Random(6), 50))
    near = f"{text} more"
    rows = [("z", text), ("b", text), ("a", text), ("upper", text.upper()), ("wide", f"{text}   "), ("near", near)]
    (pair,) = search(tmp_path / "r", rows)
    assert pair[:2] == ("near", "wide")  # the longest of the copies
    (pair,) = search(tmp_path / "s", [row for row in rows if row[0] != "wide"])
    assert pair[:2] == ("near", "upper" if digest(text.upper()) < digest(text) else "a")


def test_short_and_empty_texts_have_no_near_duplicates(tmp_path: Path) -> None:
    rows = [("1", "one two three four"), ("2", "one two three four!"), ("3", ""), ("4", None), ("5", "?"), ("6", "!")]
    assert search(tmp_path / "r", rows, simhash=True) == []


def test_strictness_asks_about_every_pair(tmp_path: Path) -> None:
    text = words(random.Random(7), 60)
    rows = [("1", " ".join(text)), ("2", " ".join([*text, "urgent"])), ("3", " ".join([*text, "later"]))]
    shards = write(tmp_path / "r", rows)
    loose = named(find_pairs(shards, FindConfig(), 1, tmp_path / "loose", Numbers()), rows)
    strict = named(find_pairs(shards, FindConfig(), 1, tmp_path / "strict", Numbers(pairwise=True)), rows)
    assert [pair[:3] for pair in loose] == [pair[:3] for pair in strict] and len(loose) == 3
    assert {frozenset(pair[:2]) for pair in strict if pair[3] == "word"} == {frozenset("12"), frozenset("23")}
    assert {veto for *_, veto in loose} == {None}


def test_without_a_protector_siblings_merge(tmp_path: Path) -> None:
    rows = [row for row in corpus() if "dose" in (row[1] or "")]
    table = find_pairs(write(tmp_path / "r", rows), FindConfig(), 1, tmp_path / "work")
    assert table.num_rows == 40 * 39 // 2 and table["veto"].null_count == table.num_rows


def test_a_corpus_of_two_is_decided_as_the_pair(tmp_path: Path) -> None:
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    for case in cases:
        rows = [("a", case["a"]), ("b", case["b"])]
        shards = write(tmp_path / case["case"], rows)
        pairs = named(find_pairs(shards, FindConfig(), 1, tmp_path / "work", Protector()), rows)
        alone = decide_pair(case["a"], case["b"], Protector(), 0.8)
        near = [pair for pair in pairs if pair[3] is None and pair[2] >= 0.8]
        if near:
            assert (alone.verdict, alone.similarity) == ("same", near[0][2]) and case["want"] == "same"
        else:
            assert alone.verdict != "same" or exact_key(case["a"]) == exact_key(case["b"])
    assert len(cases) > 10


def test_no_records_no_pairs(tmp_path: Path) -> None:
    empty = pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "part-00000.parquet")
    found = find([tmp_path / "part-00000.parquet"], FindConfig(simhash=True), 1, tmp_path / "work", Numbers())
    assert found.table.num_rows == 0 and found.report["records"] == 0


def test_a_shard_without_texts_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1"]}), tmp_path / "part-00000.parquet")
    with pytest.raises(DaymillError, match="has no column text"):
        find([tmp_path / "part-00000.parquet"], FindConfig(), 1, tmp_path / "work")


class Spy(Local):
    """Counts tasks, and fails at one of them if asked to."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__(1)
        self.tasks = 0
        self.fails_at = fails_at

    def map(self, function, items: Sequence) -> Iterator:  # type: ignore[no-untyped-def, override, type-arg]
        for item in items:
            if self.tasks == self.fails_at:
                raise KeyboardInterrupt
            self.tasks += 1
            yield function(item)


@pytest.mark.parametrize("fails_at", [0, 3, 6])
def test_a_killed_search_goes_on(tmp_path: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data.dedup.passes.SMALL", 0)
    rows = corpus()
    shards = write(tmp_path / "r", rows, 4)
    whole, advanced = Spy(), []
    expected = find(shards, FindConfig(), whole, tmp_path / "other", Numbers()).table
    with pytest.raises(KeyboardInterrupt):
        find(shards, FindConfig(), Spy(fails_at), tmp_path / "work", Numbers())
    (tmp_path / "work" / ".00001.writing").mkdir(parents=True)  # what a kill in the middle of a shard leaves
    again = Spy()
    found = find(shards, FindConfig(), again, tmp_path / "work", Numbers(), advanced.append)
    assert found.table.equals(expected)
    assert again.tasks == whole.tasks - fails_at
    assert sum(advanced) == 2 * len(rows)


def test_work_of_other_texts_or_settings_is_not_taken(tmp_path: Path) -> None:
    rows = corpus()
    shards = write(tmp_path / "r", rows, 2)
    find(shards, FindConfig(), 1, tmp_path / "work", Numbers())
    changed = [(row_id, f"{text} {row_id}" if text else text) for row_id, text in rows]
    for path, part in zip(shards, (changed[: -(-len(rows) // 2)], changed[-(-len(rows) // 2) :]), strict=True):
        ids, texts = zip(*part, strict=True)
        pq.write_table(pa.table({"id": pa.array(ids), "text": pa.array(texts, pa.string())}), path)
    here = find_pairs(shards, FindConfig(floor=0.75), 1, tmp_path / "work", Numbers())
    assert here.equals(find_pairs(shards, FindConfig(floor=0.75), 1, tmp_path / "fresh", Numbers()))
    bare = find_pairs(shards, FindConfig(floor=0.75), 1, tmp_path / "work")
    assert bare["veto"].null_count == bare.num_rows
    assert len(list((tmp_path / "work").glob("signed-*"))) == len(list((tmp_path / "work").glob("spilled-*"))) == 1


@pytest.mark.slow
def test_processes_and_hash_seed_change_nothing(tmp_path: Path) -> None:
    rows = corpus()
    expected = search(tmp_path / "here", rows)
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    out = tmp_path / "out.json"
    command = [sys.executable, str(Path(__file__)), str(tmp_path / "rows.json"), str(tmp_path / "there"), str(out)]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, timeout=240)
    assert [tuple(pair) for pair in json.loads(out.read_text())] == expected


def in_two_processes(rows_file: Path, folder: Path, out: Path) -> None:
    import data.dedup.passes

    data.dedup.passes.SMALL = 0
    rows = [tuple(row) for row in json.loads(rows_file.read_text())]
    table = find_pairs(write(folder, rows, 3), FindConfig(), 2, folder / "work", Numbers())
    out.write_text(json.dumps(named(table, rows)))


if __name__ == "__main__":
    in_two_processes(*map(Path, sys.argv[1:]))
