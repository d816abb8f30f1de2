"""Settings found by trying, on the checkout's own params.yaml and data: no stage, and nothing is set.

What is found lands in artifacts/settings/, where a later run finds the parts that are done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from data.errors import DaymillError
from data.tokens import VALID, TokenShard, learned_from, load_tokenizer, parse_tokenizer, read_tokens
from tasks.finetune import SPLIT, Finetune, load_backbone
from tasks.params import load
from tasks.pretrain import TOKENS, Pretrain
from tasks.progress import Progress
from tasks.stage import content_hash
from training.batch_trial import Job as BatchJob
from training.classify import Job as ClassifyJob
from training.config import ModelConfig
from training.device import best_device
from training.engine import open_engine, weight_of
from training.finetune import classifier_from
from training.knobs import ClassifyConfig, PretrainConfig
from training.ladder import Rung, climb, plan, predictions, write_json
from training.largest_batch import Try, largest, memory_to_spare, search, split_of, trial
from training.loader import PackedLoader, batch_of
from training.model import Transformer
from training.pretrain import PROBE_ROWS
from training.range_test import Advice, Sweep, advise, rates_between, rounded, sweep
from training.rows import load_rows
from training.settings_plots import draw_ladder, draw_sweep

OUT = Path("artifacts/settings")
SHARE = 0.8  # of the available memory that a try may take
FASTER = 1.05  # times that a smaller batch must be faster to be worth a word


def pretrain_run(root: Path) -> tuple[Pretrain, PretrainConfig]:
    params = load("pretrain", Pretrain, root / "params.yaml")
    return params, params.run()


def shards(root: Path) -> tuple[TokenShard, TokenShard, int]:
    """What pretraining learns from, what it is judged by, and the size of the vocabulary."""
    folder = root / TOKENS
    vocab = load_tokenizer(folder / "tokenizer.json").get_vocab_size()
    return read_tokens(folder, learned_from(folder)), read_tokens(folder, VALID), vocab


def find_batch(
    root: Path,
    limit_mib: int | None,
    most: int,
    longest_s: float,
    device: str | None,
    on_try: Callable[[Try], None],
) -> list[str]:
    """Try micro-batches of pretraining; what to put into params.yaml, a line each.

    Raises DaymillError where not even one row fits.
    """
    params, config = pretrain_run(root)
    tokenizer = root / TOKENS / "tokenizer.json"
    if tokenizer.exists():
        vocab = load_tokenizer(tokenizer).get_vocab_size()
    else:
        vocab = vocab_planned(root)
    shape = params.shape(vocab)
    device = device or best_device().type
    limit = limit_mib if limit_mib is not None else memory_limit(device)
    job = BatchJob(shape.to_json(), asdict(config), limit, device, torch.get_num_threads())

    def attempt(rows: int) -> Try:
        found = trial(job, rows, longest_s)
        on_try(found)
        return found

    tries = search(attempt, most)
    best = largest(tries)
    together = config.rows * config.accumulate
    write_json(root / OUT / "batch.json", {"limit_mib": limit, "tries": [asdict(each) for each in tries]})
    if best is None:
        raise DaymillError(f"not even one row of {config.length} tokens fits into {limit:,} MiB: {tries[0].why}")
    rows, accumulate = split_of(together, best.rows)
    told = [
        f"the largest that fits into {limit:,} MiB: {best.rows} rows"
        + (f" (more than {most} were not tried)" if best.rows == most else ""),
        f"for updates of {together} rows as now: pretrain.rows: {rows}, pretrain.accumulate: {accumulate}",
    ]
    fastest = max((each for each in tries if each.fits), key=lambda each: each.tokens_per_s)
    at_hand = [each for each in tries if each.fits and each.rows >= rows]
    compared = min(at_hand, key=lambda each: each.rows)
    if fastest.rows < compared.rows and fastest.tokens_per_s > FASTER * compared.tokens_per_s:
        told.append(
            f"{fastest.rows} rows were {fastest.tokens_per_s / compared.tokens_per_s:.2f}x faster than {compared.rows}"
        )
    return told


def vocab_planned(root: Path) -> int:
    """The size of the vocabulary that the tokenize stage would make, where it has not run."""
    from tasks.tokenize import Tokenize

    return load("tokenize", Tokenize, root / "params.yaml").vocab_size


def memory_limit(device: str) -> int:
    """MiB that tries may take, where nobody said."""
    if device == "cpu":
        return int(SHARE * memory_to_spare())
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return int(SHARE * free) >> 20


def sweep_rates(root: Path, stage: str, low: float, high: float, steps: int) -> tuple[Advice, list[str]]:
    """A range test of a stage's learning rate; what it says, and lines for people."""
    rates = rates_between(low, high, steps)
    with Progress(f"settings lr ({stage})", steps, "steps") as bar:

        def on_step(_: int, rate: float, loss: float) -> None:
            bar.advance(1, f"rate {rate:.1e}, loss {loss:.3f}")

        found = (sweep_pretrain if stage == "pretrain" else sweep_finetune)(root, rates, on_step)
    advice = advise(found)
    folder = root / OUT
    write_json(folder / f"lr-{stage}.json", asdict(found) | {"smoothed": found.smoothed, "advice": asdict(advice)})
    draw_sweep(found, advice, folder / f"lr-{stage}.png")
    rises = f"{advice.rises:.1e}" if advice.rises else f"not up to {found.rates[-1]:.1e}"
    return advice, [
        f"the loss falls fastest at {advice.steepest:.1e}, is least at {advice.least:.1e}, rises from: {rises}",
        f"to try: {stage}.lr: {rounded(advice.steepest):g}",
        f"{(folder / f'lr-{stage}.png').relative_to(root)}",
    ]


