"""Kinds of noise that cleaning is measured on, beside the made-up corpus's own: none is learned from, or fitted to.

They follow what corpora really hold: crawled pages, logs, exports, scans, wrong encodings, damaged and disguised text.
"""

# ruff: noqa: ARG001 (every kind is called alike)
from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

LOREM = (
    "lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do", "eiusmod", "tempor",
    "incididunt", "ut", "labore", "et", "dolore", "magna", "aliqua", "ut", "enim", "ad", "minim", "veniam", "quis",
    "nostrud", "exercitation", "ullamco", "laboris", "nisi", "ut", "aliquip", "ex", "ea", "commodo", "consequat",
)  # fmt: skip
MENU = (
    "Home", "About", "Products", "Support", "Login", "Register", "Cart (0)", "Search", "Next page", "Previous",
    "Archive", "Tags", "RSS", "Print", "Share", "Tweet", "Comments (0)", "Sitemap", "Careers", "Press", "FAQ",
    "Imprint", "Download now", "Buy now", "Add to wishlist", "More...", "Top", "Help", "Forum",
)  # fmt: skip
PAGE = (
    "We value your privacy. Accept or reject the use of cookies on this site.",
    "By continuing you agree to our terms of service and data policy.",
    "You have reached your limit of free articles. Subscribe to keep reading.",
    "Enter your email address below to get weekly updates.",
    "This content is not available in your region.",
    "Your browser is out of date and may not show this page as intended.",
    "© All content on this site is protected by copyright law.",
    "Thank you for visiting, please rate our service.",
    "Fields marked with an asterisk are required.",
    "The opinions expressed here are those of the authors alone.",
)
LEVELS = ("INFO", "DEBUG", "WARN", "ERROR")
CLASSES = ("Service", "Handler", "Dao", "Util", "Filter", "Proxy", "Client")
FIELDS = ("{{name}}", "%s", "$VALUE", "[FIELD]", "undefined", "NaN", "null", "<missing>")
LEET = str.maketrans("aeiostlAEIOSTL", "4310571431057|")
ALIKE = str.maketrans("aeocpx", "аеосрх")  # Cyrillic
SCAN = {"m": "rn", "l": "1", "o": "0", "e": "c", "i": "l", "h": "b", "w": "vv", "d": "cl", "S": "5", "B": "8", "a": "o"}
SCRIPTS = ((0x370, 0x6FF), (0x900, 0xDFF), (0x3400, 0x9FFF), (32, 32))


def spoil(text: str, kind: str, rng: random.Random) -> str:
    """What a kind of noise makes of a sound text."""
    return KINDS[kind](text, rng)


def scanned(text: str, rng: random.Random) -> str:
    """A bad scan: letters read as others, words run together or torn."""
    read = [SCAN.get(char, char) if rng.random() < 0.5 else char for char in text]
    return "".join("" if char == " " and rng.random() < 0.25 else char + " " * (rng.random() < 0.06) for char in read)


def page_menu(text: str, rng: random.Random) -> str:
    return rng.choice(("\n", " | ", " » ", "  ")).join(rng.choices(MENU, k=rng.randint(12, 60)))


def page_notices(text: str, rng: random.Random) -> str:
    return rng.choice((" ", "\n")).join(rng.sample(PAGE, rng.randint(4, 9)))


def log_lines(text: str, rng: random.Random) -> str:
    return "\n".join(
        f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)} {rng.randint(10, 23)}:{rng.randint(10, 59)},"
        f"{rng.randint(100, 999)} {rng.choice(LEVELS)} [worker-{rng.randint(1, 9)}] c.e.Handler$%{rng.randint(1, 40)} "
        f"req={rng.getrandbits(48):x} status={rng.choice((200, 404, 500))} took={rng.randint(1, 900)}ms"
        for _ in range(rng.randint(4, 25))
    )


def stack_trace(text: str, rng: random.Random) -> str:
    calls = [
        f"\tat com.example.{rng.choice(CLASSES).lower()}.{rng.choice(CLASSES)}{rng.choice(CLASSES)}.invoke"
        f"({rng.choice(CLASSES)}.java:{rng.randint(10, 900)})"
        for _ in range(rng.randint(6, 30))
    ]
    return "Exception in thread main java.lang.NullPointerException\n" + "\n".join(calls)


def lorem(text: str, rng: random.Random) -> str:
    return " ".join(rng.choices(LOREM, k=rng.randint(30, 150))).capitalize() + "."


def attachment(text: str, rng: random.Random) -> str:
    raw = base64.b64encode(rng.randbytes(rng.randint(150, 2_000))).decode()
    head = f"Content-Type: image/gif; name=pic{rng.randint(1, 99)}.gif\nContent-Transfer-Encoding: base64\n\n"
    return head * (rng.random() < 0.5) + "\n".join(raw[at : at + 76] for at in range(0, len(raw), 76))


def uuencoded(text: str, rng: random.Random) -> str:
    alphabet = [chr(code) for code in range(33, 97)]
    return "\n".join("M" + "".join(rng.choices(alphabet, k=60)) for _ in range(rng.randint(4, 30)))


