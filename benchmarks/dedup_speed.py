"""Near duplicates: signatures, the join of fingerprints, recall of the bands, and the whole stage.

Texts are made up: 200 words, a vocabulary of 20,000 with Zipf's frequencies. Contestants for signatures are processes
of their own on one core, which take turns; medians are compared. Bars stand beside what was measured. Run as
`python benchmarks/dedup_speed.py`, with `--documents 1000000` for the bar of the whole stage.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.turns import answer, contest, medians

WORDS, VOCABULARY = 200, 20_000
TEXTS = 2_000  # of a turn
ROUNDS = 5
SHINGLE = 5
NEAR_SHARE = 0.1  # of the documents of the whole stage are an edit of the one before
RECALL_PAIRS = 4_000
OUT = Path("artifacts/bench/dedup_speed.json")
OURS, RENSA, RENSA_WORDS, DATASKETCH = "daymill", "rensa", "rensa, single words", "datasketch"
OUR_SIMHASH, SIMHASH = "daymill simhash", "simhash package"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=100_000, help="of the whole stage; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each contestant; 0 leaves them out")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a killed benchmark leaves nothing behind
    report: dict[str, object] = {}
    if arguments.rounds:
        report["minhash"] = signatures(
            "MinHash-128", [OURS, RENSA, RENSA_WORDS, DATASKETCH], arguments.rounds, "20,000"
        )
        report["simhash"] = signatures("SimHash-64", [OUR_SIMHASH, SIMHASH], arguments.rounds, "20,000")
    report["join"] = alone(join)
    report["recall"] = alone(recall)
    if arguments.documents:
        report["stage"] = stage(arguments.documents, arguments.workers)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def signatures(title: str, names: list[str], rounds: int, bar: str) -> dict[str, object]:
    """Text to signature, documents a second and core; the first name is ours."""
    figures = contest(Path(__file__), names, rounds)
    middle = medians(figures)
    print(f"{title + ', documents/s/core':40} {'median':>10} {'ours is':>9} {'bar':>9}")
    for name, value in middle.items():
        ours = name == names[0]
        print(
            f"{name:40} {value:10,.0f} {'' if ours else f'{middle[names[0]] / value:.1f}x':>9} {bar if ours else '':>9}"
        )
    return {"documents_per_s": figures, "median": middle}


def contestant(name: str) -> None:
    texts = list(made_up(TEXTS, seed=0))
    run = {OURS: ours, RENSA: rensa, RENSA_WORDS: rensa_words, DATASKETCH: datasketch}.get(name) or {
        OUR_SIMHASH: our_simhash,
        SIMHASH: simhash_package,
    }[name]
    work = run(texts)
    work()  # warm-up: compiled kernels come from their cache

    def measure() -> float:
        start = time.process_time()
        work()
        return len(texts) / (time.process_time() - start)

    answer(measure)


def ours(texts: list[str]) -> Callable[[], object]:
    from data.dedup.minhash import sign

    return lambda: sign(texts)


def rensa(texts: list[str]) -> Callable[[], object]:
    from rensa import RMinHash

    return lambda: RMinHash.digest_matrix_from_token_sets([shingles(text) for text in texts], 128, 1)


def rensa_words(texts: list[str]) -> Callable[[], object]:
    """Without shingles, as its own examples do it: less work, and order counts for nothing."""
    from rensa import RMinHash

    return lambda: RMinHash.digest_matrix_from_token_sets([text.lower().split() for text in texts], 128, 1)


def datasketch(texts: list[str]) -> Callable[[], object]:
    from datasketch import MinHash

    return lambda: MinHash.bulk([[one.encode() for one in shingles(text)] for text in texts], num_perm=128, seed=1)


def our_simhash(texts: list[str]) -> Callable[[], object]:
    from data.dedup.simhash import BUCKETS, count_features, rarity, simhash
    from data.dedup.tokens import token_hashes

    counts = np.zeros(BUCKETS, np.int64)
    count_features(token_hashes(texts), counts)
    weights = rarity(counts)
    return lambda: simhash(texts, weights)


def simhash_package(texts: list[str]) -> Callable[[], object]:
    from simhash import Simhash

    return lambda: [Simhash(text).value for text in texts]


def shingles(text: str) -> list[str]:
    words = text.lower().split()
    return [" ".join(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)]


def alone(measure: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Run in a process of its own, so that its peak of memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        report = pool.apply(measure)
    for line in report.pop("lines"):  # type: ignore[attr-defined]
        print(line)
    return report


def join() -> dict[str, object]:
    """A million fingerprints, one in a hundred at Hamming distance 3 or less from another."""
    import psutil

    from data.dedup.blocks import near_pairs

    random = np.random.default_rng(0)
    prints = random.integers(0, 2**64, 1_000_000, dtype=np.uint64)
    for _ in range(3):
        prints[:10_000] ^= np.uint64(1) << random.integers(0, 64, 10_000, dtype=np.uint64)
    prints[10_000:20_000] = prints[:10_000] ^ (np.uint64(1) << random.integers(0, 64, 10_000, dtype=np.uint64))
    near_pairs(prints[:1000])  # warm-up
    process = psutil.Process()
    before, start = process.memory_info().rss, time.process_time()
    pairs = near_pairs(prints)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    line = f"{'1 M fingerprints joined':40} {seconds:8.2f} s {peak / 2**20:7.0f} MiB {'4 s, 150 MB':>12}"
    return {"seconds": seconds, "mib": peak / 2**20, "pairs": len(pairs), "lines": [line]}


def recall() -> dict[str, object]:
    """Planted pairs at a known Jaccard: what share our bands make candidates, and datasketch's default bands."""
    from datasketch import MinHash, MinHashLSH

    from data.dedup.bands import choose_bands
    from data.dedup.jaccard import jaccard
    from data.dedup.minhash import PERMUTATIONS, SEED, band_keys, sign_shingles
    from data.dedup.tokens import distinct, shingle_hashes, token_hashes

    bands, found, lines = choose_bands(0.8, 0.99), {}, []
    for low, high, bar in ((0.8, 0.82, 0.99), (0.9, 0.92, 0.999)):
        texts = [text for pair in edited(RECALL_PAIRS, low) for text in pair]
        sets = distinct(shingle_hashes(token_hashes(texts), SHINGLE))
        a, b = np.arange(0, len(texts), 2), np.arange(1, len(texts), 2)
        similarity = jaccard(sets.values, sets.starts[:-1], sets.starts[1:], a, b)
        a, b = a[(similarity >= low) & (similarity < high)], b[(similarity >= low) & (similarity < high)]
        signed = sign_shingles(sets).values
        keys = band_keys(signed, bands.count, bands.rows)
        share = float((keys[:, a] == keys[:, b]).any(axis=0).mean())
        lsh = MinHashLSH(threshold=0.8, num_perm=PERMUTATIONS)
        sketches = [
            MinHash(seed=SEED, hashvalues=row, scheme="affine32", permutations=None) for row in signed[np.append(a, b)]
        ]
        for at, sketch in zip(a.tolist(), sketches):
            lsh.insert(at, sketch)
        theirs = float(np.mean([at in lsh.query(sketch) for at, sketch in zip(a.tolist(), sketches[len(a) :])]))
        name = f"recall, {len(a):,} pairs, Jaccard {low} to {high}"
        lines.append(
            f"{name:40} {share:10.2%} {bar:>9.1%} bar; datasketch's default bands {lsh.b} x {lsh.r}: {theirs:.1%}"
        )
        found[f"{low}"] = {"pairs": len(a), "ours": share, "datasketch": theirs}
    return {**found, "bands": [bands.count, bands.rows], "lines": lines}


