"""Finetuned checkpoint to a smaller one: progressive structured pruning, beside random pruning and dropped blocks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from compression.controls import at_random, drop_blocks
from compression.distill import Teacher, draw, logit_gap
from compression.prune import Chooser, by_importance, kept_share
from compression.ranges import calibration_batches
from compression.recovery import Plan, Pruned, Recovery, load_classifier, precision_of, prune_in_steps
from compression.verdict import Appraisal, appraise, loss_of, read_verdict
from data.tokens import parse_tokenizer
from tasks.objective import require_classifier
from tasks.params import Params
from tasks.stage import Context, Result, run
from training.checkpoint import load_card, save_checkpoint
from training.model import Classifier
from training.precision import Precision
from training.rows import Rows, load_rows

SPLIT = Path("artifacts/split")
FINETUNED = Path("artifacts/finetune")
OUT = Path("artifacts/prune")
PARTS = ("train", "valid", "test")


class Prune(Params):
    target_share: float = Field(gt=0, le=1, description="Prunable parameters that stay.")
    steps: int = Field(ge=1, description="Cuts; each removes the same fraction of what is left.")
    between: int = Field(ge=0, description="Updates of recovery after every cut but the last.")
    final: int = Field(ge=0, description="Updates of recovery after the last cut.")
    rows: int = Field(ge=1, description="Rows of one update.")
    lr: float = Field(gt=0, description="Peak learning rate of each stretch of recovery.")
    weight_decay: float = Field(ge=0)
    distill: float = Field(ge=0, le=1, description="Share of the teacher's loss; the rest is the labels'.")
    temperature: float = Field(gt=0)
    train_rows: int = Field(ge=1, description="Train rows that recovery learns from.")
    score_rows: int = Field(ge=1, description="Train rows that importance is measured on, anew before each cut.")
    watch_rows: int = Field(ge=1, description="Validation rows that each step's distance to the teacher is taken on.")
    controls: bool = Field(description="Also run random pruning and dropped blocks at the same budget.")
    precision: Literal["auto", "fp32", "bf16"]
    seed: int = Field(ge=0)


def main(params: Prune, ctx: Context) -> Result:
    require_classifier(load_card(FINETUNED / "checkpoint").task)
    start, card = load_classifier(FINETUNED / "checkpoint")
    tokenizer_json = (FINETUNED / "checkpoint/tokenizer.json").read_text(encoding="utf-8")
    tokenizer = parse_tokenizer(tokenizer_json)
    rows = {part: load_rows(SPLIT / part, tokenizer, card.preprocess, card.labels).labelled() for part in PARTS}
    calibration = calibration_batches(rows["train"], params.score_rows, params.seed)
    precision = precision_of(start, calibration[0], params.precision)
    teacher = ask_teacher(start, rows, params, ctx, precision)
    choosers: dict[str, Chooser] = {"ours": by_importance(calibration, precision)}
    if params.controls:
        choosers |= {"random": at_random(params.seed), "drop_layers": drop_blocks}
    plan = plan_of(params, precision)

    pruned: dict[str, Pruned] = {}
    found: dict[str, Appraisal] = {}
    with ctx.progress(len(choosers) * plan.updates * params.rows, unit="rows") as bar:
        for name, chooser in choosers.items():
            pruned[name] = prune_in_steps(start, card, chooser, plan, teacher, ctx.work / name, bar)
            half = precision if name != "ours" else "fp32"  # ours is held to fp32, a control may be judged in a hurry
            found[name] = appraise(pruned[name].model, card, rows["valid"], rows["test"], half)
    with ctx.out(OUT / "checkpoint") as folder:
        save_checkpoint(folder, pruned["ours"].model, found["ours"].card, tokenizer_json)
    with ctx.out(OUT / "teacher.safetensors") as path:
        teacher.save(path)

    ours = found["ours"]
    unpruned = read_verdict(FINETUNED / "predictions.parquet", "test", card, rows["test"])
    difference = loss_of(card, rows["test"], ours.verdict, unpruned)
    report: dict[str, Any] = {
        "prunable_kept": kept_share(ours.card.model, card.model),
        "layers": [{"heads": shape.heads, "ffn": shape.ffn} for shape in ours.card.model.layers],
        "steps": pruned["ours"].steps,
        "test": {"rows": len(rows["test"]), **ours.verdict.to_json()},
        "threshold": ours.card.threshold,
        "f1_unpruned_fp32": unpruned.f1.value,
        "paired_diff": difference.value,
        "paired_low": difference.low,
        "paired_high": difference.high,
        "precision": precision,
        "controls": {
            name: {
                **appraisal.verdict.to_json(),
                "kept": kept_share(appraisal.card.model, card.model),
                "gap": logit_gap(appraisal.logits, teacher.logits["test"]),
                "updates": plan.updates,
            }
            for name, appraisal in found.items()
        },
    }
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    key = f"kept {report['prunable_kept']:.1%}, f1 {ours.verdict.f1.value:.3f} (was {unpruned.f1.value:.3f})"
    metrics = {name: report[name] for name in ("prunable_kept", "f1_unpruned_fp32", "test", "paired_diff", "controls")}
    return Result(sum(map(len, rows.values())), len(rows["test"]), key, metrics)


def ask_teacher(start: Classifier, rows: dict[str, Rows], params: Prune, ctx: Context, precision: Precision) -> Teacher:
    """The unpruned model's answers to the rows of recovery and of the test; a killed run keeps them."""
    pools = {"train": rows["train"], "watch": rows["valid"], "test": rows["test"]}
    place = ctx.work / "teacher.safetensors"
    if not place.exists():
        counts = {"train": params.train_rows, "watch": params.watch_rows, "test": len(rows["test"])}
        parts = {part: draw(pool, counts[part], params.seed) for part, pool in pools.items()}
        with ctx.progress(sum(map(len, parts.values())), unit="rows", label="teacher") as bar:
            Teacher.ask(start, parts, precision, bar.advance).save(place)
    return Teacher.load(place, pools)


def plan_of(params: Prune, precision: Precision) -> Plan:
    between = Recovery(
        steps=params.between,
        lr=params.lr,
        rows=params.rows,
        weight=params.distill,
        temperature=params.temperature,
        weight_decay=params.weight_decay,
        precision=precision,
        seed=params.seed,
    )
    return Plan(params.target_share, params.steps, between, replace(between, steps=params.final))


if __name__ == "__main__":
    run("prune", Prune, main)
