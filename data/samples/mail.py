"""One raw mail (RFC 822) as one record: what was found, and the text a person would have read.

Real mail breaks every rule: undeclared charsets, missing blank lines, base64 that is not. Whatever fails to decode is
given as found, because an empty text would teach the filter that broken mails look alike.
"""

from __future__ import annotations

import binascii
import codecs
import email
import email.message
import email.utils
import re
from datetime import UTC, datetime

# Charsets that senders name wrongly, and the larger one that reads what they meant.
SUPERSETS = {
    "us-ascii": "cp1252",
    "ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
SUPERSETS |= {"big5": "cp950", "ks_c_5601-1987": "cp949", "euc-kr": "cp949", "shift_jis": "cp932"}
MULTIBYTE = re.compile(r"gb|big5|cp9|euc|iso-2022|jis|ks_c|utf", re.IGNORECASE)
HEADER_LINE = re.compile(r"([!-9;-~]+):[ \t]*(.*)")
ENCODED_WORD = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?]*)\?=")
BETWEEN_WORDS = re.compile(r"(\?=)\s+(?==\?)")
META_CHARSET = re.compile(r"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
SURROGATES = re.compile("[\ud800-\udfff]")


def mail_record(raw: bytes, mail_id: str, label: str, years: tuple[int, int] = (1990, 2100)) -> dict[str, object]:
    """The record of one mail: id, label, text, subject, body, headers and, where it can be believed, date.

    `subject`, `body` and `headers` ([name, value] pairs) stand as found: undecoded, UTF-8 or else latin-1.
    `text` is the decoded subject, a blank line and the decoded body: every text part (HTML as it is), no named
    attachment. `date` (ISO 8601, UTC) comes from the Date header when its year lies within `years`.
    """
    found, western = _as_found(raw)
    headers, body = _split(found)
    subject = next((value for name, value in headers if name.lower() == "subject"), "")
    message = email.message_from_bytes(_without_envelope(raw))
    parts = [part for part in message.walk() if _is_readable(part)]
    title = _decode_subject(subject, western, _charset(parts[0]) if parts else None)
    content = "\n\n".join(filter(str.strip, map(_decode_part, parts)))
    text = f"{title}\n\n{content}".strip()
    record: dict[str, object] = {
        "id": mail_id,
        "label": label,
        "text": _valid(text or f"{subject}\n\n{body}".strip()),
        "subject": subject,
        "body": body,
        "headers": [[name, value] for name, value in headers if name.lower() != "subject"],
    }
    stamp = next((value for name, value in headers if name.lower() == "date"), "")
    date = parse_date(stamp, years)
    if date:
        record["date"] = date
    return record


def parse_date(stamp: str, years: tuple[int, int]) -> str | None:
    """A Date header as ISO 8601 in UTC, or None where it is no date or its year is not within `years`."""
    try:
        date = email.utils.parsedate_to_datetime(stamp)
        # "-0000" says that the zone is unknown: the time is read as UTC
        date = date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date.isoformat().replace("+00:00", "Z") if plausible(date, years) else None


def plausible(date: datetime, years: tuple[int, int]) -> bool:
    """Whether the year lies within `years`, both included: spammers date mails decades away to sort on top."""
    return years[0] <= date.year <= years[1]


def decode_bytes(data: bytes, charset: str | None) -> str:
    """Text of `data`: the declared charset, its superset, UTF-8, and at last a byte-for-byte western reading."""
    declared = (charset or "").strip().strip("\"'").lower()
    escaped = "iso-2022-jp" if b"\x1b$" in data else ""  # these escapes are that charset, whatever was declared
    for name in (escaped, declared, SUPERSETS.get(declared, ""), "utf-8"):
        if text := _strictly(data, name):
            return text
    if MULTIBYTE.match(declared) and _is_text_codec(declared):
        return data.decode(SUPERSETS.get(declared, declared), errors="replace")
    return _strictly(data, "cp1252") or data.decode("latin-1")


def _strictly(data: bytes, charset: str) -> str:
    if not charset or not _is_text_codec(charset):
        return ""
    try:
        return data.decode(charset)
    except (UnicodeError, ValueError):
        return ""


def _is_text_codec(name: str) -> bool:
    # the codec registry also knows base64, zlib and rot13, and escapes that are no charset of a mail
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    is_text = getattr(info, "_is_text_encoding", True)
    escapes = {"unicode_escape", "raw_unicode_escape", "undefined", "idna", "punycode"}
    return bool(is_text) and info.name.replace("-", "_") not in escapes


def _as_found(raw: bytes) -> tuple[str, bool]:
    """The mail as text, and whether it had to be read byte by byte (latin-1)."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return raw.decode("latin-1"), True


def _without_envelope(raw: bytes) -> bytes:
    # the "From sender date" line belongs to the mailbox file, not to the mail
    return raw.partition(b"\n")[2] if raw.startswith((b"From ", b">From ")) else raw


def _split(mail: str) -> tuple[list[tuple[str, str]], str]:
    """Headers in their order (continuation lines kept, with their line breaks) and the body."""
    headers: list[list[str]] = []
    rest = mail
    while rest:
        line, _, after = rest.partition("\n")
        stripped = line.rstrip("\r")
        if not stripped:
            return _pairs(headers), after
        if stripped[0] in " \t" and headers:
            headers[-1][1] += "\n" + stripped
        elif found := HEADER_LINE.fullmatch(stripped):
            headers.append([found[1], found[2]])
        elif headers or not stripped.startswith(("From ", ">From ")):
            break  # no blank line before the body
        rest = after
    return _pairs(headers), rest


def _pairs(headers: list[list[str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers]


def _decode_subject(found: str, western: bool, charset: str | None) -> str:
    # 8-bit bytes in a header name no charset: the body's is the best guess
    if western and not found.isascii():
        found = decode_bytes(found.encode("latin-1"), charset)
    return " ".join(decode_words(found).split())


def decode_words(value: str) -> str:
    """Header text with its encoded words (RFC 2047) decoded; a word that cannot be read stays as found."""
    value = BETWEEN_WORDS.sub(r"\1", value)
    runs: list[tuple[str, bytes]] = []  # charset and bytes; "" carries text that was not encoded, as UTF-8
    end = 0
    for word in ENCODED_WORD.finditer(value):
        data = _word_bytes(word[2], word[3])
        if data is None:
            continue
        charset = word[1].partition("*")[0].lower()
        if between := value[end : word.start()]:
            runs.append(("", between.encode("utf-8", "replace")))
        if runs and runs[-1][0] == charset:
            runs[-1] = (charset, runs[-1][1] + data)  # senders cut multi-byte characters between two words
        else:
            runs.append((charset, data))
        end = word.end()
    return "".join(decode_bytes(data, charset or "utf-8") for charset, data in runs) + value[end:]


def _word_bytes(encoding: str, data: str) -> bytes | None:
    try:
        if encoding in "bB":
            return binascii.a2b_base64(data + "==")
        return binascii.a2b_qp(data, header=True)
    except (binascii.Error, ValueError):
        return None


def _is_readable(part: email.message.Message) -> bool:
    if part.is_multipart():
        return False  # its parts come by themselves
    try:
        named = part.get_filename() is not None or part.get_content_disposition() == "attachment"
    except (ValueError, LookupError, TypeError):
        named = False  # an unreadable disposition names nothing
    # a "multipart" without parts has lost its boundary: what it holds is the text
    return not named and part.get_content_maintype() in {"text", "multipart"}


def _decode_part(part: email.message.Message) -> str:
    # the parser carries bytes beyond ASCII as lone surrogates
    found = str(part.get_payload()).encode("utf-8", "surrogateescape")
    charset = _charset(part)
    try:
        data = part.get_payload(decode=True)
    except (ValueError, LookupError, AssertionError, TypeError):
        data = found
    text = decode_bytes(data, charset) if isinstance(data, bytes) else ""
    return text if text.strip() else decode_bytes(found, charset)


def _charset(part: email.message.Message) -> str | None:
    try:
        declared = part.get_content_charset()
    except (ValueError, LookupError, TypeError):
        declared = None
    if declared or part.get_content_type() != "text/html":
        return declared
    meta = META_CHARSET.search(str(part.get_payload()))
    return meta[1] if meta else None


def _valid(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates (a wrong UTF-7 or UTF-16) become the replacement character."""
    return SURROGATES.sub("\ufffd", text)
