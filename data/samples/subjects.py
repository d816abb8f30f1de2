"""Mails and their subject lines, from the sample of mails: a prompt to summarize, and how a person did it.

Only mails that open a thread count: the subject of a reply names the thread, not what the reply says. Spam is left out,
for its subjects are bait, and so are mails in HTML. Reply marks and list names ([ILUG]) are no part of a summary.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from data.errors import DaymillError

FILE = "subjects.jsonl"
MAIL_FILES = "*ham*.jsonl"
LIST_NAME = re.compile(r"\s*\[[^\]]{1,40}\]\s*")
REPLY = re.compile(r"\s*(?:re|fwd?|aw|sv)\s*(?:\[\d+\])?\s*:", re.IGNORECASE)
HTML = re.compile(r"<html|<body|<table|<!doctype", re.IGNORECASE)
FEED_LINE = re.compile(r"(?:URL|Date): .*\n+")  # what a news feed's mailer put before the text
SHORTEST = 80  # characters of a body that are worth a summary


def make_subjects(out: Path, mails: Path) -> dict[str, int]:
    """Write one record a thread to `out`: id, prompt (the body), completion (the subject), date.

    `mails` is what `daymill sample spam` makes. Returns how many were written and why the others were not. Raises
    DaymillError where there are no mails.
    """
    counts = {"subjects": 0, "replies": 0, "html": 0, "short": 0, "repeated": 0}
    seen: set[str] = set()
    records = list(read_mails(mails))  # before anything is written
    out.mkdir(parents=True, exist_ok=True)
    part = out / f".{FILE}.part"
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for mail in records:
            subject, body, reply = parts_of(mail["text"])
            if reply:
                why = "replies"
            elif HTML.search(body):
                why = "html"
            elif len(body) < SHORTEST or not any(char.isalpha() for char in subject):
                why = "short"
            elif subject.lower() in seen:
                why = "repeated"
            else:
                why = "subjects"
                seen.add(subject.lower())
                record = {"id": mail["id"], "prompt": body, "completion": subject, "date": mail.get("date")}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            counts[why] += 1
    os.replace(part, out / FILE)
    return counts


def parts_of(text: str) -> tuple[str, str, bool]:
    """Subject without list names, body without a feed's lines, and whether the mail is a reply."""
    subject, _, body = text.partition("\n\n")
    while found := LIST_NAME.match(subject):
        subject = subject[found.end() :]
    reply = REPLY.match(subject) is not None
    body = body.strip()
    while found := FEED_LINE.match(body):
        body = body[found.end() :].strip()
    return subject, body, reply


def read_mails(folder: Path) -> Iterator[dict[str, str]]:
    paths = sorted(folder.glob(MAIL_FILES))
    if not paths:
        raise DaymillError(f"{folder} has no mails ({MAIL_FILES}); make them with `daymill sample spam`")
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)
