"""Batches of unequal lengths: useful tokens, planning speed, and what a training step gains, beside random batches.

    python benchmarks/batches.py [--rounds N] [--counts]

Lengths of the sample mails (needs the splits of `make run`) and of a made-up heavy-tailed set. What pads sees 512
tokens of a text, what packs goes on in the next row. Planning is measured in CPU time of one core. For steps the
policies take turns in processes of their own; a figure is useful tokens a second, medians over rounds. About four
minutes on two cores; `--counts` leaves the steps out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from benchmarks.turns import answer, contest, medians
from data.batching import (
    IGNORE,
    POLICIES,
    budget_batches,
    pack_documents,
    padded_batches,
    place,
    split_lengths,
    useful_share,
)
from data.tokens import TokenShard, load_tokenizer

Index = NDArray[np.int64]

LONGEST = 512  # of a row
WHOLE = 4096  # tokens of a text that packing takes
BUDGET = 4096  # places of a micro-batch
ROWS = 32  # of an update in finetuning
RANDOM_ROWS = 16  # of a random batch, padded to its longest
PLANNED = 1_000_000
DEPTH, VOCAB = 3, 8192
TURN_TOKENS = 60_000
OUT = Path("artifacts/bench/batches.json")
WAYS = ("packed", "buckets", "buckets of an update", "padded", "random")
CLAIMS = "claims: useful 68 % -> 89 %, 20-30 % faster, batching -17 % cost; bars: packed 99 %, buckets 95 %, 1 M/s"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--counts", action="store_true", help="no timing of steps")
    options.add_argument("contestant", nargs="?")
    given = options.parse_args()
    if given.contestant:
        contestant(given.contestant)
        return
    print(CLAIMS)
    report: dict[str, object] = {}
    sets: dict[str, Callable[[int], Index]] = {"mails": mails, "heavy-tailed": partial(heavy_tailed, 4000)}
    for name, made in sets.items():
        lengths = made(LONGEST)
        shares = {way: share(way, made(WHOLE) if way == "packed" else lengths) for way in WAYS}
        told = ", ".join(f"{way} {each:.1%}" for way, each in shares.items())
        print(f"useful, {len(lengths):,} {name} (median {np.median(lengths):.0f}, at most {lengths.max()}): {told}")
        report[f"useful {name}"] = shares
    many = heavy_tailed(PLANNED)
    speeds = {way: planned_a_second(way, many) for way in WAYS}
    print("planned, sequences a second of CPU: " + ", ".join(f"{way} {each:,.0f}" for way, each in speeds.items()))
    report["planned"] = speeds
    if not given.counts:
        figures = contest(Path(__file__), list(WAYS), given.rounds)
        middle = medians(figures)
        print(f"{'useful tokens/s on mails':28}{'median':>9}{'over random':>13}{'cost a token':>14}")
        for way, value in middle.items():
            over = value / middle["random"]
            print(f"{way:28}{value:9,.0f}{over:12.2f}x{1 / over - 1:>+13.0%}")
        report["useful_tokens_per_s"] = figures
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def mails(longest: int = LONGEST) -> Index:
    from training.rows import load_rows

    tokenizer = load_tokenizer(Path("artifacts/tokenize/tokenizer.json"))
    preprocess = {"max_len": longest, "max_chars": 4096, "tail": 0.5}
    return load_rows(Path("artifacts/split/train"), tokenizer, preprocess).lengths


def heavy_tailed(count: int, longest: int = LONGEST) -> Index:
    return np.clip(np.random.default_rng(0).lognormal(4.5, 1.0, count).astype(np.int64), 2, longest)


def shuffled(count: int) -> Index:
    return np.random.default_rng(0).permutation(count)


def batches(way: str, lengths: Index) -> Iterator[Index]:
    """The batches of an epoch in one of the ways that pad."""
    order = shuffled(len(lengths))
    if way == "buckets":
        yield from budget_batches(lengths, BUDGET, seed=0)
    elif way == "buckets of an update":
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            yield from (rows[members] for members in POLICIES["buckets"](lengths[rows], BUDGET))
    elif way == "padded":
        yield from (order[members] for members in padded_batches(lengths[order], BUDGET))
    else:
        yield from (order[start : start + RANDOM_ROWS] for start in range(0, len(order), RANDOM_ROWS))


def share(way: str, lengths: Index) -> float:
    if way == "packed":
        pieces = split_lengths(lengths[shuffled(len(lengths))], LONGEST).length
        return float(pieces.sum() / (place(pieces, LONGEST).rows * LONGEST))
    return useful_share(lengths, list(batches(way, lengths)))


def planned_a_second(way: str, lengths: Index) -> float:
    share(way, lengths[:1000])  # compiled
    begun = time.process_time()
    if way == "packed":
        place(split_lengths(lengths, LONGEST).length, LONGEST)
    else:
        for _ in batches(way, lengths):
            pass
    return len(lengths) / (time.process_time() - begun)


def contestant(way: str) -> None:
    import torch

    from training.config import ModelConfig
    from training.engine import open_engine
    from training.knobs import PretrainConfig
    from training.loader import TokenBatch, batch_of
    from training.model import Transformer

    lengths = mails(WHOLE if way == "packed" else LONGEST)
    tokens = np.random.default_rng(0).integers(2, VOCAB, int(lengths.sum())).astype("<u2")
    shard = TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)]))

    def padded(members: Index) -> TokenBatch:
        """Documents as rows of their own, padded to the longest."""
        longest = int(lengths[members].max()) - 1
        ids = np.zeros((len(members), longest), np.int64)
        targets, docs = np.full_like(ids, IGNORE), np.full_like(ids, -1)
        for row, member in enumerate(members):
            document = shard[int(member)]
            ids[row, : len(document) - 1] = document[:-1]
            targets[row, : len(document) - 1] = document[1:]
            docs[row, : len(document) - 1] = 0
        return TokenBatch(*map(torch.from_numpy, (ids, targets, docs)))

    def forever() -> Iterator[TokenBatch]:
        rows = BUDGET // LONGEST
        packed = pack_documents(shard, LONGEST, seed=0) if way == "packed" else None
        while True:
            if packed is not None:
                for start in range(0, len(packed), rows):
                    yield batch_of(packed, start, start + rows)
            else:
                planned = list(batches(way, lengths))
                for at in shuffled(len(planned)):
                    yield padded(planned[at])

    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_depth(DEPTH, VOCAB, max_len=LONGEST))
    few = batch_of(pack_documents(shard, LONGEST, seed=0), 0, 2)
    engine = open_engine(model, PretrainConfig(tokens=1, length=LONGEST), few)
    source = forever()

    def turn(tokens: int = TURN_TOKENS) -> float:
        seconds, done = 0.0, 0
        while done < tokens:
            batch = next(source)
            begun = time.perf_counter()
            engine.step([batch], 1e-4)
            seconds += time.perf_counter() - begun
            done += batch.tokens
        return done / seconds

    turn(2 * BUDGET)  # warm-up
    measure: Callable[[], float] = turn
    answer(measure)


if __name__ == "__main__":
    main()
