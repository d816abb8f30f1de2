"""Pretraining: next-token loss on packed documents, with exact resume after a kill at any instant."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from data.batching import pack_documents
from data.errors import DaymillError
from data.tokens import TokenShard
from training.clock import DATA, TELEMETRY, VALIDATION
from training.device import compile_blocks, device_of
from training.flops import pretraining_flops
from training.history import Progressed
from training.knobs import PretrainConfig
from training.listeners import Bar, Curves
from training.loader import PackedLoader, TokenBatch, batch_of
from training.memory import keep_freed_memory
from training.mixed import leaves_plain, set_modes
from training.model import Transformer
from training.numerics import Numerics, read_record
from training.optim import make_adamw
from training.peak import Peak, peak_of
from training.precision import Choice, Kernel, Precision
from training.ranks import OneProcess, Ranks, Spread, token_loss_sum
from training.schedule import learning_rate
from training.settle import settle
from training.spacing import Spacing
from training.sparse import Skip, theta_at
from training.state import load_state, part, save_state
from training.step import Trainer
from training.telemetry import Telemetry

PROBE_ROWS = 2


@leaves_plain
def pretrain(
    model: Transformer,
    train: TokenShard,
    valid: TokenShard,
    config: PretrainConfig,
    *,
    state: Path,
    progress: Bar | None = None,
    curves: Curves | None = None,
    on_step: Callable[[int], None] | None = None,
    spread: Spread | None = None,
    note: Callable[[str], None] = lambda _line: None,
) -> Progressed:
    """Train in place and return what was done; `state` is where a killed run left off, and where this one saves.

    `spread` makes of the model this rank's part of it, once precision and kernel are chosen; without it one process
    trains alone. `note` is told how the run computes and why. All ranks read the same state, the first one writes it,
    and no layout is bound to it; ranks that are to go on under another layout return before the last step. Raises
    DaymillError for a state of another model and for twenty non-finite steps in a row.
    """
    keep_freed_memory()
    torch.manual_seed(config.seed)
    device = device_of(model)
    loader = PackedLoader(train, config.length, config.rows, config.seed, device)
    done = Progressed()
    follow = read_record(Path(config.replay), model)[1] if config.replay else None
    saved = load_state(state)
    if saved is not None:
        tensors, meta = saved
        done = Progressed(**meta | {"points": [(step, values) for step, values in meta["points"]]})
        loader.seek(done.position)
        choice = Choice(**done.choice)
    else:
        choice = probe(model, batch_of(loader.packed, 0, PROBE_ROWS, device), config)
    ranks = spread(model, choice) if spread is not None else OneProcess(model)
    choice = ranks.choice(choice)
    done.choice = asdict(choice)
    if config.look_every and config.steps and not done.peak:
        done.peak = asdict(peak_of(device, choice.precision))
    set_modes(model, choice)
    tell = note if ranks.first else lambda _line: None
    numerics = Numerics(model, choice, follow, tell)
    trainer = Trainer(model, make_adamw(model, config.weight_decay), config.clip, ranks.world, numerics)
    best: dict[str, Tensor] = {}  # on the first rank
    if saved is None:
        tell(f"computes in {choice.precision} with {choice.attention} attention: {choice.reason}")
    else:
        numerics.load(done.numerics)
        ranks.restore(trainer.optimizer, tensors)
        best = {f"best/{name}": tensor for name, tensor in part(tensors, "best").items()}
    model.set_attention(choice.attention)
    set_training(model, config)
    if config.compile:
        compile_blocks(model.blocks, device)
    peak = Peak(**done.peak) if done.peak else None
    telemetry = Telemetry(config.look_every, trainer, ranks.view, peak, done.spent, config.compile)
    spacing = Spacing(config.save_every_s, config.save_share, telemetry.clock)
    if progress is not None and done.tokens:
        progress.advance(done.tokens)
    if curves is not None:
        for step, values in done.points:
            curves.log(step, values)

    def loss_sum(batch: TokenBatch) -> Tensor:
        return token_loss_sum(model, batch, choice.precision)

    model.train()
    evaluate_at = {round(config.steps * (i + 1) / config.evaluations) for i in range(config.evaluations)}
    ended = done.ended(config)
    while not ended:
        if on_step is not None:
            on_step(done.step)
        model.set_theta(theta_at(done.step, config.steps, config.theta_ramp))
        start = time.perf_counter()
        with telemetry.part(DATA):
            whole = [loader.next() for _ in range(config.accumulate)]
            flops = flops_of(model, whole) if config.look_every else 0
            batches = ranks.share(whole, config.seed, done.step)
        rate = rate_of(done.step, config)
        with telemetry.step(done.step + 1):
            report = trainer.step(batches, loss_sum, lambda batch: batch.tokens, rate)
        done.seconds += time.perf_counter() - start
        done.position = loader.position()
        if report.skipped:  # its rows are used up; schedule, counters and curves stay
            done.skipped += 1
            continue
        done.step += 1
        done.tokens += int(report.weight)
        values = {"train/loss": report.loss, "train/grad_norm": report.grad_norm, "train/lr": rate}
        if done.step in evaluate_at:
            with telemetry.part(VALIDATION):
                values["valid/loss"] = validation_loss(model, valid, config, choice.precision, ranks)
        values["train/tokens_per_s"] = done.tokens_per_s
        values |= telemetry.after_step(done.step, report, flops)
        done.points.append((done.step, values))
        if config.keep_best and done.step in evaluate_at and ranks.agreed(done.best_step == done.step):
            weights = part(ranks.tensors(trainer.optimizer), "model")
            best = {f"best/{name}": tensor.detach().clone() for name, tensor in weights.items()}
        if curves is not None:
            with telemetry.part(TELEMETRY):
                curves.log(done.step, values)
        if progress is not None:
            progress.advance(int(report.weight), f"loss {report.loss:.3f}")
        ended = done.step == config.steps
        if config.patience and done.step in evaluate_at:
            ended = ranks.agreed(done.ended(config))
        if ranks.agreed(spacing.due() or ended):
            with spacing.saving():
                done.numerics = numerics.state()
                tensors = ranks.tensors(trainer.optimizer) | best
                if ranks.first:
                    save_state(state, tensors, asdict(done))
            if not ended and ranks.moved():
                break
    telemetry.clock.tick()
    model.set_theta(1.0)
    model.eval()
    return done


def set_training(model: Transformer, config: PretrainConfig) -> None:
    """What a model does in training alone, beside dropout. Raises DaymillError where it cannot.

    After precision is settled: backward passes that skip compute a feed-forward network's products themselves.
    """
    model.smoothing = config.smoothing
    model.set_skip(None if config.skip == "none" else Skip(config.skip, config.skip_share))
    first = round(config.steps / max(1, config.evaluations))  # step of the first validation
    chosen = config.patience or config.keep_best
    if chosen and model.rising and theta_at(max(0, first - 1), config.steps, config.theta_ramp) < 1:
        raise DaymillError(
            f"theta rises over {config.theta_ramp:.0%} of the steps, and the first of {config.evaluations} validations "
            "may already decide which weights stay: they would be of another theta. Lower dsrelu.ramp, or ask for "
            "fewer validations, or for neither patience nor the best weights"
        )


def rate_of(step: int, config: PretrainConfig) -> float:
    """The learning rate of a step of the run."""
    return learning_rate(step, config.steps, config.lr, config.warmup_steps, config.floor, config.decay, config.hold)


def probe(model: Transformer, batch: TokenBatch, config: PretrainConfig) -> Choice:
    """Precision and attention kernel for batches like this one; those of the run that is replayed, if one is."""
    if config.replay:
        return read_record(Path(config.replay), model)[0]

    def run(precision: Precision, attention: Kernel) -> None:
        model.set_attention(attention)
        token_loss_sum(model, batch, precision).backward()
        model.zero_grad(set_to_none=True)

    return settle(
        model,
        run,
        model.config.width,
        config.rows * config.length,
        config.precision,
        config.attention,
        emulate=config.emulate,
        scaling=config.fp8_scaling,
    )


def flops_of(model: Transformer, batches: list[TokenBatch]) -> int:
    """What training on packed rows takes, padding not counted."""
    real = sum(int((batch.docs >= 0).sum()) for batch in batches)
    return pretraining_flops(model.config, batches[0].ids.shape[1], real, sum(batch.tokens for batch in batches))


def validation_loss(
    model: Transformer, shard: TokenShard, config: PretrainConfig, precision: Precision, ranks: Ranks | None = None
) -> float:
    """Mean next-token loss: sum over sum, whatever the batches (torchtitan#4167). 0 for an empty shard."""
    ranks = ranks or OneProcess(model)
    packed = pack_documents(shard, config.length, seed=config.seed)
    rows = len(packed) if not config.valid_tokens else min(len(packed), -(-config.valid_tokens // config.length))
    starts, device = range(0, rows, config.rows), device_of(model)
    batches = [batch_of(packed, start, min(rows, start + config.rows), device) for start in starts]
    was_training = model.training
    model.eval()
    total, tokens = 0.0, sum(batch.tokens for batch in batches)
    with torch.no_grad():
        for start in range(0, len(batches), config.accumulate):
            total += ranks.loss_sum(batches[start : start + config.accumulate], precision)
    model.train(was_training)
    return total / tokens if tokens else 0.0


def check_finite(model: Transformer, knob: str = "pretrain.lr") -> None:
    """Raises DaymillError, which says to lower `knob`, when a weight is not finite."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise DaymillError(f"{name} has non-finite weights after training; lower {knob}")
