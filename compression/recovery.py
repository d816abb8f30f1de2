"""Progressive pruning: cut a little, let the model recover by distillation, cut again; every step survives a kill."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from compression.distill import Teacher, logit_gap
from compression.importance import Batch
from compression.prune import Chooser, kept_share, shrink, step_shares
from data.errors import DaymillError
from training.checkpoint import Card, load_checkpoint, save_checkpoint
from training.classify import train_classifier
from training.knobs import ClassifyConfig, Distill
from training.listeners import Bar
from training.model import Classifier
from training.precision import Choice, Precision, autocast, choose
from training.predict import predict_logits
from training.settle import held_to_fp32


@dataclass(frozen=True)
class Recovery:
    """One stretch of recovery training."""

    steps: int
    lr: float
    rows: int = 32  # a step
    weight: float = 1.0  # share of the teacher's loss; the rest is the labels'
    temperature: float = 1.0
    weight_decay: float = 0.0
    precision: Precision = "fp32"
    seed: int = 0


def precision_of(model: Classifier, batch: Batch, asked: Literal["auto", "fp32", "bf16"]) -> Precision:
    """What recovery computes in: a forward and backward pass in each precision, measured once.

    Under `auto` bf16 is taken where it is clearly faster than fp32; where it was asked for, unless it is slower.
    """
    if asked == "fp32":
        return asked
    probe = copy.deepcopy(model).train()

    def run(precision: Precision, _kernel: str) -> None:
        with autocast(precision, batch[0].device):
            total = probe(*batch).float().sum()
        total.backward()
        probe.zero_grad(set_to_none=True)

    if asked == "auto":
        return choose(run, model.backbone.config.width, None, "plain").precision
    return held_to_fp32(probe, run, Choice(asked, "plain", "as configured")).precision


def recover(model: Classifier, teacher: Teacher, recovery: Recovery, progress: Bar | None = None) -> dict[str, Any]:
    """Train `model` in place towards the teacher, and take it back where that led away from it.

    On an easy task a good cut costs less than the noise of a training run, so recovery has to show its worth on the
    watched rows. Returns the distance to the teacher before and after, and whether the training was kept; the same
    inputs give the same weights.
    """
    before = watch(model, teacher, recovery.precision)
    weights = copy.deepcopy(model.state_dict())
    if recovery.steps:
        config = ClassifyConfig(
            steps=recovery.steps,
            lr=recovery.lr,
            rows=recovery.rows,
            weight_decay=recovery.weight_decay,
            smoothing=0.0,  # the teacher's logits are soft already
            precision=recovery.precision,
            emulate=True,  # it was measured before
            attention="plain",
            seed=recovery.seed,
        )
        train_classifier(
            model,
            teacher.rows["train"],
            config,
            teacher=teacher.logits["train"],
            distill=Distill(weight=recovery.weight, temperature=recovery.temperature),
            progress=progress,
        )
    trained = watch(model, teacher, recovery.precision)
    kept = trained["kl"] < before["kl"]
    if not kept:
        model.load_state_dict(weights)
    return {
        "updates": recovery.steps,
        "gap_before": before,
        "gap_trained": trained,
        "kept": kept,
    }


@dataclass(frozen=True)
class Plan:
    """How far and in how many steps to prune, and the recovery after each step and at the end."""

    target_share: float
    steps: int
    between: Recovery
    final: Recovery

    @property
    def updates(self) -> int:
        return self.between.steps * (self.steps - 1) + self.final.steps


@dataclass(frozen=True)
class Pruned:
    """A pruned model and what each step did."""

    model: Classifier
    steps: list[dict[str, Any]] = field(default_factory=list)


def prune_in_steps(
    start: Classifier,
    card: Card,
    chooser: Chooser,
    plan: Plan,
    teacher: Teacher,
    work: Path,
    progress: Bar | None = None,
) -> Pruned:
    """Prune a copy of `start` to the target share of its prunable parameters.

    `work` keeps the model after every step; a run that finds finished steps there goes on behind them and ends with
    the same weights.
    """
    unpruned = start.backbone.config
    model, steps = start, finished_steps(work)
    if steps:
        model, _ = load_classifier(work / f"step-{len(steps)}")
        if progress is not None:
            progress.advance(sum(entry["recovery"]["updates"] for entry in steps) * plan.between.rows)
    for share in step_shares(plan.target_share, plan.steps)[len(steps) :]:
        number = len(steps) + 1
        model = shrink(model, chooser(model, share * unpruned.prunable_parameters()))
        recovery = plan.final if number == plan.steps else plan.between
        recovered = recover(model, teacher, replace(recovery, seed=recovery.seed + number), progress)
        config = model.backbone.config
        steps.append(
            {
                "kept": kept_share(config, unpruned),
                "heads": [shape.heads for shape in config.layers],
                "ffn": [shape.ffn for shape in config.layers],
                "recovery": recovered,
            }
        )
        save_step(work, model, card, steps)
    return Pruned(model.eval(), steps)


def load_classifier(folder: Path) -> tuple[Classifier, Card]:
    """A full-precision classifier checkpoint. Raises DaymillError for anything else."""
    model, card = load_checkpoint(folder)
    if not isinstance(model, Classifier):
        raise DaymillError(f"{folder}: a {card.task!r} checkpoint; expected a classifier (run the finetune stage)")
    return model, card


def watch(model: Classifier, teacher: Teacher, precision: Precision) -> dict[str, float]:
    """Distance to the teacher on the rows that are watched."""
    return logit_gap(predict_logits(model, teacher.rows["watch"].tokens, precision=precision), teacher.logits["watch"])


def finished_steps(work: Path) -> list[dict[str, Any]]:
    """What a killed run finished: the list is written after the checkpoint that it speaks of."""
    path = work / "steps.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def save_step(work: Path, model: Classifier, card: Card, steps: list[dict[str, Any]]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    save_checkpoint(work / f"step-{len(steps)}", model, card.with_model(model.backbone.config), "{}")
    beside = work / "steps.json.writing"
    beside.write_text(json.dumps(steps), encoding="utf-8")
    os.replace(beside, work / "steps.json")
