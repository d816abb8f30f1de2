"""Checks of the training engine on a user's own settings: what silently goes wrong in trainers, tried in seconds.

Each check trains something small of the user's shape and compares it with what must come out. The last ones are
controls: they break a thing on purpose and must see it.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from data.batching import IGNORE, pack_documents
from data.errors import DaymillError
from data.tokens import TokenShard
from training.config import ModelConfig
from training.knobs import PretrainConfig
from training.loader import TokenBatch, batch_of
from training.model import Transformer
from training.optim import decay_groups, make_adamw
from training.precision import KERNELS
from training.pretrain import pretrain, rate_of, set_training
from training.ranks import token_loss_sum
from training.state import load_state, save_state
from training.step import Trainer

MAX_BLOCKS = 4  # of the user's model that are tried: all blocks are alike
ROWS, PLACES = 4, 64
EXACT = 1e-10  # relative, in float64
STEPS = 4


@dataclass(frozen=True)
class Check:
    """What was tried, whether it held, and what was seen."""

    name: str
    held: bool
    seen: str
    seconds: float


@dataclass(frozen=True)
class Subject:
    """What is audited: the user's model and run, and tokens to try them on."""

    model: ModelConfig
    config: PretrainConfig
    tokens: TokenShard

    def small(self, dtype: torch.dtype = torch.float64, **changes: float) -> Transformer:
        """The user's model with a few of its blocks, always the same weights."""
        torch.manual_seed(0)
        shape = replace(self.model, layers=self.model.layers[:MAX_BLOCKS], **changes)  # type: ignore[arg-type]
        model = Transformer(shape).to(dtype)
        set_training(model, self.config)
        return model

    @property
    def length(self) -> int:
        return min(self.config.length, PLACES)

    def batch(self, rows: int = ROWS) -> TokenBatch:
        """A few packed rows of the user's documents."""
        packed = pack_documents(self.tokens, self.length, seed=0)
        if not len(packed):
            raise DaymillError("there is no document of two tokens to audit with")
        again = -(-rows // len(packed))
        whole = batch_of(packed, 0, rows)
        return TokenBatch(*(tensor.repeat(again, 1)[:rows] for tensor in (whole.ids, whole.targets, whole.docs)))


Finding = tuple[bool, str]


def audit(subject: Subject, folder: Path, on_check: Callable[[Check], None] | None = None) -> list[Check]:
    """Every check, in order; `folder` is for files that it writes."""
    found = []
    for name, run in CHECKS.items():
        begun = time.perf_counter()
        held, seen = run(subject, folder)
        found.append(Check(name, held, seen, time.perf_counter() - begun))
        if on_check:
            on_check(found[-1])
    return found


def gradients(model: Transformer, batches: list[TokenBatch]) -> dict[str, Tensor]:
    """Gradients of one step whose learning rate is 0."""
    trainer = Trainer(model, make_adamw(model, 0.0), 1e9)
    trainer.step(batches, lambda batch: token_loss_sum(model, batch), lambda batch: batch.tokens, 0.0)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def apart(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference, relative to the largest gradient."""
    largest = max(float(tensor.abs().max()) for tensor in theirs.values())
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) / largest


def unequal(subject: Subject) -> list[TokenBatch]:
    """Micro-batches with very different counts of targets, one of them with none."""
    whole = subject.batch()
    found = []
    for row in range(ROWS):
        targets = whole.targets[row : row + 1].clone()
        targets[:, subject.length // (row + 1) if row < ROWS - 1 else 0 :] = IGNORE
        found.append(TokenBatch(whole.ids[row : row + 1], targets, whole.docs[row : row + 1]))
    return found


def joined(batches: list[TokenBatch]) -> TokenBatch:
    return TokenBatch(*(torch.cat(tensors) for tensors in zip(*((b.ids, b.targets, b.docs) for b in batches))))


def micro_batches_are_exact(subject: Subject, _: Path) -> Finding:
    parts = unequal(subject)
    split, whole = (gradients(subject.small(dropout=0.0), batches) for batches in (parts, [joined(parts)]))
    difference = apart(split, whole)
    return difference <= EXACT, f"gradients of {ROWS} unequal micro-batches and of one batch differ by {difference:.0e}"


def a_mean_of_means_would_be_seen(subject: Subject, _: Path) -> Finding:
    parts = [part for part in unequal(subject) if part.tokens]
    exact = gradients(subject.small(dropout=0.0), parts)
    each = [gradients(subject.small(dropout=0.0), [part]) for part in parts]
    mean = {name: torch.stack([one[name] for one in each]).mean(0) for name in exact}
    difference = apart(mean, exact)
    return difference > 1e-4, f"a mean of means would be off by {difference:.0e}, and this check would see it"


def documents_do_not_leak(subject: Subject, _: Path) -> Finding:
    """Change one document of a row: the hidden states of the others stay as they are to the bit."""
    batch = subject.batch(1)
    docs = torch.arange(subject.length)[None] * 3 // subject.length
    changed = batch.ids.clone()
    changed[docs == 1] = (changed[docs == 1] + 1) % subject.model.vocab_size
    for kernel in KERNELS:
        model = subject.small(torch.float32, dropout=0.0).eval()
        model.set_attention(kernel)
        with torch.no_grad():
            before, after = (model.hidden(ids, None, docs) for ids in (batch.ids, changed))
        if not torch.equal(before[docs != 1], after[docs != 1]):
            return False, f"with attention {kernel} a document of a packed row sees its neighbor"
        if torch.equal(before[docs == 1], after[docs == 1]):
            return False, f"with attention {kernel} the changed document did not notice: this check would see nothing"
    return True, f"bit-equal with {' and '.join(KERNELS)}"


def packing_loses_nothing(subject: Subject, _: Path) -> Finding:
    packed = pack_documents(subject.tokens, subject.config.length, seed=0)
    there = int((subject.tokens.bounds[1:] - subject.tokens.bounds[:-1] - 1).clip(0).sum())
    full = packed.tokens / max(1, packed.ids.size)
    return packed.tokens == there, f"{packed.tokens:,} of {there:,} targets in {len(packed):,} rows, {full:.1%} full"


def schedule_is_as_planned(subject: Subject, _: Path) -> Finding:
    config = subject.config
    steps, warmup = config.steps, config.warmup_steps
    if steps < 2:
        return True, f"{steps} steps: nothing to plan"
    rate = [rate_of(step, config) for step in (0, warmup, steps - 1)]
    right = rate[0] > 0 and math.isclose(rate[1], config.lr) and math.isclose(rate[2], config.lr * config.floor)
    return right, f"{steps:,} steps: {rate[0]:.1e} at first, {rate[1]:.1e} at step {warmup:,}, {rate[2]:.1e} at last"


def decay_spares_norms(subject: Subject, _: Path) -> Finding:
    model = subject.small()
    with_decay, without = decay_groups(model)
    wrong = [name for name in with_decay if "norm" in name or name.endswith(("bias", "theta"))]
    missing = {name for name, _ in model.named_parameters()} - {*with_decay, *without}
    told = f"{len(with_decay)} matrices decay, {len(without)} norms and biases do not"
    return not wrong and not missing, told if not wrong else f"these decay and should not: {', '.join(wrong[:3])}"


def ends_stay_tied(subject: Subject, _: Path) -> Finding:
    """The output projection is the embedding itself, before and after training, and is stored once."""
    model = subject.small()
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0)
    for _step in range(2):
        trainer.step([subject.batch()], lambda batch: token_loss_sum(model, batch), lambda b: b.tokens, 1e-3)
    hidden = torch.randn(1, 2, subject.model.width, dtype=torch.float64)
    same = torch.equal(model.lm_logits(hidden), hidden @ model.embed.weight.T)
    stored = sum("embed.weight" in name for name in model.state_dict())
    return same and stored == 1, "one tensor at both ends"


def nothing_non_finite_arrives(subject: Subject, _: Path) -> Finding:
    model = subject.small()
    before = copy.deepcopy(model.state_dict())
    trainer = Trainer(model, make_adamw(model, 0.1), 1.0)
    batch = subject.batch()
    report = trainer.step(
        [batch], lambda b: token_loss_sum(model, b) * float("nan"), lambda b: b.tokens, subject.config.lr
    )
    same = all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    return same and not report.updated, "a step with a NaN is skipped, weights stay as they were"


def tiny_run(subject: Subject) -> PretrainConfig:
    places = subject.length * subject.config.accumulate
    return replace(
        subject.config,
        tokens=STEPS * places,
        rows=1,
        length=subject.length,
        evaluations=1,
        valid_tokens=subject.length,
        save_every_s=0.0,
        save_share=0.0,
        precision=subject.config.precision or "fp32",
        emulate=True,  # what is as small as this pays in no precision
        attention=subject.config.attention or KERNELS[0],
    )


class Cut(Exception):
    """Stands for a kill."""


def run_to(subject: Subject, state: Path, cut_at: int | None = None) -> dict[str, Tensor]:
    """A few steps of the user's run, perhaps cut; the weights that it ends with."""

    def on_step(step: int) -> None:
        if step == cut_at:
            raise Cut

    model = subject.small(torch.float32)
    try:
        pretrain(model, subject.tokens, subject.tokens, tiny_run(subject), state=state, on_step=on_step)
    except Cut:
        torch.manual_seed(99)
    return model.state_dict()


def resume_is_exact(subject: Subject, folder: Path) -> Finding:
    whole = run_to(subject, folder / "whole")
    run_to(subject, folder / "cut", cut_at=STEPS // 2)
    again = run_to(subject, folder / "cut")
    same = all(torch.equal(tensor, again[name]) for name, tensor in whole.items())
    return same, f"cut at step {STEPS // 2} of {STEPS}: {'bit-equal' if same else 'other weights'} at the end"


def a_forgotten_moment_would_be_seen(subject: Subject, folder: Path) -> Finding:
    whole = run_to(subject, folder / "whole2")
    run_to(subject, folder / "forgot", cut_at=STEPS // 2)
    saved = load_state(folder / "forgot")
    if saved is None:
        return False, "the cut run left no state"
    tensors = {name: tensor * 0 if name.endswith("exp_avg") else tensor for name, tensor in saved[0].items()}
    save_state(folder / "forgot", tensors, saved[1])
    again = run_to(subject, folder / "forgot")
    differs = any(not torch.equal(tensor, again[name]) for name, tensor in whole.items())
    return differs, "a resume without Adam's first moments ends elsewhere, and the check above would see it"


CHECKS: dict[str, Callable[[Subject, Path], Finding]] = {
    "micro-batches": micro_batches_are_exact,
    "packing leaks": documents_do_not_leak,
    "packing": packing_loses_nothing,
    "schedule": schedule_is_as_planned,
    "weight decay": decay_spares_norms,
    "tied ends": ends_stay_tied,
    "non-finite": nothing_non_finite_arrives,
    "resume": resume_is_exact,
    "control: mean of means": a_mean_of_means_would_be_seen,
    "control: lost moments": a_forgotten_moment_would_be_seen,
}


def line(check: Check) -> str:
    wide = max(map(len, CHECKS))
    return f"{'ok  ' if check.held else 'FAIL'}  {check.name:<{wide}}  {check.seen} ({check.seconds:.1f} s)"


def verdict(found: list[Check]) -> str:
    failed = [check.name for check in found if not check.held]
    if failed:
        return f"{len(failed)} of {len(found)} checks failed ({', '.join(failed)}): do not train with these settings"
    seconds = sum(check.seconds for check in found)
    return f"all {len(found)} checks held in {seconds:.0f} s: a run with these settings is exact on this machine"
