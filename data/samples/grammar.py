"""Made-up payment notes: a small grammar whose sentences lean towards fraud or towards ok, and some towards neither."""

from __future__ import annotations

import random

NAMES = [
    "Abara",
    "Bellini",
    "Chowdhury",
    "Dvorak",
    "Eriksen",
    "Fonseca",
    "Grigore",
    "Haddad",
    "Ibrahim",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Moreau",
    "Nakamura",
    "Okafor",
    "Petrova",
    "Quispe",
    "Rossi",
    "Silva",
    "Tanaka",
    "Ueda",
    "Varga",
    "Wagner",
    "Xu",
    "Yilmaz",
    "Zielinski",
]
SHOPS = [
    "a bakery",
    "a bookshop",
    "a garage",
    "a pharmacy",
    "a toy store",
    "a travel agency",
    "a gym",
    "a florist",
    "a hardware store",
    "a music shop",
    "a furniture house",
    "a phone shop",
    "a petrol station",
    "a shoe store",
    "an optician",
    "a jeweler",
    "a pet shop",
    "a print shop",
]
GOODS = [
    "two tickets",
    "a winter coat",
    "a set of tires",
    "a birthday cake",
    "a used laptop",
    "a pair of glasses",
    "a garden table",
    "a camera",
    "a month of lessons",
    "a box of tiles",
    "a ring",
    "a bicycle",
    "a phone",
    "a crate of apples",
    "a washing machine",
    "a sofa",
    "a drone",
]
PLACES = [
    "Aarhus",
    "Bergamo",
    "Cork",
    "Dresden",
    "Elche",
    "Faro",
    "Gdansk",
    "Haarlem",
    "Ivrea",
    "Jena",
    "Kaunas",
    "Lyon",
    "Malmo",
    "Nantes",
    "Oulu",
    "Porto",
]
TIMES = [
    "early in the morning",
    "before noon",
    "around lunch",
    "in the afternoon",
    "in the evening",
    "late at night",
    "on the way home",
]

LEANING = {
    "ok": (
        "{name} paid {amount} euro at {shop} in {place} for {goods}.",
        "The receipt for {goods} was sent with the claim and the amount of {amount} euro agrees.",
        "The customer visits {shop} in {place} every week and knows the staff.",
        "{name} returned {goods} after {days} days and the refund was booked the same week.",
        "The card was used with the PIN {time} and the terminal belongs to {shop}.",
        "A standing order of {amount} euro was set up at the branch in {place} with a passport.",
        "The purchase of {goods} fits what {name} bought in the years before.",
        "{name} called about the fee of {amount} euro and understood the explanation.",
    ),
    "fraud": (
        "{name} says that the {amount} euro at {shop} in {place} were never authorized.",
        "The password was changed {time} from an unknown device, and then {amount} euro left the account.",
        "A caller who claimed to be the bank asked {name} for the code on the display.",
        "The link in the message led to a copied page that asked for the card number.",
        "{days} payments of {amount} euro to a new recipient followed within minutes.",
        "The delivery address for {goods} was changed to a locker in {place} right after the order.",
        "The account was opened with a document that was reported stolen in {place}.",
        "{name} was told to buy gift cards for {amount} euro and to read out the numbers.",
    ),
    "neither": (
        "{name} wrote to us {time} about {goods}.",
        "We looked at the account of {name} over the last {days} days.",
        "The case was passed on {time} and waits for an answer from {place}.",
        "The card of {name} was replaced {days} days ago.",
        "Please add the statement about {goods} to the file.",
    ),
}
# In every note, so that each has a number that its siblings can differ in.
AMOUNT = "The amount in question is {amount} euro and the shop is {shop} in {place}."
FOOTERS = (
    "This message and its attachments are confidential and meant for the addressee only.",
    "Please consider the environment before printing this message.",
    "All offers are subject to our general terms and conditions as amended.",
    "This is an automatic notification, please do not reply to it.",
    "Copyright and all other rights reserved, no liability is assumed.",
    "If you received this in error, delete it and inform the sender.",
    "Our privacy policy explains how we process personal data.",
    "Registered office and court of registration as stated on our website.",
    "You receive this because you subscribed, click here to unsubscribe.",
    "View this message in your browser if it is not displayed correctly.",
)


def note(rng: random.Random, label: str) -> str:
    """Five to nine sentences; most lean towards the label, and now and then one leans the other way."""
    other = "ok" if label == "fraud" else "fraud"
    leanings = [label] * rng.randint(2, 3) + ["neither"] * rng.randint(2, 4) + ([other] if rng.random() < 0.15 else [])
    rng.shuffle(leanings)
    used = [AMOUNT]
    for leaning in leanings:
        used.append(rng.choice([form for form in LEANING[leaning] if form not in used]))
    rng.shuffle(used)
    return " ".join(fill(rng, form) for form in used)


def fill(rng: random.Random, form: str) -> str:
    """One sentence of a form, with names, goods and numbers drawn anew."""
    return form.format(
        name=rng.choice(NAMES),
        shop=rng.choice(SHOPS),
        goods=rng.choice(GOODS),
        place=rng.choice(PLACES),
        time=rng.choice(TIMES),
        amount=f"{rng.randint(2, 4000)}.{rng.randint(0, 99):02d}",
        days=rng.randint(2, 90),
    )