def addresses(text: str, rng: random.Random) -> str:
    def word() -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9)))

    return "\n".join(
        f"http://www.{word()}.example/{word()}/{word()}?id={rng.randint(1, 9999)}" for _ in range(rng.randint(5, 40))
    )


def number_table(text: str, rng: random.Random) -> str:
    return "\n".join("\t".join(f"{rng.uniform(0, 1000):.2f}" for _ in range(6)) for _ in range(rng.randint(4, 40)))


def leet(text: str, rng: random.Random) -> str:
    return text.translate(LEET)


def backwards(text: str, rng: random.Random) -> str:
    return text[::-1]


def no_vowels(text: str, rng: random.Random) -> str:
    return "".join(char for char in text if char not in "aeiouAEIOU")


def zero_width(text: str, rng: random.Random) -> str:
    return "".join(char + rng.choice("\u200b\u200c\u2060\u00ad") * (rng.random() < 0.5) for char in text)


def look_alikes(text: str, rng: random.Random) -> str:
    """Letters of another alphabet that look the same."""
    return "".join(char.translate(ALIKE) if rng.random() < 0.7 else char for char in text)


def entities(text: str, rng: random.Random) -> str:
    ways: tuple[Callable[[str], str], ...] = (
        lambda char: f"&#{ord(char)};",
        lambda char: f"\\u{ord(char):04x}",
        lambda char: "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "replace")),
    )
    escaped = rng.choice(ways)
    return "".join(escaped(char) if not char.isalnum() or rng.random() < 0.3 else char for char in text[:3_000])


def data_dump(text: str, rng: random.Random) -> str:
    def row() -> dict[str, object]:
        return {"id": rng.getrandbits(32), "type": rng.choice("abc"), "val": rng.random(), "tags": [rng.choice(MENU)]}

    return json.dumps([row() for _ in range(rng.randint(3, 20))])


def program(text: str, rng: random.Random) -> str:
    def name() -> str:
        return rng.choice(("i", "tmp", "node", "buf", "ctx", "val")) + str(rng.randint(0, 9))

    forms: tuple[Callable[[], str], ...] = (
        lambda: f"if ({name()} == null) {{ return {name()}; }}",
        lambda: f"var {name()} = fn({name()}, {name()}[{rng.randint(0, 9)}]);",
        lambda: "}",
    )
    return "\n".join(rng.choice(forms)() for _ in range(rng.randint(8, 50)))


def unfilled(text: str, rng: random.Random) -> str:
    """A form whose fields were never filled in."""
    return " ".join(rng.choice(FIELDS) if rng.random() < 0.45 else word for word in text.split()[:300])


def syllables(text: str, rng: random.Random) -> str:
    """Words that could be said and mean nothing."""

    def word() -> str:
        return "".join(rng.choice("bcdfghklmnprstvwz") + rng.choice("aeiouy") for _ in range(rng.randint(1, 4)))

    return " ".join(word() for _ in range(rng.randint(20, 120)))


def pictures(text: str, rng: random.Random) -> str:
    return "".join(rng.choice("😀😂🔥💯👍🎉❤✨🚀😍 ") * rng.randint(1, 4) for _ in range(rng.randint(15, 80)))


def many_scripts(text: str, rng: random.Random) -> str:
    """Random characters of all scripts."""
    return "".join(chr(rng.randint(*rng.choice(SCRIPTS))) for _ in range(rng.randint(60, 400)))


def cyrillic_mojibake(text: str, rng: random.Random) -> str:
    """UTF-8 read as a Cyrillic charset."""
    return text.translate(str.maketrans("aeio", "áéíó")).encode("utf-8", "replace").decode("cp1251", "replace")


def cut_word(text: str, rng: random.Random) -> str:
    """Ends in the middle of a word, early."""
    at = rng.randint(len(text) // 8, max(len(text) // 8, len(text) // 2))
    while 0 < at < len(text) and not (text[at - 1].isalpha() and text[at].isalpha()):
        at += 1
    return text[:at]


def half_garbage(text: str, rng: random.Random) -> str:
    """The first half is sound, then comes what a broken disk left."""
    half = text[: len(text) // 2]
    bytes_left = (rng.choice((rng.randint(1, 31), rng.randint(33, 255))) for _ in range(max(20, len(half))))
    return half + "".join(map(chr, bytes_left))


def mixed_words(text: str, rng: random.Random) -> str:
    """The right words, each some places away from its own."""
    words = text.split()
    return " ".join(word for _, word in sorted((at + rng.uniform(-6, 6), word) for at, word in enumerate(words)))


def stutter(text: str, rng: random.Random) -> str:
    """Every few words come once, twice or three times."""
    words, said, at = text.split(), list[str](), 0
    while at < len(words):
        step = rng.randint(1, 4)
        said += words[at : at + step] * rng.randint(1, 3)
        at += step
    return " ".join(said)


KINDS: dict[str, Callable[[str, random.Random], str]] = {
    made.__name__: made
    for made in (
        *(scanned, page_menu, page_notices, log_lines, stack_trace, lorem, attachment, uuencoded, addresses),
        *(number_table, leet, backwards, no_vowels, zero_width, look_alikes, entities, data_dump, program, unfilled),
        *(syllables, pictures, many_scripts, cyrillic_mojibake, cut_word, half_garbage, mixed_words, stutter),
    )
}
