"""Pruned checkpoint to an INT8 one: training with rounding in the loop, static ranges, recovery from the teacher."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from compression.cpu import cpu_features, int8_objection
from compression.distill import Teacher, logit_gap
from compression.prune import kept_share
from compression.qat import QatPlan, train_quantized
from compression.quantize import FULL_RANGE, REDUCED_RANGE, save_quantized
from compression.ranges import calibration_batches
from compression.recovery import Recovery, load_classifier, precision_of
from compression.verdict import appraise, loss_of, read_verdict
from data.tokens import parse_tokenizer
from tasks.objective import require_classifier
from tasks.params import Params
from tasks.stage import Context, Result, run
from training.checkpoint import load_card
from training.precision import Precision
from training.rows import load_rows

SPLIT = Path("artifacts/split")
FINETUNED = Path("artifacts/finetune")
PRUNED = Path("artifacts/prune")
OUT = Path("artifacts/quantize")
PARTS = ("train", "valid", "test")


class Quantize(Params):
    moving: int = Field(ge=0, description="Updates while weight scales follow the weights.")
    frozen: int = Field(ge=0, description="Updates after ranges are frozen.")
    rows: int = Field(ge=1, description="Rows of one update.")
    lr: float = Field(gt=0, description="Peak learning rate of each stretch.")
    weight_decay: float = Field(ge=0)
    distill: float = Field(ge=0, le=1, description="Share of the teacher's loss; the rest is the labels'.")
    temperature: float = Field(gt=0)
    percentile: float = Field(gt=50, le=100, description="Of the values of a batch, at both ends of a range.")
    calibration_rows: int = Field(ge=1, description="Train rows that ranges are taken on.")
    bits: Literal["auto", "8", "7"] = Field(description="Of a weight; auto: 7 where the CPU lacks VNNI.")
    precision: Literal["auto", "fp32", "bf16"]
    seed: int = Field(ge=0)


def main(params: Quantize, ctx: Context) -> Result:
    unpruned_card = load_card(FINETUNED / "checkpoint")
    require_classifier(unpruned_card.task)
    start, card = load_classifier(PRUNED / "checkpoint")
    tokenizer_json = (PRUNED / "checkpoint/tokenizer.json").read_text(encoding="utf-8")
    tokenizer = parse_tokenizer(tokenizer_json)
    rows = {part: load_rows(SPLIT / part, tokenizer, card.preprocess, card.labels).labelled() for part in PARTS}
    pools = {"train": rows["train"], "watch": rows["valid"], "test": rows["test"]}
    teacher = Teacher.load(PRUNED / "teacher.safetensors", pools)
    calibration = calibration_batches(rows["train"], params.calibration_rows, params.seed)
    precision = precision_of(start, calibration[0], params.precision)
    objection = int8_objection(cpu_features())
    reduced = params.bits == "7" or (params.bits == "auto" and objection is not None)
    plan = plan_of(params, precision, REDUCED_RANGE if reduced else FULL_RANGE)

    with ctx.progress((params.moving + params.frozen) * params.rows, unit="rows") as bar:
        trained = train_quantized(start, card, plan, calibration, teacher, ctx.work, bar)
    final = appraise(trained.model, card, rows["valid"], rows["test"])
    with ctx.out(OUT / "checkpoint") as folder:
        save_quantized(folder, trained.model, final.card, tokenizer_json)

    unpruned = read_verdict(FINETUNED / "predictions.parquet", "test", unpruned_card, rows["test"])
    difference = loss_of(card, rows["test"], final.verdict, unpruned)
    pruned = json.loads((PRUNED / "report.json").read_text(encoding="utf-8"))
    report: dict[str, Any] = {
        "test": {"rows": len(rows["test"]), **final.verdict.to_json()},
        "threshold": final.card.threshold,
        "compression": {
            "prunable_kept": kept_share(final.card.model, unpruned_card.model),
            "f1_unpruned_fp32": unpruned.f1.value,
            "f1_pruned": pruned["test"]["f1"],
            "f1_final": final.verdict.f1.value,
            "paired_diff": difference.value,
            "paired_low": difference.low,
            "paired_high": difference.high,
        },
        "gap": logit_gap(final.logits, teacher.logits["test"]),
        "stretches": trained.stretches,
        "weight_bits": 7 if reduced else 8,
        "weight_bits_reason": "as configured" if params.bits != "auto" else objection or "the CPU has VNNI",
        "ranges": trained.ranges,
        "precision": precision,
    }
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    spread = f"{difference.low:+.3f} to {difference.high:+.3f}"
    key = f"f1 {final.verdict.f1.value:.3f}, {difference.value:+.3f} to unpruned ({spread})"
    metrics = {name: report[name] for name in ("test", "compression", "gap", "weight_bits")}
    return Result(sum(map(len, rows.values())), len(rows["test"]), key, metrics)


def plan_of(params: Quantize, precision: Precision, weight_max: int) -> QatPlan:
    moving = Recovery(
        steps=params.moving,
        lr=params.lr,
        rows=params.rows,
        weight=params.distill,
        temperature=params.temperature,
        weight_decay=params.weight_decay,
        precision=precision,
        seed=params.seed,
    )
    return QatPlan(moving, replace(moving, steps=params.frozen), params.percentile, weight_max)


if __name__ == "__main__":
    run("quantize", Quantize, main)
