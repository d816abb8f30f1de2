"""Pairs decided one by one: the cases as wanted, the kernels as the reference, the command as its users need it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup import tokens
from data.dedup.jaccard import jaccard as kernel
from data.dedup.pairs import Answer, PairDecision, decide_file, decide_pair, jaccard, shingles
from data.dedup.protect import ProtectConfig, Protector
from data.errors import DaymillError
from data.samples.siblings import planted, siblings
from data.text import normalize
from flows import cli

CASES = Path(__file__).parents[3] / "cases" / "near_duplicates.jsonl"
PROTECTOR = Protector()
LONG = "the quick brown fox jumps over a lazy dog and then runs home through the dark wood before the rain comes down"


def case_rows() -> list[dict[str, str]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", case_rows(), ids=lambda row: row["case"])
def test_every_case_is_decided_as_wanted(row: dict[str, str]) -> None:
    decided = decide_pair(row["a"], row["b"], PROTECTOR)
    assert decided.verdict == row["want"]
    assert decide_pair(row["b"], row["a"], PROTECTOR) == decided


@pytest.mark.parametrize(
    ("case", "veto"),
    [("dose", "number"), ("bp", "number"), ("drug", "drug"), ("negation", "negation"), ("side", "laterality")],
)
def test_the_veto_names_the_kind(case: str, veto: str) -> None:
    row = next(row for row in case_rows() if row["case"] == case)
    assert decide_pair(row["a"], row["b"], PROTECTOR).veto == veto


def test_the_veto_decides_and_not_the_similarity_alone() -> None:
    """Without protection the dose and the drug would merge, so the cases above can fail."""
    bare = Protector(ProtectConfig(kinds=()))
    merged = [row["case"] for row in case_rows() if decide_pair(row["a"], row["b"], bare).verdict != row["want"]]
    assert merged == ["dose", "drug"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", PairDecision("undefined", None, None)),
        (" \n", "text", PairDecision("undefined", None, None)),
        ("Two Words", "two   words\n", PairDecision("same", 1.0, None)),
        ("two words", "two other", PairDecision("different", None, None)),
        ("!!!", "???", PairDecision("different", None, None)),
        ("ＷＩＤＥ text", "wide text", PairDecision("same", 1.0, None)),
        (LONG, "short one", PairDecision("different", None, None)),
        (LONG, f"{LONG} again", PairDecision("same", 18 / 19, None)),
        (LONG, LONG.replace("quick", "slow"), PairDecision("different", 16 / 20, None)),
        (f"{LONG} 5", f"{LONG} 6", PairDecision("different", 18 / 20, "number")),
    ],
)
def test_decisions(a: str, b: str, expected: PairDecision) -> None:
    threshold = 0.81
    assert decide_pair(a, b, PROTECTOR, threshold) == expected


def test_thresholds_are_compared_and_not_tested_for_truth() -> None:
    other = "nothing of this has a word in common with that text"
    assert decide_pair(LONG, other.replace("nothing", "all"), PROTECTOR, threshold=0).verdict == "same"
    assert decide_pair(LONG, f"{LONG} again", PROTECTOR, threshold=1).verdict == "different"
    assert decide_pair(LONG, f"{LONG} again", PROTECTOR, threshold=18 / 19).verdict == "same"


def test_a_repeated_token_is_one_shingle() -> None:
    assert len(shingles("no " * 300)) == 1
    assert shingles("one two three four") == set()


def test_scripts_without_spaces_are_compared_by_characters() -> None:
    assert len(shingles("感谢各位用户")) == 2
    assert decide_pair("ばか", "はか", PROTECTOR).verdict == "different"


def as_sets(texts: list[str]) -> tuple[Any, Any, Any]:
    found = tokens.distinct(tokens.shingle_hashes(tokens.token_hashes(texts), 5))
    return found.values, found.starts[:-1], found.starts[1:]


WORDS = st.sampled_from(["a", "bb", "ccc", "Ünïcode", "感谢", "各", "x1", "ß", "don't", "end.", "—", "ΣΑΣ"])


@given(st.lists(st.lists(WORDS, max_size=24).map(" ".join), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_kernel_agrees_with_this_reference(texts: list[str]) -> None:
    values, begins, ends = as_sets(texts)
    a, b = np.triu_indices(len(texts), 1)
    measured = kernel(values, begins, ends, a, b)
    sets = [shingles(normalize(text)) for text in texts]
    assert measured.tolist() == [jaccard(sets[i], sets[j]) or 0.0 for i, j in zip(a, b, strict=True)]


def test_the_kernel_agrees_on_texts_of_usual_length() -> None:
    texts = siblings(30, seed=5)
    copies = list(planted(texts, seed=5))
    values, begins, ends = as_sets([*texts, *(copy.text for copy in copies)])
    measured = kernel(values, begins, ends, np.arange(30), np.arange(30, 60))
    assert measured.tolist() == [copy.similarity for copy in copies]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_command_answers_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pairs", str(CASES), "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["case"], row["verdict"]) for row in said] == [(row["case"], row["want"]) for row in case_rows()]
    assert all(list(row) == ["case", "verdict", "similarity", "veto"] for row in said)
    assert next(row for row in said if row["case"] == "dose")["veto"] == "number"


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pairs", str(CASES)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["case", "verdict", "similarity", "veto"]
    assert lines[2].split() == ["one_word", "same", "0.828", "-"]
    assert len(lines) == 1 + len(case_rows())


def test_bad_lines_are_named_after_the_others_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path / "pairs.jsonl",
        '{"case": "1", "a": "secret words", "b": "secret words"}',
        "not json",
        "",
        '{"case": "4", "a": "secret words"}',
        "[1]",
        '{"a": 1, "b": "secret words"}',
        '{"case": 7, "a": "x", "b": "y"}',
        '{"a": "x", "b": "X"}',
    )
    assert cli.main(["pairs", str(path), "--json"]) == 1
    said = capsys.readouterr()
    assert [json.loads(line)["case"] for line in said.out.splitlines()] == ["1", 7, 8]
    for told in ("line 2: ", 'line 4: has no "b"', "line 5: is no JSON object", 'line 6: "a" is no string'):
        assert told in said.err
    assert "secret" not in said.err and "Traceback" not in said.err


def test_strict_and_threshold_are_knobs_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = json.dumps({"case": "w", "a": LONG, "b": LONG.replace("quick", "slow")})
    path = write(tmp_path / "pairs.jsonl", line)

    def decided(*knobs: str) -> tuple[str, str | None]:
        assert cli.main(["pairs", str(path), "--json", *knobs]) == 0
        said = json.loads(capsys.readouterr().out)
        return said["verdict"], said["veto"]

    assert decided() == ("same", None)
    assert decided("--threshold", "0.81") == ("different", None)
    assert decided("--strict") == ("different", "substitution")


def test_the_checkouts_knobs_decide_as_its_stages_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [{"case": 1, "a": LONG, "b": LONG.replace("quick", "slow")}, {"case": 2, "a": LONG, "b": f"Note: {LONG}"}]
    path = write(tmp_path / "pairs.jsonl", *map(json.dumps, pairs))
    (tmp_path / "dvc.yaml").touch()
    monkeypatch.chdir(tmp_path)

    def vetoes(params: str) -> list[str | None]:
        (tmp_path / "params.yaml").write_text(params)
        assert cli.main(["pairs", str(path), "--json"]) == 0
        return [json.loads(line)["veto"] for line in capsys.readouterr().out.splitlines()]

    assert vetoes("score: {}") == [None, None]
    assert vetoes("score: {near_duplicates: {substitution: strict, jaccard: 0.8}}") == ["substitution", None]
    assert vetoes("score: {near_duplicates: {substitution: exact}}") == ["substitution"] * 2
    assert vetoes("score: {near_duplicates: {protect_words: [quick]}}") == ["word", None]


@pytest.mark.parametrize(
    ("arguments", "said"), [(["no-such-file"], "is no file"), ([str(CASES), "--threshold", "80"], "between 0 and 1")]
)
def test_wrong_usage_is_an_error_for_the_user(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pairs", *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_damaged_file_is_answered_as_far_as_it_goes(tmp_path: Path) -> None:
    good = json.dumps({"case": "1", "a": "x", "b": "x"})
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + good.encode() + b"\r\n" + good.encode()[:-3])
    answers = list(decide_file(path, PROTECTOR))
    assert isinstance(answers[0], Answer) and answers[0].decision.verdict == "same"
    assert not isinstance(answers[1], Answer)
    with pytest.raises(DaymillError, match="between 0 and 1"):
        list(decide_file(path, PROTECTOR, threshold=float("nan")))
