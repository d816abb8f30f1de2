"""Reads the protected items of a text: chunks between white space, a memo of them, a close look at the few that matter.

Most chunks hold no item, and most were seen before: the memo answers for them at the price of a dictionary's look-up.
A chunk that says all by itself ("no", "120/80,") is answered by the memo too; only where neighbors decide ("5 mg",
"3 March") are tokens looked at one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress

from data.dedup import chunks as parts
from data.dedup import han, units, vocabulary
from data.dedup.chunks import (
    ADDRESS,
    CONDITIONS,
    EVERYTHING,
    GOES_ON,
    JOIN_BITS,
    MARKUP,
    NOTHING,
    OPENING,
    PLAIN,
    PUNCTUATION,
    TAKE_A_LOOK,
    TO_DESIGNATOR,
    TO_NUMBER,
    TO_QUANTITY,
    UNIT_ATTACHED,
    WAITING,
    Chunk,
    Memo,
    tokens_of,
)
from data.dedup.classify import (
    BEFORE,
    COPYRIGHT,
    CURRENCY,
    DESIGNATOR,
    EYE,
    HAN_DRUG,
    HAN_NUMBER,
    ITEM,
    MONTH,
    NEGATION,
    NUMBER,
    PHRASE,
    SIGN,
    WEEKDAY,
    Code,
    classify,
)
from data.dedup.drugs import HAN_PREFIX
from data.dedup.quantities import (
    Item,
    behind_copyright,
    beside_number,
    decimal,
    designator,
    han_number,
    month,
    number,
    one,
)
from data.text import normalize

KINDS = ("number", "date", "negation", "laterality", "drug", "episode")

# Letters and digits in turns, long: what a machine made up.
CODE = re.compile(r"(?=.{10})[^\W_]*?(?:[^\W\d_]\d|\d[^\W\d_])[\w-]*?(?:[^\W\d_]\d|\d[^\W\d_])[\w-]*")
# Chunks looked at before and after one whose neighbors decide: at most, and at least for a mail's footer.
BEHIND, AHEAD, FOOTER = 2, 9, 4


class Reader:
    """Reads items of the given kinds, and the user's words.

    With `markup` what stands in HTML tags counts too, with `addresses` what stands in URLs and mail addresses, with
    `footers` the negations and years of mail footers; without `codes` those of machines do not.
    """

    def __init__(
        self,
        kinds: frozenset[str],
        phrases: Sequence[str] = (),
        markup: bool = False,
        addresses: bool = False,
        codes: bool = True,
        footers: bool = False,
    ) -> None:
        self.kinds = kinds | {"word"}
        self.markup = markup
        self.addresses = addresses
        self.codes = codes
        self.footers = footers
        self._phrases: dict[str, list[list[str]]] = {}
        for phrase in sorted({tuple(tokens_of(normalize(phrase))) for phrase in phrases}, key=lambda p: (-len(p), p)):
            self._phrases.setdefault(phrase[0], []).append(list(phrase))
        self._longest = max((len(phrase) for phrases in self._phrases.values() for phrase in phrases), default=0)
        self._classes = Memo(self._classify, parts.REMEMBERED)
        self._chunks = Memo(self._chunk, parts.REMEMBERED_IN_FULL)
        self._matters = Memo(self._may_matter, parts.REMEMBERED)

    def read(self, text: str) -> list[Item]:
        """Kind and canonical value of every item of a text, in its order."""
        # for ASCII this is what normalize does
        text = text.lower() if text.isascii() else normalize(text)
        chunks = text.split()
        if not self.markup and "<" in text:
            chunks = MARKUP.sub(" ", " ".join(chunks)).split()
        items: list[Item] = []
        resume = 0
        last = len(chunks) - 1
        for place in compress(range(len(chunks)), map(self._matters.__getitem__, chunks)):
            if place < resume:
                continue
            chunk = self._chunks[chunks[place]]
            behind = self._chunks[chunks[place + 1]] if chunk.waits and place < last else NOTHING
            if chunk.says is not None and not chunk.waits & behind.joins:
                items += chunk.says
            elif (
                chunk.amount is not None
                and behind.unit is not None
                and (place + 2 > last or not self._chunks[chunks[place + 2]].goes_on)
            ):
                items.append(("number", f"{chunk.amount} {behind.unit}"))
                resume = place + 2
            else:
                resume = self._look(chunks, place, items)
        return items if len(self.kinds) > len(KINDS) else [item for item in items if item[0] in self.kinds]

    def _look(self, chunks: list[str], place: int, items: list[Item]) -> int:
        """Append what stands at a chunk, by its neighbors; return the chunk after what was read."""
        tokens: list[str] = []
        codes: list[Code | None] = []
        ends = [0]
        start = stop = max(0, place - BEHIND)
        at = 0
        while True:
            reach = self._reach(chunks, place)
            while stop < reach:
                tokens += self._chunks[chunks[stop]].tokens
                codes += self._chunks[chunks[stop]].codes
                ends.append(len(tokens))
                stop += 1
            at = max(at, ends[place - start])
            while at < ends[place - start + 1]:
                code = codes[at]
                at = at + 1 if code is None else self._item(tokens, codes, at, code, items)
            while place < stop and ends[place - start + 1] <= at:
                place += 1
            # what was read may end inside of a chunk, whose other tokens are then read with it
            if place == stop or ends[place - start] == at:
                return place

    def _reach(self, chunks: list[str], place: int) -> int:
        """The chunk behind all that may belong to what stands at a chunk."""
        reach = place + 1
        last = min(len(chunks), place + AHEAD)
        while reach < last and self._chunks[chunks[reach]].goes_on:
            reach += 1
        return min(len(chunks), max(reach + 1, place + FOOTER, place + self._longest))

    def _may_matter(self, chunk: str) -> bool:
        """Whether a token of a chunk may be an item or a part of one; most chunks are one plain word."""
        word = chunk.strip(PUNCTUATION)
        if word.isascii() and word.isalpha():
            return self._classes[word] is not None
        return bool(word) and (word.isdigit() or any(self._chunks[chunk].codes))

    def _chunk(self, text: str) -> Chunk:
        word = text.rstrip(PUNCTUATION).lstrip(OPENING)
        if word not in self._phrases:
            if word.isascii() and word.isalpha() and self._classes[word] is None:
                joins = JOIN_BITS.get(word, 0) | (TO_DESIGNATOR if len(word) == 1 else 0)
                return Chunk([word], [None], [], 0, None, units.UNITS.get(word), joins, word in GOES_ON)
            if PLAIN.fullmatch(word):
                code = (NUMBER, "number", word)
                return Chunk([word], [code], [("number", word)], TO_NUMBER, decimal(word), None, 0, True)
        return self._chunk_of_any(text)

    def _chunk_of_any(self, text: str) -> Chunk:
        if not self.addresses and ("@" in text or "://" in text or "www." in text):
            text = ADDRESS.sub(" ", text)
        tokens = tokens_of(text)
        codes = [self._classes[token] for token in tokens]
        roles = {code[0] for code in codes if code is not None}
        ending = codes[-1][0] if codes and codes[-1] is not None else ITEM
        waits = WAITING.get(ending, 0)
        if NUMBER in roles and (tokens[-1] in units.UNITS or UNIT_ATTACHED.search(tokens[-1])):
            waits = TO_NUMBER | TO_QUANTITY
        says: list[Item] | None = None
        if not roles & TAKE_A_LOOK and ending not in (SIGN, CURRENCY):
            says = []
            at = 0
            while at < len(tokens):
                code = codes[at]
                at = at + 1 if code is None else self._item(tokens, codes, at, code, says)
        first = tokens[0] if tokens else ""
        amount = decimal(first) if roles == {NUMBER} and len(tokens) == 1 and PLAIN.fullmatch(first) else None
        unit = units.UNITS.get(first) if len(tokens) == 1 and first not in han.DATE_UNITS else None
        goes_on = not tokens or any(token in GOES_ON or token[0].isdigit() for token in tokens[:AHEAD])
        joins = JOIN_BITS.get(first, 0) if tokens else EVERYTHING
        if first in ("a", "p") and tokens[1:2] == ["m"]:
            joins |= TO_NUMBER
        if len(first) == 1 and first.isalpha():
            joins |= TO_DESIGNATOR
        return Chunk(tokens, codes, says, waits, amount, unit, joins, goes_on)

    def _classify(self, token: str) -> Code | None:
        if not self.codes and CODE.fullmatch(token):
            return None
        return (PHRASE, "word", token) if token in self._phrases else classify(token)

    def _item(self, tokens: list[str], codes: list[Code | None], place: int, code: Code, items: list[Item]) -> int:
        """Append what stands at a place; return the place after it."""
        role, kind, value = code
        if role == PHRASE:
            for phrase in self._phrases[value]:
                if tokens[place : place + len(phrase)] == phrase:
                    items.append((kind, " ".join(phrase)))
                    break
            # the word may be something of its own beside
            codes[place] = own = classify(value)
            return place + 1 if own is None else self._item(tokens, codes, place, own, items)
        if role == ITEM:
            items.append((kind, value))
        elif role == NEGATION:
            if self.footers or not is_footer(tokens, place, value):
                items.append((kind, value))
        elif role in (NUMBER, SIGN, CURRENCY):
            return number(tokens, codes, place, items)
        elif role == COPYRIGHT:
            return place + 1 if self.footers else behind_copyright(tokens, place)
        elif role == MONTH:
            return month(tokens, place, items)
        elif role == WEEKDAY:
            if beside_number(codes, place):
                items.append((kind, value))
        elif role == BEFORE and kind == "one":
            return one(tokens, place, items)
        elif role == BEFORE:
            kind, nouns = ("episode", vocabulary.EPISODES[value]) if kind == "episode" else CONDITIONS[kind]
            if place + 1 < len(tokens) and tokens[place + 1] in nouns:
                items.append((kind, value))
        elif role == EYE:
            if beside_number(codes, place) or (place + 1 < len(tokens) and tokens[place + 1] in vocabulary.EYE_WORDS):
                items.append((kind, value))
        elif role == DESIGNATOR:
            return designator(tokens, place, items)
        elif role == HAN_NUMBER:
            return han_number(tokens, place, items)
        elif role == HAN_DRUG:
            items.append((kind, han_drug(tokens, place)))
        return place + 1


def is_footer(tokens: list[str], place: int, negation: str) -> bool:
    """Whether a negation belongs to a mail's footer, by the words behind it."""
    phrases = vocabulary.FOOTER_NEGATIONS.get(negation, ())
    return any(tokens[place + 1 : place + 1 + len(phrase)] == phrase for phrase in phrases)


def han_drug(tokens: list[str], place: int) -> str:
    """A Chinese drug's stem with the two characters that tell it from its siblings."""
    if tokens[place] == HAN_PREFIX:
        return HAN_PREFIX + "".join(tokens[place + 1 : place + 2])[:2]
    return "".join(tokens[max(0, place - 2) : place])[-2:] + tokens[place]
