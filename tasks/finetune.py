"""Checkpoint and labels to a classifier, judged beside two baselines; or, in tasks/answers.py, to one that answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, model_validator

from data.errors import DaymillError
from data.shards import read_table
from data.tokens import parse_tokenizer
from tasks.answers import Answer, learn
from tasks.objective import CLASSIFY
from tasks.params import Params, Warmup, tell_cut
from tasks.stage import Context, Result, run
from tasks.telemetry import Look
from training.baselines import Baseline, majority, tfidf
from training.checkpoint import load_checkpoint, save_checkpoint
from training.classify import train_classifier
from training.clock import breakdown
from training.curves import open_curves
from training.decision import decide, score
from training.device import best_device
from training.finetune import Labelled, calibrate, classifier_from, make_card, positive_label
from training.history import History
from training.huggingface import adopt
from training.knobs import ClassifyConfig
from training.model import Transformer
from training.numerics import computed_in
from training.page import page
from training.parallel.replicas import train_over_ranks
from training.predict import predict_logits
from training.report import part_report, slice_report
from training.rows import Rows, load_rows

SPLIT = Path("artifacts/split")
PRETRAINED = Path("artifacts/pretrain/checkpoint")
OUT = Path("artifacts/finetune")
NAMES = {"valid_loss": "valid/loss", "valid_f1": "valid/f1", "tokens_per_s": "train/tokens_per_s"}
PARTS = ("train", "valid", "test")


class Finetune(Params):
    objective: Literal["classify", "dialogue", "summarize"] = "classify"
    source: str = Field(alias="from", description="`pretrain`, or the path of a Hugging Face folder.")
    positive: str | None
    max_len: int = Field(ge=2, description="Tokens of a record that the model sees.")
    max_chars: int = Field(ge=1, description="Characters of a record that are looked at.")
    tail: float = Field(ge=0, le=1, description="Share of them that comes from the end of a longer record.")
    context: Literal["causal", "full"] = Field(alias="attention")
    epochs: float = Field(gt=0)
    rows: int = Field(ge=1, description="Rows of one update.")
    max_tokens: int = Field(ge=1, description="Padded tokens of a micro-batch.")
    batches: Literal["buckets", "padded"] = Field(description="How a step's rows become micro-batches.")
    lr: float = Field(gt=0)
    warmup: Warmup
    floor: float = Field(ge=0, le=1)
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)
    dropout: float = Field(ge=0, lt=1)
    smoothing: float = Field(ge=0, lt=1)
    balance: bool
    average: float = Field(ge=0, lt=1)
    evaluations: float = Field(gt=0)
    patience: int = Field(ge=0)
    precision: Literal["auto", "fp32", "bf16", "fp16", "tf32", "fp8", "adaptive"]
    emulate: bool = Field(description="The precision's rounding whatever it costs, also where the device lacks it.")
    ranks: int = Field(ge=1, description="Processes of this machine that share the rows of an update.")
    save_share: float = Field(ge=0, lt=1, description="Share of the wall time that checkpoints may take; 0: any.")
    telemetry: Look
    seed: int = Field(ge=0)
    answer: Answer = Answer()

    @model_validator(mode="after")
    def ranks_classify(self) -> Finetune:
        if self.ranks > 1 and self.objective != CLASSIFY:
            raise ValueError(f"ranks is {self.ranks}, which is for objective: classify alone; expected 1")
        return self


def main(params: Finetune, ctx: Context) -> Result:
    backbone, tokenizer_json = load_backbone(params)
    if params.objective != CLASSIFY:
        return learn(params, ctx, backbone, tokenizer_json)
    tokenizer = parse_tokenizer(tokenizer_json)
    preprocess = {"max_len": params.max_len, "max_chars": params.max_chars, "tail": params.tail}
    train = load_rows(SPLIT / "train", tokenizer, preprocess)
    valid, test = (load_rows(SPLIT / name, tokenizer, preprocess, train.names) for name in ("valid", "test"))
    unlabelled = len(train) - len(train.labelled())
    data = Labelled(train.labelled(), valid.labelled(), test.labelled())
    data.check()
    positive = positive_label(data.train, params.positive)
    at = data.train.names.index(positive) if positive is not None else None

    config = ClassifyConfig(
        **params.model_dump(include=set(ClassifyConfig.__dataclass_fields__) - {"positive", "precision", "look_every"}),
        precision=None if params.precision == "auto" else params.precision,
        positive=at,
        look_every=params.telemetry.every,
    )
    model = classifier_from(backbone, len(data.train.names), params.dropout, params.context == "causal", params.seed)
    model.to(best_device())
    with (
        ctx.out(OUT / "curves") as folder,
        open_curves(folder, params.telemetry.wandb) as curves,
        ctx.progress(round(config.epochs * len(data.train)), unit="rows") as bar,
    ):
        told: dict[str, Any] = {
            "valid": data.valid,
            "on_eval": lambda entry: curves.log(int(entry["step"]), {k: v for k, v in entry.items() if k != "step"}),
            "on_look": curves.log,
            "progress": bar,
            "note": lambda line: print(f"finetune: {line}", flush=True),
        }
        if params.ranks == 1:
            state = ctx.work / "finetune.safetensors"
            history = train_classifier(model, data.train, config, state=state, **told)
        else:
            history = train_over_ranks(params.ranks, model, data.train, config, ctx.work / "ranks", **told)

    tell_cut("finetune", config.warmup, history.warmup)
    with ctx.out(OUT / "training.html") as path:
        path.write_text(
            page("What finetuning did", points_of(history), history.spent, facts(history)), encoding="utf-8"
        )
    logits = {"valid": predict_logits(model, data.valid.tokens), "test": predict_logits(model, data.test.tokens)}
    threshold = calibrate(logits["valid"], data.valid, positive)
    card = make_card(model, data.train.names, positive, threshold, preprocess)
    with ctx.out(OUT / "checkpoint") as folder:
        save_checkpoint(folder, model, card, tokenizer_json)
    chosen = {name: decide(part, card.labels, positive, threshold) for name, part in logits.items()}
    words, common = run_baselines(data, at)
    report: dict[str, Any] = {
        name: part_report(
            rows.labels, chosen[name], at, {"tfidf": getattr(words, name), "majority": getattr(common, name)}
        )
        for name, rows in (("test", data.test), ("valid", data.valid))
    }
    report |= {
        "by_group": slice_report(data.test.groups, data.test.labels, chosen["test"], at),
        "by_source": slice_report(data.test.sources, data.test.labels, chosen["test"], at),
        "baselines": {
            "tfidf": {"what": words.what, "threshold": words.threshold},
            "majority": {"what": common.what, "label": card.labels[int(common.test[0])]},
        },
        "labels": card.labels,
        "positive": positive,
        "positive_reason": reason_of(params, positive),
        "threshold": threshold,
        "epochs": round(history.steps / max(1, -(-len(data.train) // config.rows)), 3),
        "warmup_steps": history.warmup,
        "best_step": history.best_step,
        "stopped_early": history.stopped_early,
        "tokens_per_s": round(history.tokens_per_s),
        "useful_tokens": round(history.tokens / history.padded, 4),
        "computed_in": computed_in(history.choice),
        "peak": history.peak,
        "time": {part: round(share, 5) for part, share in breakdown(history.spent).items()},
        "unlabelled_train_rows": unlabelled,
        "weighted_train_rows": int((data.train.weights != 1).sum()) if data.train.weights is not None else 0,
        "evaluations": history.evaluations,
    }
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    with ctx.out(OUT / "predictions.parquet") as path:
        parts = (("valid", data.valid), ("test", data.test))
        tables = [predictions(name, rows, logits[name], chosen[name], positive) for name, rows in parts]
        pq.write_table(pa.concat_tables(tables), path, compression="zstd")
    ours = report["test"]
    name = "f1" if positive else "macro f1"
    key = f"{name} {ours['f1']:.3f} ({ours['f1_low']:.3f}-{ours['f1_high']:.3f}), tf-idf {ours['tfidf_f1']:.3f}"
    metrics = {"test": ours, "valid": report["valid"], "threshold": threshold, "tokens_per_s": report["tokens_per_s"]}
    return Result(len(train) + len(valid) + len(test), sum(len(rows) for _, rows in parts), key, metrics)


def points_of(history: History) -> list[tuple[int, dict[str, float]]]:
    """Looks and evaluations by step, under the names that the page knows."""
    told = [
        (int(entry["step"]), {NAMES[key]: value for key, value in entry.items() if key in NAMES})
        for entry in history.evaluations
    ]
    return sorted([*history.looks, *told], key=lambda point: point[0])


def facts(history: History) -> dict[str, str]:
    """The figures at the head of the run's page."""
    best = min(history.evaluations, key=lambda entry: entry["valid_loss"], default={})
    found = {"steps": f"{history.steps:,}", "tokens a second": f"{history.tokens_per_s:,.0f}"}
    if best:
        found |= {"lowest validation loss": f"{best['valid_loss']:.3f}", "F1 there": f"{best['valid_f1']:.3f}"}
    if history.looks:
        found["MFU at the last look"] = f"{history.looks[-1][1]['train/mfu']:.1%}"
    return found


