"""Bad examples made of sound texts, for a corpus where nobody has marked any: each kind spoils a text in its own way.

They need not be the noise that a corpus has. A model that learns them learns where sound text ends, which is what the
held-out kinds of benchmarks/noise.py measure.
"""

# ruff: noqa: ARG001 (every kind is called alike)
from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from data.quality.phrases import NOTICES
from data.quality.scripts import TOKEN

ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TAGS = ("div", "span", "td", "p", "li", "a", "font", "b", "table")
SIGNS = "!?#*~%$&/=+-_.:;|<>()[]{}^@\\"
MAX_CHARS = 4_000  # of a text that is spoiled
CUT_FROM = 60  # words; a piece of a shorter text is a short sound text, and learning it as bad condemns those
CUTS = frozenset(("truncated", "half_spoiled"))


class Examples(NamedTuple):
    """What a quality model learns from; `parents` names the good text that each bad one was made of, or -1."""

    good: list[str]
    bad: list[str]
    parents: list[int]


def weak_examples(
    kept: Sequence[str], refused: Sequence[str], seed: int, kinds: Sequence[str] | None = None
) -> Examples:
    """Good: what the rules keep. Bad: what they refuse, and one spoiled copy of every good text (of all kinds)."""
    good = [text for text in kept if text.strip()]
    return Examples(good, [*refused, *corrupted(good, seed, kinds)], [-1] * len(refused) + list(range(len(good))))


def corrupted(texts: Sequence[str], seed: int, kinds: Sequence[str] | None = None) -> list[str]:
    """One spoiled copy of each text. The kind and the damage follow from the text and the seed alone."""
    chosen = list(kinds or KINDS)
    others = sorted(texts, key=lambda text: digest(text, seed))[:200] or [""]
    return [spoil(text, others, seed, chosen) for text in texts]


def spoil(text: str, others: Sequence[str], seed: int, kinds: Sequence[str]) -> str:
    rng = random.Random(digest(text, seed))
    if len(text.split()) < CUT_FROM:
        kinds = [kind for kind in kinds if kind not in CUTS] or kinds
    return KINDS[rng.choice(kinds)](text.strip()[:MAX_CHARS], rng, others)


def digest(text: str, seed: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, salt=seed.to_bytes(8)).digest()


