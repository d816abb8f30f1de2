"""The diagnoses of ICD-10-CM: short medical texts, imbalanced, and full of near duplicates that must not merge.

"Left" and "right", "initial" and "subsequent encounter" are one word apart. They come with the package
simple-icd-10-cm, so nothing is fetched here.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from data.errors import DaymillError

FILE = "diagnoses.jsonl"
DIAGNOSES = 74_719  # of the release in simple-icd-10-cm 1.5.0 (April 2026)
CATEGORY = 3  # characters of a code that name its category

Progress = Callable[[int, int], None]


def make_icd10(out: Path, progress: Progress | None = None) -> dict[str, int]:
    """Write one record a billable code to `out`; return how many diagnoses, chapters and categories there are.

    id is the code, text its description, label the number of its chapter, entity its category (S72), so that a split
    never separates a category. `progress(done, total)` is called after each record. Raises DaymillError where the
    package is missing.
    """
    icd10 = _package()
    # single-category blocks come twice, and blocks without codes are no diagnoses
    codes = [code for code in dict.fromkeys(icd10.get_all_codes(True)) if icd10.is_leaf(code) and "-" not in code]
    chapters: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    part = out / f".{FILE}.part"
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for done, code in enumerate(codes, start=1):
            chapter = icd10.get_ancestors(code)[-1]
            chapters[chapter] += 1
            record = {
                "id": code,
                "text": icd10.get_description(code),
                "label": chapter,
                "entity": code[:CATEGORY],
                "chapter": icd10.get_description(chapter),
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            if progress:
                progress(done, len(codes))
    os.replace(part, out / FILE)
    return {
        "diagnoses": len(codes),
        "chapters": len(chapters),
        "categories": len({code[:CATEGORY] for code in codes}),
        "smallest": min(chapters.values(), default=0),
        "largest": max(chapters.values(), default=0),
    }


def _package() -> ModuleType:
    try:
        import simple_icd_10_cm
    except ModuleNotFoundError as error:
        if error.name != "simple_icd_10_cm":
            raise
        raise DaymillError(
            "the package simple-icd-10-cm is not installed; it holds the diagnoses. Install it with: "
            "pip install -e '.[samples]'"
        ) from None
    return simple_icd_10_cm
