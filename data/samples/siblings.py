"""Texts that must never merge though a template made them, and texts that must: copies with edits of known similarity.

Siblings share every word but their values: dose, unit, frequency, date, amount, side, negation, drug. Planted copies
differ in words that state nothing protected. Both are written without a look at the vocabularies that protect them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from data.dedup.lists import words
from data.dedup.pairs import SHINGLE, jaccard, shingles
from data.errors import DaymillError
from data.text import normalize

FORMS = (
    "Patient seen in the outpatient clinic for a scheduled review after surgery on {date}. The wound is clean and dry, "
    "appetite is normal and the patient walks without help. Examination of the {side} knee shows {no}sign of infection "
    "and movement is almost complete. Blood pressure {pressure} at rest. Plan: continue {drug} {dose} {unit} {often}, "
    "exercises at home as shown by the physiotherapist, and a new review in {count} {span} with a blood test.",
    "Dear customer, your order was packed on {date} and handed over to the carrier. The total of {amount} was charged "
    "to the card that you named, and the invoice is in your account under orders. Delivery takes {count} {span} at "
    "most, and the parcel is {no}insured against loss on the way. If something is missing or damaged, tell us and we "
    "will put it right. Thank you for your trust, and we hope to see you again in our shop.",
    "Discharge letter. The child was admitted through the emergency room with pain in the {side} wrist after a fall "
    "from a tree. The picture shows {no}fracture, the soft tissue is swollen, and feeling and pulse are normal. The "
    "child received {dose} {unit} of {drug} {often} and may go home today with a splint. Return at once if the pain "
    "grows, the fingers turn pale or fever comes up; otherwise see the family doctor within {count} {span}.",
    "Payment reminder. Our books show that the bill of {date} over {amount} has {no}been settled, although it was due "
    "some time ago. Please look into the matter and transfer the sum within {count} {span} to the account that is "
    "named on the bill. Should your payment have crossed this letter, we thank you and ask you to disregard it. For "
    "questions our colleagues in accounting are there for you on weekdays during business hours.",
)
SIDES = ("left", "right")
DRUGS = tuple(
    sorted(
        words("""
    bisoprolol metoprolol ramipril enalapril losartan valsartan atorvastatin simvastatin omeprazole pantoprazole
    amoxicillin azithromycin ciprofloxacin apixaban rivaroxaban amlodipine ibuprofen diclofenac warfarin
    metformin digoxin morphine paracetamol aspirin prednisolone furosemide gabapentin sertraline fluconazole
    acyclovir
""")
    )
)
UNITS = ("mg", "mcg", "g", "ml", "units", "drops", "tablets")
OFTEN = ("once daily", "twice daily", "three times daily", "every six hours", "every 8 hours", "once weekly")
SPANS = ("hours", "days", "weeks", "months")
CURRENCIES = ("{} euro", "€{}", "${}", "{} GBP", "CHF {}")
MONTHS = tuple(
    ("January February March April May June July August September October November December").split()  # noqa: SIM905
)
DATES = ("{day} {month} {year}", "{month} {day}, {year}", "{year}-{number:02d}-{day:02d}", "{day}.{number}.{year}")

# What an edit puts in: words that state nothing protected.
NEUTRAL = tuple(
    sorted(
        words("""
    clearly mostly again perhaps rather quite still indeed kindly simply usually often mainly surely nearly
    partly table window garden letter paper answer reason matter summer river stone music bridge color paint
    village
""")
    )
)
FOOTERS = (
    "This message was sent automatically by the account service.",
    "Please consider the environment before printing this message.",
    "You receive this mail because you subscribed to our news.",
    "This is an automatic notification, please do not reply to it.",
    "Sent from my phone.",
)
# An edit stays away from these and from digits, by a word on each side.
TOUCHY = words("""
    no not nor none never neither without cannot nothing left right both one two three four five six seven eight nine
    ten half first second third once twice daily weekly monthly hourly may today tomorrow yesterday initial subsequent
    type stage grade class group level phase copyright every hours days weeks months year years
