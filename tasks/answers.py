"""Checkpoint and dialogues to a model that answers: the finetune stage under the objectives dialogue and summarize."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from data.batching import pack_documents
from data.errors import DaymillError
from data.tokens import parse_tokenizer
from tasks.params import Params
from tasks.stage import Context, Result
from tasks.telemetry import figures
from training.answers import Part, answering_model, check_causal, load_part, shown
from training.chat import Limits, Template, with_roles
from training.checkpoint import Card, save_checkpoint
from training.curves import Wandb, open_curves
from training.device import best_device
from training.generate import Decoding, generate
from training.history import Progressed
from training.knobs import PretrainConfig
from training.model import Transformer
from training.page import page
from training.precision import Choice
from training.pretrain import check_finite, pretrain, validation_loss
from training.rouge import lead_words, nearest, rouge, rouge_report
from training.state import load_state, part

if TYPE_CHECKING:
    from tasks.finetune import Finetune

SPLIT = Path("artifacts/split")
OUT = Path("artifacts/finetune")
PAGE = OUT / "training.html"
PARTS = ("train", "valid", "test")


class Answer(Params):
    """Knobs of learning to answer; the others of finetune mean what they mean for a classifier."""

    tokens: int = Field(default=64, ge=1, description="Tokens of an answer, at most.")
    temperature: float = Field(default=0.0, ge=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    rows: int = Field(default=200, ge=1, description="Test records that are answered for the report, at most.")
    samples: int = Field(default=5, ge=0, description="Answers that the report shows.")
    save_every_s: float = Field(default=15.0, ge=0, description="Seconds between checkpoints for resume.")


def learn(params: Finetune, ctx: Context, backbone: Transformer, tokenizer_json: str) -> Result:
    """The body of the stage."""
    check_causal(backbone)
    tokenizer_json = with_roles(tokenizer_json)
    tokenizer = parse_tokenizer(tokenizer_json)
    limits = Limits(params.max_len, params.answer.tokens, params.max_chars, params.tail)
    template = Template(tokenizer, limits)
    train, valid, test = (load_part(SPLIT / name, template) for name in PARTS)
    model = answering_model(backbone, tokenizer.get_vocab_size(), params.dropout, params.seed)
    untrained = copy.deepcopy(model).eval()
    config = config_of(params, train)
    done = trained(model, config, train, valid, ctx, round(params.epochs * train.scored), params.telemetry.wandb)
    precision = Choice(**done.choice).precision
    untrained.set_attention(done.choice["attention"])
    models = {"ours": model, "untrained": untrained}
    losses = {
        name: {of: validation_loss(each, data.shard, config, precision) for of, each in models.items()}
        for name, data in (("valid", valid), ("test", test))
    }
    chosen = test.some(params.answer.rows)
    ids = answered(models, template, test, chosen, params, ctx)
    answers = {name: [template.text(tokens) for tokens in found] for name, found in ids.items()}
    references, questions = ([texts[at] for at in chosen] for texts in (test.answers, test.questions))
    beside = {
        "lead_words": lead_words(questions, train.answers),
        "nearest": nearest(train.questions, train.answers, questions),
    }
    report: dict[str, Any] = {
        "objective": params.objective,
        "loss": {name: {of: round(loss, 4) for of, loss in each.items()} for name, each in losses.items()},
        "loss_is": "per scored token, in nats",
        "rouge": rouge_report(references, answers | beside, "ours"),
        "samples": shown(test, chosen, answers | beside, params.answer.samples),
        "parts": {name: data.sizes() for name, data in zip(PARTS, (train, valid, test), strict=True)},
        "steps": done.step,
        "best_step": done.best_step,
        "stopped_early": done.step < config.steps,
        "tokens_per_s": round(done.tokens_per_s),
        "computed_in": done.choice,
        "evaluations": [{"step": step, "valid_loss": loss} for step, loss in done.validations],
    }
    with ctx.out(OUT / "checkpoint") as folder:
        save_checkpoint(folder, model, card_of(params, model), tokenizer_json)
    with ctx.out(OUT / "report.json") as path:
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with ctx.out(OUT / "predictions.parquet") as path:
        pq.write_table(predictions(test, chosen, ids["ours"], answers["ours"], references), path, compression="zstd")
    loss, scores = report["loss"]["test"], report["rouge"]
    key = (
        f"loss {loss['ours']:.3f} a token ({loss['untrained']:.3f} before), ROUGE-L {scores['ours']['rougeL']:.3f}, "
        f"lead words {scores['lead_words']['rougeL']:.3f}, nearest {scores['nearest']['rougeL']:.3f}"
    )
    metrics = {"loss": report["loss"], "rouge": scores, "best_step": done.best_step, "steps": done.step}
    return Result(sum(len(data) + data.without for data in (train, valid, test)), len(chosen), key, metrics)


def config_of(params: Finetune, train: Part) -> PretrainConfig:
    """The run as the training loop knows it: packed rows of one dialogue's length, so many that epochs are passed."""
    rows = min(params.rows, max(1, params.max_tokens // params.max_len))
    accumulate = -(-params.rows // rows)
    packed = len(pack_documents(train.shard, params.max_len, params.seed))
    steps = max(1, round(params.epochs * packed / (rows * accumulate)))
    shared = ("lr", "warmup", "floor", "weight_decay", "clip", "seed", "patience")
    return PretrainConfig(
        tokens=steps * rows * accumulate * params.max_len,
        length=params.max_len,
        rows=rows,
        accumulate=accumulate,
        evaluations=min(steps, max(1, round(params.evaluations * params.epochs))),
        valid_tokens=0,
        keep_best=True,
        save_every_s=params.answer.save_every_s,
        save_share=params.save_share,
        look_every=params.telemetry.every,
        precision=None if params.precision == "auto" else params.precision,
        emulate=params.emulate,
        **params.model_dump(include=set(shared)),
    )


def trained(
    model: Transformer, config: PretrainConfig, train: Part, valid: Part, ctx: Context, scored: int, wandb: Wandb
) -> Progressed:
    """Train in place; the model ends with the weights of its lowest validation loss."""
    state = ctx.work / "answers.safetensors"
    with (
        ctx.out(OUT / "curves") as folder,
        open_curves(folder, wandb) as curves,
        ctx.progress(scored, unit="answer tokens") as bar,
    ):
        model.to(best_device())
        done = pretrain(
            model,
            train.shard,
            valid.shard,
            config,
            state=state,
            progress=bar,
            curves=curves,
            note=lambda line: print(f"finetune: {line}", flush=True),
        )
    saved = load_state(state)
    if saved is None:
        raise DaymillError(f"{state}: the run ended without a state; nothing can be kept of it")
    model.load_state_dict(part(saved[0], "best"))
    check_finite(model, "finetune.lr")
    with ctx.out(PAGE) as path:
        path.write_text(page("What finetuning did", done.points, done.spent, figures(done)), encoding="utf-8")
    model.to("cpu")  # where answers are decoded
    return done


def answered(
    models: dict[str, Transformer], template: Template, test: Part, chosen: list[int], params: Finetune, ctx: Context
) -> dict[str, list[list[int]]]:
    """The tokens that each model answers to the chosen records."""
    knobs = params.answer
    decoding = Decoding(knobs.tokens, knobs.temperature, knobs.top_p, params.seed)
    questions = [template.question(test.messages[at]) for at in chosen]
    found = {}
    with ctx.progress(len(models) * len(chosen), unit="answers") as bar:
        for name, model in models.items():
            found[name] = generate(model, questions, decoding, banned=template.unspeakable, on_rows=bar.advance)
    return found


def card_of(params: Finetune, model: Transformer) -> Card:
    preprocess = {
        "max_len": params.max_len,
        "max_chars": params.max_chars,
        "tail": params.tail,
        "answer_tokens": params.answer.tokens,
    }
    return Card(model=model.config, task=params.objective, preprocess=preprocess)


def predictions(
    test: Part, chosen: list[int], tokens: list[list[int]], answers: list[str], references: list[str]
) -> pa.Table:
    """Each answer's length and ROUGE, without its text."""
    scores = rouge(references, answers)
    columns = {
        "id": pa.array([test.ids[at] for at in chosen], pa.string()),
        "answer_tokens": pa.array([len(found) for found in tokens], pa.int32()),
    }
    columns |= {kind: pa.array(values, pa.float64()) for kind, values in scores.items()}
    return pa.table(columns | {"part": pa.array(["test"] * len(chosen), pa.string())})