def load_backbone(params: Finetune) -> tuple[Transformer, str]:
    """The weights to start from, and the text of their tokenizer.json."""
    if params.source == "pretrain":
        model, _ = load_checkpoint(PRETRAINED)
        assert isinstance(model, Transformer)
        tokenizer_json = (PRETRAINED / "tokenizer.json").read_text(encoding="utf-8")
    else:
        model, tokenizer_json = adopt(Path(params.source))
    if params.max_len > model.config.max_len:
        raise DaymillError(
            f"finetune.max_len is {params.max_len}, but the model of {params.source} was made for at most "
            f"{model.config.max_len} tokens"
        )
    return model, tokenizer_json


def reason_of(params: Finetune, positive: str | None) -> str:
    """Why this label is the positive one."""
    if positive is None:
        return "more than two labels: macro F1"
    return "as configured" if params.positive else "the rarer of two labels"


def run_baselines(data: Labelled, positive: int | None) -> tuple[Baseline, Baseline]:
    """TF-IDF and majority on the same rows."""
    texts = {name: texts_of(SPLIT / name, getattr(data, name)) for name in PARTS}
    words = tfidf(texts["train"], data.train.labels, texts["valid"], data.valid.labels, texts["test"], positive)
    return words, majority(data.train.labels, len(data.valid), len(data.test))


def texts_of(folder: Path, rows: Rows) -> list[str]:
    """Whole texts of the given rows: the baseline is not held to the model's first tokens."""
    table = read_table(folder, columns=["id", "text"])
    text = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return [text[id_] for id_ in rows.ids]


def predictions(
    part: str, rows: Rows, logits: NDArray[np.float32], chosen: NDArray[np.int64], positive: str | None
) -> pa.Table:
    names = rows.names
    return pa.table(
        {
            "id": pa.array(rows.ids, pa.string()),
            "label": pa.array([names[i] for i in rows.labels], pa.string()),
            "score": pa.array(score(logits, names, positive, chosen), pa.float64()),
            "predicted": pa.array([names[i] for i in chosen], pa.string()),
            "part": pa.array([part] * len(rows), pa.string()),
        }
    )


if __name__ == "__main__":
    run("finetune", Finetune, main)
