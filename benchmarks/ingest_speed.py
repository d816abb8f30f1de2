"""Ingest beside readers without its checks: records a second and a core from JSON Lines to Parquet.

Run as `python benchmarks/ingest_speed.py [--records 200000] [--rounds 7]`. The records are 1.2 kB: an id, a text of
1,100 characters with line breaks, quotes and a few letters beyond ASCII, a label, a date and two more fields. Every
contestant writes zstd Parquet of the same rows, alone while it works. The figure is records by seconds of CPU time of
the whole process, all its threads included, so that a contestant with more threads gains nothing by them.

- daymill: strict RFC 8259, mapping, ids, dates, ledger, quarantine, commits.
- pyarrow: `pyarrow.json.read_json` and `write_table`: no strictness, no ledger, one file in memory.
- pandas: `read_json(lines=True, dtype=False)` and `to_parquet`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from turns import answer, contest, medians

NAMES = ["daymill", "pyarrow", "pandas"]
SOURCE = "DAYMILL_BENCH_SOURCE"
TEXT_LENGTH = 1_100
BAR = 100_000  # records a second and a core


def make_records(path: Path, count: int) -> None:
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 11))) for _ in range(8_000)]
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            chosen = draw.choices(words, cum_weights=weights, k=240)
            for place in draw.sample(range(150), 6):
                chosen[place] += "\n"
            for place in draw.sample(range(150), 3):
                chosen[place] = f'"{chosen[place]}"'
            chosen[draw.randrange(150)] = draw.choice(["café", "naïve", "Zürich"])
            record = {
                "id": f"rec-{number:08d}",
                "text": " ".join(chosen)[:TEXT_LENGTH],
                "label": draw.choice(["spam", "ham"]),
                "date": f"2024-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}",
                "channel": draw.choice(["mail", "web", "phone"]),
                "score": round(draw.random(), 4),
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def daymill(source: Path, out: Path) -> int:
    from data.ingest import Places, ingest
    from data.readers.item import Limits
    from data.records import source_files
    from data.validate import field_map

    places = Places(out / "records", out / "quarantine.jsonl", out / "ledger.parquet")
    report = ingest(source_files(source), places, field_map(), Limits(), work=out / "work", fast_from=0)
    return report.kept


def pyarrow(source: Path, out: Path) -> int:
    from pyarrow import json as arrow_json
    from pyarrow import parquet

    table = arrow_json.read_json(source)
    parquet.write_table(table, out / "a.parquet", compression="zstd", row_group_size=10_000)
    return int(table.num_rows)


def pandas(source: Path, out: Path) -> int:
    import pandas as pd

    frame = pd.read_json(source, lines=True, dtype=False, convert_dates=False)
    frame.to_parquet(out / "a.parquet", compression="zstd", row_group_size=10_000)
    return len(frame)


CONTESTANTS: dict[str, Callable[[Path, Path], int]] = {"daymill": daymill, "pyarrow": pyarrow, "pandas": pandas}


def contestant(name: str) -> None:
    source = Path(os.environ[SOURCE])

    def measure() -> float:
        out = Path(tempfile.mkdtemp(dir=source.parent))
        try:
            started = time.process_time()
            records = CONTESTANTS[name](source, out)
            return records / (time.process_time() - started)
        finally:
            shutil.rmtree(out)

    measure()  # imports, compiled functions, the page cache
    answer(measure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "records.jsonl")
        make_records(source, options.records)
        size = source.stat().st_size / options.records
        os.environ[SOURCE] = str(source)
        figures = contest(Path(__file__), NAMES, options.rounds)
    print(f"{options.records:,} records of {size:,.0f} bytes, medians of {options.rounds} rounds, CPU time")
    print(f"{'':<10}{'records/s/core':>16}{'MB/s':>8}{'spread':>22}")
    for name, median in medians(figures).items():
        spread = f"{min(figures[name]):,.0f} to {max(figures[name]):,.0f}"
        print(f"{name:<10}{median:>16,.0f}{median * size / 1e6:>8,.0f}{spread:>22}")
    print(f"bar: {BAR:,} records/s/core for daymill")


if __name__ == "__main__":
    contestant(sys.argv[1]) if len(sys.argv) == 2 and sys.argv[1] in NAMES else main()
