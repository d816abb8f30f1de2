"""The samples of dialogues and of subject lines: turns, what is left out and why, threads, and what ingest takes."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from data.dialogues import messages_of
from data.errors import DaymillError
from data.samples import dialogues
from data.samples.dialogues import corpus_files, make_dialogues
from data.samples.subjects import make_subjects, parts_of
from flows import cli

YAML = """categories: [greetings]
conversations:
- - Hello
  - Hi
  - How are you doing?
- - What is yes?
  - yes
- a single text
- - 5
  - a number is no text
- - only a question
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_user_and_assistant_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greetings.yml").write_text(YAML)
    monkeypatch.setattr(dialogues, "corpus_files", lambda: [tmp_path / "greetings.yml"])
    assert make_dialogues(tmp_path / "out") == {"dialogues": 2, "messages": 5, "topics": 1, "broken": 3}
    first, second = lines(tmp_path / "out" / dialogues.FILE)
    assert [(m["role"], m["content"]) for m in first["messages"]] == [
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "How are you doing?"),
    ]
    assert second["messages"][1]["content"] == "yes", "a word, not the truth value of YAML 1.1"
    assert first["id"] == "greetings/0001" and first["topic"] == "greetings"
    assert all(messages_of(record) for record in (first, second)), "ingest takes them"


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(DaymillError, match=r"pip install -e '\.\[samples\]'"):
        corpus_files()


def test_the_real_corpus_has_the_dialogues_that_are_promised(tmp_path: Path) -> None:
    pytest.importorskip("chatterbot_corpus", reason="the extra `samples` is not installed")
    made = make_dialogues(tmp_path)
    assert made["dialogues"] == dialogues.DIALOGUES and made["topics"] == 21
    records = lines(tmp_path / dialogues.FILE)
    assert len({json.dumps(record["messages"]) for record in records}) == 898
    assert all(messages_of(record) for record in records)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ILUG] A new kernel\n\nIt is out.", ("A new kernel", "It is out.", False)),
        ("Re: A new kernel\n\nFine.", ("Re: A new kernel", "Fine.", True)),
        ("[list] RE[2]: old\n\nFine.", ("RE[2]: old", "Fine.", True)),
        ("Fwd: news\n\nFine.", ("Fwd: news", "Fine.", True)),
        ("Resume of it\n\nbody", ("Resume of it", "body", False)),
        ("News\n\nURL: http://a.b/c\nDate: Not supplied\n\nWords.\n\nMore.", ("News", "Words.\n\nMore.", False)),
        ("no body", ("no body", "", False)),
    ],
)
def test_a_mail_is_taken_apart(text: str, expected: tuple[str, str, bool]) -> None:
    assert parts_of(text) == expected


def test_only_mails_that_open_a_thread_in_plain_words_are_taken(tmp_path: Path) -> None:
    body = "This is the body of a mail which says quite a lot of things about many matters, and more.\n"
    texts = [
        f"[ILUG] A new kernel\n\n{body}",
        f"Re: A new kernel\n\n{body}",
        f"a NEW kernel\n\n{body}",
        "Short\n\nToo short.",
        f"???\n\n{body}",
        f"Offer\n\n<html>{body}</html>",
    ]
    mails = tmp_path / "spam"
    mails.mkdir()
    records = [{"id": f"easy-ham-1/{i}", "text": text, "date": "2002-08-21T00:00:00Z"} for i, text in enumerate(texts)]
    (mails / "easy-ham-1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (mails / "spam-1.jsonl").write_text(json.dumps({"id": "s", "text": f"Bait\n\n{body}"}) + "\n")
    made = make_subjects(tmp_path / "out", mails)
    assert made == {"subjects": 1, "replies": 1, "html": 1, "short": 2, "repeated": 1}
    (record,) = lines(tmp_path / "out/subjects.jsonl")
    expected = {"prompt": body.strip(), "completion": "A new kernel", "date": "2002-08-21T00:00:00Z"}
    assert record == expected | {"id": "easy-ham-1/0"} and messages_of(record)


def test_no_mails_say_where_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="daymill sample spam"):
        make_subjects(tmp_path / "out", tmp_path)


def test_the_commands_tell_how_to_run_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("chatterbot_corpus", reason="the extra `samples` is not installed")
    assert cli.main(["sample", "dialogues", "--out", str(tmp_path / "made")]) == 0
    assert "--preset dialogues --until finetune" in capsys.readouterr().out