def mojibake(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """UTF-8 read as a western charset, once or twice; texts of ASCII get accents first, as in other languages."""
    if text.isascii():
        text = text.translate(str.maketrans("aeou", rng.choice(("áéóú", "äëöü", "àèòù"))))
    for _ in range(rng.choice((1, 1, 2))):
        text = text.encode("utf-8", "replace").decode(rng.choice(("latin-1", "cp1252")), "replace")
    return text


def lost_bytes(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Letters become question marks or replacement characters."""
    sign, share = rng.choice("?\ufffd"), rng.uniform(0.04, 0.3)
    return "".join(sign if char.isalpha() and rng.random() < share else char for char in text)


def truncated(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Cut anywhere, at the end or at both ends."""
    begin = rng.randint(0, len(text) // 3) if rng.random() < 0.4 else 0
    return text[begin : max(begin + 1, rng.randint(len(text) // 5, max(len(text) // 5, 4 * len(text) // 5)))]


def shuffled(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """The same words in a random order."""
    words = text.split() if " " in text else list(text)
    rng.shuffle(words)
    return (" " if " " in text else "").join(words)


def word_salad(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Words of many texts."""
    words = [word for _ in range(8) for word in TOKEN.findall(rng.choice(others)[:MAX_CHARS])] or ["x"]
    return " ".join(rng.choices(words, k=rng.randint(10, 120)))


def letters(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Random letters, consonants only or all alike likely, instead of all words or of some."""
    bank = rng.choice((LETTERS, "bcdfghjklmnpqrstvwxz", LETTERS + "aeiouaeiou"))
    share = rng.choice((1.0, rng.uniform(0.3, 1)))
    words = text.split() or ["x"]
    return " ".join(
        "".join(rng.choices(bank, k=rng.randint(2, 11))) if rng.random() < share else word for word in words[:200]
    )


def key_mashing(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """A hand on the keyboard."""

    def run() -> str:
        row = rng.choice(ROWS)
        at = rng.randrange(len(row) - 3)
        return "".join(rng.choice(row[at : at + 4]) for _ in range(rng.randint(2, 6)))

    return "".join(run() + (" " if rng.random() < 0.4 else "") for _ in range(rng.randint(4, 60)))


def char_noise(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Letters replaced, doubled, dropped or swapped."""
    share, noisy = rng.uniform(0.08, 0.4), []
    for char in text:
        if not char.isalpha() or rng.random() >= share:
            noisy.append(char)
        else:
            noisy.append(rng.choice((rng.choice(LETTERS), char * 2, "", rng.choice(SIGNS + "0123456789"))))
    return "".join(noisy)


def repeated(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """A part of the text, or one word, again and again."""
    words = text.split() or [text]
    at, length = rng.randrange(len(words)), rng.choice((1, 2, 5, 12, 25))
    piece = " ".join(words[at : at + length])
    return rng.choice((" ", "\n", ". ")).join([piece] * rng.randint(4, 40))


def notices(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Notices that stand on every page, with little or nothing of the text."""
    words, said = text.split(), rng.sample(NOTICES, rng.randint(3, 9))
    if rng.random() < 0.5:
        said.insert(rng.randrange(len(said)), " ".join(words[: rng.randint(1, 12)]))
    return rng.choice((" ", "\n", " | ")).join(said)


def markup(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Tags and entities between the words, whole or torn, or a piece of a program's data."""
    if rng.random() < 0.25:
        fields = [f'"{word.lower()}": "{rng.randint(0, 9999)}"' for word in text.split()[: rng.randint(3, 40)]]
        return "{" + ", ".join(fields) + "}"
    noisy = []
    for word in text.split():
        tag = rng.choice(TAGS)
        before = rng.choice(
            (f"<{tag}>", f'<{tag} class="{rng.choice(LETTERS)}{rng.randint(1, 99)}">', "&nbsp;", f"</{tag}>")
        )
        noisy.append(before + word if rng.random() < 0.5 else word)
    return " ".join(noisy)


def symbols(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Signs and digits only."""
    bank = rng.choice((SIGNS, SIGNS + "0123456789" * 2, "0123456789  .,-"))
    return "".join(rng.choice(bank + "  ") for _ in range(rng.randint(10, 400)))


def encoded(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """The text as base64, hexadecimal or with escapes."""
    raw = text.encode("utf-8", "replace")[:1_500]
    if rng.random() < 0.6:
        lines = base64.b64encode(raw).decode()
        return "\n".join(lines[at : at + 76] for at in range(0, len(lines), 76))
    return (
        raw.hex() if rng.random() < 0.5 else "".join(f"%{byte:02X}" if byte < 48 else chr(byte & 127) for byte in raw)
    )


def odd_case(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Small and capital letters at random, or spaces between the letters."""
    if rng.random() < 0.5:
        return " ".join(char for char in text[:600] if not char.isspace())
    return "".join(char.upper() if rng.random() < 0.5 else char.lower() for char in text)


def spliced(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Pieces of several texts, torn out anywhere."""
    pieces = []
    for other in [text, *rng.choices(others, k=rng.randint(3, 8))]:
        at = rng.randrange(max(1, len(other)))
        pieces.append(other[at : at + rng.randint(5, 60)])
    return "".join(pieces)


def machine(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """What programs write for programs: events, settings, calls, measurements."""
    words = [word.lower() for word in TOKEN.findall(text) if word.isascii() and word.isalpha()] or ["value"]
    name = lambda: "_.-"[rng.randrange(3)].join(rng.choices(words, k=rng.randint(1, 3)))  # noqa: E731
    number = lambda: rng.choice((f"{rng.randint(0, 99_999)}", f"0x{rng.getrandbits(32):x}", f"{rng.random():.4f}"))  # noqa: E731
    forms: tuple[Callable[[], str], ...] = (
        lambda: f"[{number()}] {name()}: {name()}={number()} {name()}={number()}",
        lambda: f"{name()} = {number()};",
        lambda: f"{name()}({name()}, {number()}) -> {name()}",
        lambda: f"<{number()}>{name()}[{rng.randint(1, 999)}]: {name()} ({rng.randint(1, 99)}:{rng.randint(10, 59)})",
        lambda: f"{{{name()}: {number()}, {name()}: [{number()}, {number()}]}}",
        lambda: "\t".join(number() for _ in range(rng.randint(3, 8))),
        lambda: f"/{name()}/{name()}/{name()}:{rng.randint(1, 999)}",
        lambda: f"{rng.randint(2000, 2030)}{rng.randint(101, 999)}T{rng.randint(1000, 2359)} {name().upper()}",
    )
    chosen = rng.sample(forms, rng.randint(1, 3))
    return rng.choice(("\n", "\n", " ")).join(rng.choice(chosen)() for _ in range(rng.randint(4, 40)))


def fragments(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """One to three words an entry, as in menus, lists of links and tags."""
    words = text.split() or ["x"]
    entries = []
    for _ in range(rng.randint(8, 60)):
        at = rng.randrange(len(words))
        entries.append(" ".join(words[at : at + rng.randint(1, 3)]).strip(".,;:!?").capitalize())
    return rng.choice(("\n", " | ", ", ", "  ", " > ", " - ")).join(entries)


def links(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Addresses, with a few words between them."""
    words = text.split() or ["x"]
    part = lambda: "".join(rng.choices(LETTERS, k=rng.randint(3, 10)))  # noqa: E731
    rows = []
    for _ in range(rng.randint(4, 25)):
        at = rng.randrange(len(words))
        rows.append(f"{' '.join(words[at : at + rng.randint(0, 2)])} http://{part()}.{part()[:3]}/{part()}/{part()}")
    return "\n".join(rows)


def unfilled(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Places of a form instead of many words."""
    place = rng.choice(("{}", "{{ x }}", "<...>", "____", "%d", "xxx", "N/A", "null", "(none)", "$1", "[...]"))
    share = rng.uniform(0.2, 0.7)
    return " ".join(place if rng.random() < share else word for word in text.split()[:400])


def sounds(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """The text's own syllables, put together anew."""
    words = [word for word in TOKEN.findall(text) if len(word) > 3] or ["word"]
    halves = [(word[: len(word) // 2], word[len(word) // 2 :]) for word in words]
    return " ".join(rng.choice(halves)[0] + rng.choice(halves)[rng.randrange(2)] for _ in range(rng.randint(10, 150)))


def turned(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Backwards by letters, within the words or altogether; or letters shifted in the alphabet."""
    way = rng.randrange(3)
    if way == 0:
        return text[::-1]
    if way == 1:
        return " ".join(word[::-1] for word in text.split())
    by = rng.randint(1, 25)
    shifted = LETTERS[by:] + LETTERS[:by]
    return text.translate(str.maketrans(LETTERS + LETTERS.upper(), shifted + shifted.upper()))


def substituted(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """The same sign for the same letter, always: digits for letters, letters of other alphabets, letters left out."""
    bank = rng.choice(("0123456789", "\u0430\u0435\u043e\u0440\u0441\u0445\u0456", SIGNS, ("",)))
    chosen = rng.sample("aeiorstn", rng.randint(3, 6))
    return text.translate({ord(letter): rng.choice(bank) for letter in chosen})


def invisible(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Signs that show nothing, controls or stray signs between the letters."""
    bank = rng.choice(("\u200b\u200d\ufeff\u00ad", "\x00\x01\x07\x08\x1b", "\u0301\u0327\u0336", "|", "*~_"))
    share = rng.uniform(0.08, 0.6)
    return "".join(char + rng.choice(bank) if rng.random() < share else char for char in text[:3_000])


def stutters(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Words or sentences that come twice and more."""
    share, piece = rng.uniform(0.25, 0.9), rng.choice((1, 1, 3, 8))
    words = text.split()
    said: list[str] = []
    for at in range(0, len(words), piece):
        said += words[at : at + piece] * (rng.randint(2, 3) if rng.random() < share else 1)
    return " ".join(said)


def half_spoiled(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Sound to a point, and then spoiled in one of the other ways."""
    at = rng.randint(len(text) // 4, max(len(text) // 4, 3 * len(text) // 4))
    made = KINDS[rng.choice([kind for kind in KINDS if kind not in {"half_spoiled", "truncated"}])]
    return text[:at] + made(text[at:] or "x", rng, others)


KINDS: dict[str, Callable[[str, random.Random, Sequence[str]], str]] = {
    made.__name__: made
    for made in (
        mojibake,
        lost_bytes,
        truncated,
        shuffled,
        word_salad,
        letters,
        key_mashing,
        char_noise,
        repeated,
        notices,
        markup,
        symbols,
        encoded,
        odd_case,
        spliced,
        machine,
        fragments,
        links,
        unfilled,
        sounds,
        turned,
        substituted,
        invisible,
        stutters,
        half_spoiled,
    )
}