def edited(count: int, low: float) -> Iterator[tuple[str, str]]:
    """Texts beside themselves with so many words replaced that the Jaccard similarity is `low` or a little more."""
    random = np.random.default_rng(1)
    grams = WORDS - SHINGLE + 1
    # each replaced word takes up to five shingles: similarity = (grams - 5 k) / (grams + 5 k)
    most = int(grams * (1 - low) / (1 + low) / SHINGLE)
    for text in made_up(count, seed=1):
        words = text.split()
        for at in random.choice(WORDS, most, replace=False):
            words[at] = f"new{random.integers(10**9)}"
        yield text, " ".join(words)


def stage(documents: int, workers: int) -> dict[str, object]:
    """Seconds (by the wall, and of the processors) and peak PSS over the process tree of `find`, shards of 50,000."""
    import psutil

    with tempfile.TemporaryDirectory(prefix="dedup-speed-") as name:
        folder = Path(name)
        planted = write_shards(folder / "records", documents)
        process = multiprocessing.get_context("spawn").Process(target=search, args=(folder, workers, documents))
        process.start()
        try:
            tree, peak = psutil.Process(process.pid), 0
            while process.is_alive():
                peak = max(peak, sum(map(pss, [tree, *children(tree)])))
                time.sleep(0.2)
        finally:
            process.kill()
            process.join()
        if process.exitcode:
            raise RuntimeError(f"the stage ended with exit code {process.exitcode}")
        report: dict[str, object] = json.loads((folder / "report.json").read_text())
    report |= {"documents": documents, "planted": planted, "peak_mib": peak / 2**20, "workers": workers}
    bar = "90 s, 1,536 MiB at 1 M" if documents <= 1_000_000 else ""
    name = f"{documents:,} documents, {workers} workers"
    print(f"{name:40} {report['seconds']:8.1f} s {peak / 2**20:7,.0f} MiB {bar:>12}; {report['cpu']:,.1f} s of CPU")
    print(f"{'planted, found, vetoed':40} {planted:,}, {report['merges']:,}, {report['vetoed']}")
    return report


