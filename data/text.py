"""Text reduced to what two copies share: for comparing and grouping only, never for training."""

from __future__ import annotations

import re
import unicodedata

URL = r"(?:\b(?:https?|ftp)://|\bwww\.)[^\s<>\"']+"
MAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
NUMBER = r"\d+(?:[.,:/-]\d+)*"
MASKED = re.compile(f"{URL}|{MAIL}|{NUMBER}")
TAG = re.compile(r"<[!/a-z][^>]{0,2000}>")
WORD = re.compile(r"\w+")


def normalize(text: str) -> str:
    """Text without differences of case, width, composition (NFKC) and white space; "" when nothing is left."""
    if text.isascii():
        return " ".join(text.lower().split())
    # folding can undo the composition ("ŉ" becomes two characters), so NFKC comes again
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def template(text: str) -> str:
    """The words of a text in order, without markup, its addresses and numbers masked: siblings of one form share it."""
    masked = MASKED.sub(" 0 ", TAG.sub(" ", normalize(text)))
    return " ".join(WORD.findall(masked))


def without_title(text: str) -> str:
    """The text after its first paragraph (a mail's subject, a ticket's title), or all of it where nothing follows."""
    return text.partition("\n\n")[2].strip() or text


def letters(text: str) -> int:
    """How many letters (of any script) a text has."""
    return sum(map(str.isalpha, text))
