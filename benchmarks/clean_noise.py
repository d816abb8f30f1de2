"""Noise before and after the three stages of cleaning, on corpora whose truth is known: five seeds, with intervals.

    python benchmarks/clean_noise.py [--records 4000] [--seeds 5]

Residual noise: noisy records among the kept ones. Wrongly dropped: sound records, no copies of another, that went.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from scipy import stats

from benchmarks.projects import make_project, run_stages
from data.samples.synthetic import TRUTH, make_synthetic

NOISE = 0.23


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None, help="write the figures there as well")
    arguments = parser.parse_args()
    found = [one_seed(arguments.records, seed) for seed in range(arguments.seeds)]
    for name, bar in (
        ("before", "23.0 %"),
        ("residual", "4.0 % or less (claim: 23 % -> 4 %)"),
        ("wrongly", "2 % or less"),
    ):
        middle, low, high = interval([float(each[name]) for each in found])
        print(f"{name:<10} {middle:7.2%}  95 % {low:6.2%} to {high:6.2%}   bar {bar}")
    missed: Counter[str] = sum((each["missed"] for each in found), Counter())
    print("noise that stayed, by kind:", dict(missed.most_common()) or "none")
    wrong: Counter[str] = sum((each["rules"] for each in found), Counter())
    print("sound records dropped, by rule:", dict(wrong.most_common()) or "none")
    if arguments.json:
        names = ("before", "residual", "wrongly")
        arguments.json.write_text(
            json.dumps({name: interval([float(e[name]) for e in found]) for name in names}) + "\n"
        )


def one_seed(records: int, seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_synthetic(folder / "source", records, NOISE, seed)
        make_project(folder / "run", folder / "source")
        run_stages(folder / "run")
        truth = {entry["id"]: entry for entry in map(json.loads, (folder / "source" / TRUTH).open())}
        kept, rules = decided(folder / "run")
    noisy = {row_id for row_id, told in truth.items() if told["noise"]}
    sound = {row_id for row_id, told in truth.items() if not told["noise"] and not told["duplicate"]}
    # an original whose copy stays in its place is not lost
    lost = {row_id for row_id in sound - kept if rules.get(row_id) not in ("exact_duplicate", "near_duplicate")}
    return {
        "before": len(noisy) / len(truth),
        "residual": len(noisy & kept) / len(kept),
        "wrongly": len(lost) / len(sound),
        "missed": Counter(truth[row_id]["noise"] for row_id in noisy & kept),
        "rules": Counter(rules.get(row_id, "refused by ingest") for row_id in lost),
    }


def decided(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Ids that clean keeps, and the rule by which it dropped each of the others."""
    rows = pq.read_table(folder / "artifacts/clean/ledger.parquet", columns=["id", "verdict", "rule"]).to_pylist()
    kept = {row["id"] for row in rows if row["verdict"] != "dropped"}
    return kept, {row["id"]: row["rule"] for row in rows if row["verdict"] == "dropped"}


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and Student's 95 % interval over the seeds."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


if __name__ == "__main__":
    main()