""").union(DRUGS)
EDITS = ("replace", "delete", "insert", "mixed", "footer", "form")


@dataclass(frozen=True)
class Planted:
    """A copy of the text at `place`: what was done to it, and the exact Jaccard similarity of the two."""

    place: int
    text: str
    edit: str
    similarity: float


def siblings(count: int, seed: int = 0, forms: Sequence[str] = FORMS) -> list[str]:
    """`count` texts, the forms in turns, no two of one form with the same values."""
    rng = random.Random(f"{seed}/siblings")
    found: dict[str, None] = {}
    tries = 0
    while len(found) < count:
        tries += 1
        if tries > 20 * count + 1000:
            raise DaymillError(f"the forms have fewer than {count:,} siblings; ask for fewer or give more forms")
        found.setdefault(_fill(forms[len(found) % len(forms)], rng))
    return list(found)


def planted(texts: Iterable[str], seed: int = 0, similarity: float = 0.8) -> Iterator[Planted]:
    """One edited copy of each text, at least `similarity` to it; a text too short for an edit differs in form only."""
    for place, text in enumerate(texts):
        rng = random.Random(f"{seed}/planted/{place}")
        edit = rng.choice(EDITS)
        copy, reached = _edited(text, edit, similarity, rng)
        if edit == "form" or copy == text:
            yield Planted(place, _reformed(text, rng), "form", 1.0)
        else:
            yield Planted(place, _reformed(copy, rng) if rng.random() < 0.2 else copy, edit, reached)


def _fill(form: str, rng: random.Random) -> str:
    number = rng.randint(1, 12)
    date = rng.choice(DATES).format(
        day=rng.randint(13, 28), month=MONTHS[number - 1], number=number, year=rng.randint(2001, 2026)
    )
    amount = rng.choice(CURRENCIES).format(f"{rng.randint(1, 999)}.{rng.randint(10, 99)}")
    return form.format(
        date=date,
        side=rng.choice(SIDES),
        no=rng.choice(("", "not " if "{no}been" in form or "{no}insured" in form else "no ")),
        pressure=f"{rng.randint(90, 190)}/{rng.randint(50, 110)}",
        drug=rng.choice(DRUGS),
        dose=rng.choice(("0.5", "1", "2.5", "5", "7.5", "10", "12.5", "20", "25", "40", "50", "75", "100", "250")),
        unit=rng.choice(UNITS),
        often=rng.choice(OFTEN),
        amount=amount,
        count=rng.randint(2, 12),
        span=rng.choice(SPANS),
    )


def _edited(text: str, edit: str, similarity: float, rng: random.Random) -> tuple[str, float]:
    """The text with as many edits as a draw says and the similarity allows, and the similarity that it has."""
    own = shingles(normalize(text))
    tokens = text.split(" ")
    free = _free_places(tokens)
    if edit == "footer":
        copy = f"{text} {rng.choice(FOOTERS)}"
        reached = jaccard(own, shingles(normalize(copy))) or 0.0
        return (copy, reached) if reached >= similarity else (text, 1.0)
    # an edit on its own changes at most SHINGLE of n shingles on each side
    most = int(len(own) * (1 - similarity) / (SHINGLE * (1 + similarity)) + 1)
    for edits in range(rng.randint(1, max(1, most)), 0, -1):
        copy = _with_edits(tokens, rng.sample(free, min(edits, len(free))), edit, rng)
        reached = jaccard(own, shingles(normalize(copy))) or 0.0
        if reached >= similarity:
            return copy, reached
    return text, 1.0


def _with_edits(tokens: Sequence[str], places: Iterable[int], edit: str, rng: random.Random) -> str:
    edited: list[str | None] = list(tokens)
    for place in places:
        kind = rng.choice(("replace", "delete", "insert")) if edit == "mixed" else edit
        if kind == "replace":
            edited[place] = rng.choice([word for word in NEUTRAL if word != tokens[place]])
        elif kind == "delete":
            edited[place] = None
        elif kind == "insert":
            edited[place] = f"{tokens[place]} {rng.choice(NEUTRAL)}"
    return " ".join(word for word in edited if word is not None)


def _free_places(tokens: Sequence[str]) -> list[int]:
    """Plain lower-case words with plain neighbors."""
    touchy = [any(map(str.isdigit, word)) or word.strip('.,;:!?()"').lower() in TOUCHY for word in tokens]
    return [
        place
        for place, word in enumerate(tokens)
        if word.isascii() and word.isalpha() and word.islower() and not any(touchy[max(0, place - 1) : place + 2])
    ]


def _reformed(text: str, rng: random.Random) -> str:
    """Another case or other white space: the same text once normalized."""
    change = rng.randrange(4)
    if change == 0 and text.isascii():
        return text.upper()
    if change == 1 and text.isascii():
        return text.lower()
    if change == 2:
        return text.replace(". ", ".  \n")
    return f"  {text}\n"