def search(folder: Path, workers: int, documents: int) -> None:
    from data.dedup.bands import Plan
    from data.dedup.find import FindConfig, find
    from data.dedup.protect import ProtectConfig, Protector
    from data.shards import shard_files

    config = FindConfig()
    print("\n".join(Plan(config.bands, config.jaccard, documents, WORDS, NEAR_SHARE, workers).lines()))
    start = time.perf_counter()
    found = find(shard_files(folder / "records"), config, workers, folder / "work", Protector(ProtectConfig()))
    seconds = time.perf_counter() - start
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    merges = found.table.filter(found.table["veto"].is_null()).num_rows
    (folder / "report.json").write_text(json.dumps({"seconds": seconds, "cpu": cpu, "merges": merges, **found.report}))


def write_shards(folder: Path, documents: int) -> int:
    """Records of which NEAR_SHARE are the one before with one to four words replaced; how many those are."""
    import pyarrow as pa

    from data.shards import ShardWriter

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    random, planted, last = np.random.default_rng(2), 0, ""
    texts: list[str] = []
    with ShardWriter(folder, schema) as writer:
        for text in made_up(documents, seed=2):
            if last and random.random() < NEAR_SHARE:
                words = last.split()
                for at in random.integers(WORDS, size=random.integers(1, 5)):
                    words[at] = f"new{chr(97 + random.integers(26))}{chr(97 + random.integers(26))}"
                text, planted = " ".join(words), planted + 1
            texts.append(text)
            last = text
            if len(texts) == 10_000 or writer.rows + len(texts) == documents:
                ids = [str(writer.rows + at) for at in range(len(texts))]
                writer.write(pa.table([ids, texts], schema=schema))
                texts = []
    return planted


def made_up(count: int, seed: int) -> Iterator[str]:
    """Texts of WORDS words."""
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = ["".join(random.choice(letters, random.integers(2, 10))) for _ in range(VOCABULARY)]
    for start in range(0, count, 1000):
        ranks = random.zipf(1.2, (min(1000, count - start), WORDS)) % VOCABULARY
        for row in ranks.tolist():
            yield " ".join([vocabulary[rank] for rank in row])


def children(process: object) -> list[object]:
    import psutil

    try:
        return process.children(recursive=True)  # type: ignore[attr-defined,no-any-return]
    except psutil.NoSuchProcess:
        return []


def pss(process: object) -> int:
    import psutil

    try:
        return int(process.memory_full_info().pss)  # type: ignore[attr-defined]
    except psutil.Error:  # it ended between the listing and the question
        return 0


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        contestant(sys.argv[1])
    else:
        main()