OnStep = Callable[[int, float, float], None]


def sweep_pretrain(root: Path, rates: Sequence[float], on_step: OnStep) -> Sweep:
    params, config = pretrain_run(root)
    train, _, vocab = shards(root)
    torch.manual_seed(config.seed)
    device = best_device()
    model = Transformer(params.shape(vocab)).to(device)
    loader = PackedLoader(train, config.length, config.rows, config.seed, device)
    engine = open_engine(model, config, batch_of(loader.packed, 0, PROBE_ROWS, device))
    return sweep(
        engine.trainer,
        lambda _: [loader.next() for _ in range(config.accumulate)],
        engine.loss_sum,
        weight_of,
        rates,
        on_step,
    )


def sweep_finetune(root: Path, rates: Sequence[float], on_step: OnStep) -> Sweep:
    params = load("finetune", Finetune, root / "params.yaml")
    with contextlib.chdir(root):  # where the stage runs
        backbone, tokenizer_json = load_backbone(params)
    preprocess = {"max_len": params.max_len, "max_chars": params.max_chars, "tail": params.tail}
    rows = load_rows(root / SPLIT / "train", parse_tokenizer(tokenizer_json), preprocess).labelled()
    if len(rows.names) < 2:
        raise DaymillError(f"the train split has the labels {rows.names}; expected at least two")
    config = ClassifyConfig(
        **params.model_dump(include=set(ClassifyConfig.__dataclass_fields__) - {"positive", "precision", "steps"}),
        precision=None if params.precision == "auto" else params.precision,
        steps=len(rates),
    )
    model = classifier_from(backbone, len(rows.names), params.dropout, params.context == "causal", params.seed)
    model.to(best_device())
    torch.manual_seed(params.seed)
    job = ClassifyJob(model, rows, config, None, None)
    job.compute_as(job.probe())
    model.train()
    return sweep(job.trainer, job.micro_batches, job.loss_sum, job.weight, rates, on_step)


def climb_ladder(
    root: Path, depths: Sequence[int], tokens: int | None, on_rung: Callable[[Rung, float | None], None]
) -> list[str]:
    """Train the rungs that are not done yet, each told with what those below predicted; lines for people."""
    params, config = pretrain_run(root)
    train, valid, vocab = shards(root)
    largest_tokens = params.tokens if tokens is None else tokens
    if largest_tokens < 1:
        raise DaymillError(f"a ladder that trains on {largest_tokens} tokens; set pretrain.tokens, or give --tokens")

    def shape(depth: int) -> ModelConfig:
        return params.model_copy(update={"depth": depth}).shape(vocab)

    planned = plan(sorted(set(depths)), largest_tokens, shape)
    folder, data = root / OUT / "ladder", content_hash(root / TOKENS)
    done: list[Rung] = []
    for rung in planned:
        with Progress(f"settings ladder, depth {rung.depth}", rung.tokens, "tokens") as bar:
            done.append(climb(rung, shape(rung.depth), config, train, valid, folder, data, bar))
        on_rung(done[-1], predictions(done)[-1])
    told = predictions(done)
    report: list[dict[str, Any]] = [asdict(rung) | {"predicted": p} for rung, p in zip(done, told, strict=True)]
    write_json(root / OUT / "ladder.json", report)
    draw_ladder(done, told, root / OUT / "ladder.png")
    return [str(OUT / "ladder.png")]
