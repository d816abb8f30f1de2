"""Tokens to a language model: next-token pretraining with exact resume."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator

from data.errors import DaymillError
from data.tokens import VALID, learned_from, load_tokenizer, read_tokens
from tasks.params import Params, Warmup, tell_cut
from tasks.progress import Progress
from tasks.stage import Context, Result, run
from tasks.telemetry import Look, figures
from training.checkpoint import Card, save_checkpoint
from training.clock import breakdown
from training.config import ModelConfig
from training.curves import open_curves
from training.device import best_device
from training.history import Progressed
from training.knobs import PretrainConfig
from training.listeners import Curves
from training.loader import PackedLoader, TokenBatch
from training.model import Transformer
from training.numerics import computed_in, write_record
from training.page import page
from training.parallel.compress import Compress
from training.parallel.launch import launch
from training.parallel.layout import Layout
from training.parallel.orders import SCHEDULES
from training.parallel.planner import measure, plans, table
from training.parallel.run import check_precision_of
from training.parallel.worker import Job
from training.pretrain import check_finite, pretrain, set_training
from training.sparsity import by_layer
from training.state import load_state, part

TOKENS = Path("artifacts/tokenize")
CHECKPOINT = Path("artifacts/pretrain/checkpoint")
CURVES = Path("artifacts/pretrain/curves")
PAGE = Path("artifacts/pretrain/training.html")


class Compression(Params):
    """How data ranks compress their gradients."""

    method: Literal["off", "auto", "top-k", "power-sgd"]
    saved: float = Field(gt=0, lt=1, description="Share of a dense ring all-reduce's bytes, sent and received alike.")
    dense_steps: int = Field(ge=0, description="Steps that send all gradients before compression begins.")


class Parallel(Params):
    """Ranks of one run; 1 x 1 x 1 trains in this process."""

    data: int = Field(ge=1, description="Ranks that share the rows of a step.")
    tensor: int = Field(ge=1, description="Ranks that share every layer.")
    pipeline: int = Field(ge=1, description="Ranks that have different blocks.")
    schedule: Literal["auto", "gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-v"]
    shard: bool = Field(description="Data ranks share parameters and moments (FSDP2) instead of holding replicas.")
    compress: Compression
    rebalance: float = Field(ge=0, description="Times the mean that the busiest pipeline stage may take; 0: any.")
    restarts: int = Field(ge=0, description="Times that the ranks are started again when one dies.")

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline

    @model_validator(mode="after")
    def compress_what_is_whole(self) -> Parallel:
        if self.compress.method != "off" and (self.data == 1 or self.tensor * self.pipeline > 1 or self.shard):
            raise ValueError(
                f"compress.method is {self.compress.method}, which is for data ranks alone: data of 2 or more, "
                "tensor: 1, pipeline: 1, shard: false"
            )
        return self


class Dsrelu(Params):
    """What is read where the activation is dsrelu."""

    theta: float = Field(gt=0, description="Threshold of every layer; where it is learned, the one to begin with.")
    learned: bool = Field(description="Each layer learns its theta instead of following the schedule.")
    ramp: float = Field(ge=0, le=1, description="Share of the steps in which a scheduled theta rises from 0.")
    skip: Literal["none", "neurons", "tokens"] = Field(description="What leaves backward passes.")
    skip_share: float = Field(gt=0, lt=1, description="Share of it that leaves.")


class Pretrain(Params):
    depth: int = Field(ge=1, le=48, description="Blocks; width and heads follow from it.")
    tokens: int = Field(ge=0, description="Tokens to train on; 0 leaves random weights.")
    length: int = Field(ge=2, description="Tokens of a packed row.")
    max_len: int = Field(ge=2, description="Longest input that the model will be asked for, tokens.")
    rows: int = Field(ge=1, description="Rows of a micro-batch.")
    accumulate: int = Field(ge=1, description="Micro-batches of one update.")
    lr: float = Field(gt=0)
    warmup: Warmup
    hold: float = Field(ge=0, lt=1, description="Share of the steps behind the warm-up that keep the peak rate.")
    floor: float = Field(ge=0, le=1, description="Last learning rate as a share of the peak.")
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)
    dropout: float = Field(ge=0, lt=1)
    smoothing: float = Field(ge=0, lt=1, description="Share of a target's probability that goes to all words alike.")
    activation: Literal["swiglu", "gelu", "relu2", "dsrelu"]
    head_dim: Literal[16, 32, 64] = Field(description="Channels of an attention head.")
    kv_heads: int | None = Field(ge=1, description="Heads of keys and values; null: as many as of queries.")
    dsrelu: Dsrelu
    precision: Literal["auto", "fp32", "bf16", "fp16", "tf32", "fp8", "adaptive"]
    emulate: bool = Field(description="The precision's rounding whatever it costs, also where the device lacks it.")
    fp8_scaling: Literal["tensor", "row"]
    replay: str | None = Field(description="A run's precision.json, whose choices and decisions are taken again.")
    attention: Literal["auto", "plain", "sdpa"]
    save_every_s: float = Field(ge=0)
    save_share: float = Field(ge=0, lt=1, description="Share of the wall time that checkpoints may take; 0: any.")
    compile: Literal["off", "on"]
    telemetry: Look
    parallel: Parallel
    seed: int = Field(ge=0)

    @field_validator("kv_heads")
    @classmethod
    def shared_evenly(cls, value: int | None, info: ValidationInfo) -> int | None:
        heads = 64 * info.data.get("depth", value or 1) // info.data.get("head_dim", 32)
        if value is not None and heads % value:
            raise ValueError(f"expected a divisor of the {heads} heads that depth and head_dim make")
        return value

    @field_validator("parallel")
    @classmethod
    def skips_on_whole_layers(cls, value: Parallel, info: ValidationInfo) -> Parallel:
        sparse = info.data.get("dsrelu")
        if info.data.get("activation") == "dsrelu" and sparse and sparse.skip != "none" and value.tensor > 1:
            raise ValueError(f"dsrelu.skip: {sparse.skip} is not for tensor-parallel ranks; expected tensor: 1")
        return value

    def shape(self, vocab_size: int) -> ModelConfig:
        """The model that these knobs describe."""
        return ModelConfig.from_depth(
            self.depth,
            vocab_size,
            max_len=max(self.length, self.max_len),
            dropout=self.dropout,
            activation=self.activation,
            head_dim=self.head_dim,
            kv_heads=self.kv_heads,
            **self.thresholds(),
        )

    def thresholds(self) -> dict[str, Any]:
        if self.activation != "dsrelu":
            return {}
        return {"theta": self.dsrelu.theta, "learned_theta": self.dsrelu.learned}

    def run(self) -> PretrainConfig:
        """How it is trained."""
        sparse = self.activation == "dsrelu"
        return PretrainConfig(
            **self.model_dump(include=PLAIN),
            theta_ramp=self.dsrelu.ramp,
            skip=self.dsrelu.skip if sparse else "none",
            skip_share=self.dsrelu.skip_share,
            compile=self.compile == "on",
            look_every=self.telemetry.every,
            precision=None if self.precision == "auto" else self.precision,
            attention=None if self.attention == "auto" else self.attention,
        )


# Knobs that a run takes as they are.
PLAIN = set(Pretrain.model_fields) & {field.name for field in fields(PretrainConfig)} - {
    "precision",
    "attention",
    "compile",
}


def main(params: Pretrain, ctx: Context) -> Result:
    tokenizer_json = (TOKENS / "tokenizer.json").read_text(encoding="utf-8")
    train, valid = read_tokens(TOKENS, learned_from(TOKENS)), read_tokens(TOKENS, VALID)
    vocab_size = load_tokenizer(TOKENS / "tokenizer.json").get_vocab_size()
    torch.manual_seed(params.seed)
    shape, config = params.shape(vocab_size), params.run()
    model = Transformer(shape)
    tell_cut("pretrain", config.warmup, config.warmup_steps)
    state = ctx.work / "pretrain.safetensors"
    with (
        ctx.out(CURVES) as folder,
        open_curves(folder, params.telemetry.wandb) as curves,
        ctx.progress(config.places, unit="tokens") as bar,
    ):
        if params.parallel.ranks == 1 or not params.tokens:
            model.to(best_device())
            done = pretrain(model, train, valid, config, state=state, progress=bar, curves=curves, note=say)
        else:
            done = over_ranks(model, config, params.parallel, state, bar, curves)
        write_record(folder / "precision.json", done.choice, done.numerics)
    check_finite(model)
    with ctx.out(PAGE) as path:
        path.write_text(page("What pretraining did", done.points, done.spent, figures(done)), encoding="utf-8")
    with ctx.out(CHECKPOINT) as folder:
        save_checkpoint(folder, model, Card(model=shape, task="lm"), tokenizer_json)
    metrics = {
        "steps": done.step,
        "warmup_steps": config.warmup_steps,
        "tokens": done.tokens,
        "learned_from": learned_from(TOKENS),
        "tokens_per_s": round(done.tokens_per_s),
        "parameters": sum(p.numel() for p in model.parameters()),
        "valid_loss": done.last("valid/loss"),
        "train_loss": done.last("train/loss"),
        "computed_in": computed_in(done.choice),
        "mfu": round(done.last("train/mfu"), 4),
        "peak": done.peak,
        "time": {part: round(share, 5) for part, share in breakdown(done.spent).items()},
    }
    if params.activation == "dsrelu":
        set_training(model, config)
        batch = PackedLoader(train, config.length, config.rows, config.seed).next()
        metrics["backward_by_layer"] = [asdict(layer) for layer in by_layer(model, batch)]
    key = "random weights" if not done.step else f"loss {metrics['valid_loss']:.3f}, {done.tokens_per_s:,.0f} tokens/s"
    return Result(len(train), 1, key, metrics)


def say(line: str) -> None:
    print(f"pretrain: {line}", flush=True)


def over_ranks(
    model: Transformer, config: PretrainConfig, parallel: Parallel, state: Path, bar: Progress, curves: Curves
) -> Progressed:
    """The same run by several ranks of this machine; `model` is given what they trained."""
    state.parent.mkdir(parents=True, exist_ok=True)
    path = state.with_name("job.json")
    # A run that goes on keeps its stages: measured anew they might be others, and the last bits too.
    if not path.exists():
        layout = layout_of(model, config, parallel)
        check_precision_of(layout, config.precision)
        job = Job(
            tokens=str(TOKENS),
            state=str(state),
            model=model.config.to_json(),
            config=asdict(config),
            layout=asdict(layout),
            compress=asdict(compress_of(parallel.compress, config.warmup_steps)),
            rebalance=parallel.rebalance,
        )
        job.save(path)

    spent: dict[str, float] = {}

    def on_line(line: str) -> None:
        told = as_told(line)
        if "values" in told:
            curves.log(told["step"], told["values"])
        elif "spent" in told:
            spent.update(told["spent"])
        elif "tokens" in told:
            bar.advance(told["tokens"] - bar.done, told["note"])
        elif "traffic" in told:
            print(f"pretrain: {traffic_line(told['traffic'])}", flush=True)
        elif line.strip():
            say(line)

    launch(parallel.ranks, "training.parallel.worker", [str(path)], on_line, parallel.restarts)
    saved = load_state(state)
    if saved is None:
        raise DaymillError(f"{parallel.ranks} ranks ended without a state; see their lines above")
    tensors, meta = saved
    model.load_state_dict(part(tensors, "model"))
    return Progressed(**meta | {"spent": spent})


def compress_of(asked: Compression, warmup_steps: int) -> Compress:
    """Never while the learning rate still rises."""
    return Compress(asked.method, asked.saved, max(asked.dense_steps, warmup_steps))


def traffic_line(traffic: dict[str, float]) -> str:
    """What the first rank's gradients took since the ranks were started last."""
    sent, received = traffic["sent"] / 1e6, traffic["received"] / 1e6
    return f"gradients: {sent:,.1f} MB sent and {received:,.1f} MB received a rank, waited {traffic['waited']:,.1f} s"


def layout_of(model: Transformer, config: PretrainConfig, parallel: Parallel) -> Layout:
    """The ranks' layout; the blocks of each pipeline stage, and under `auto` the schedule, follow from measuring."""
    known: dict[str, Any] = {
        "data": parallel.data,
        "tensor": parallel.tensor,
        "pipeline": parallel.pipeline,
        "shard": parallel.shard,
    }
    if parallel.pipeline == 1:
        return Layout(**known)
    ids = torch.randint(0, model.config.vocab_size, (max(1, config.rows // parallel.data), config.length))
    costs = measure(model, TokenBatch(ids, ids, torch.zeros_like(ids)))
    wanted = [parallel.schedule] if parallel.schedule != "auto" else list(SCHEDULES)
    if parallel.shard:
        wanted = [name for name in wanted if parallel.schedule != "auto" or not name.startswith("zero-bubble")]
    found = plans(costs, parallel.pipeline, [config.accumulate], schedules=wanted)
    print("\n".join(f"pretrain: {line}" for line in table(found).splitlines()), flush=True)
    seconds = tuple(cost.seconds for cost in costs)
    return Layout(**known, schedule=found[0].schedule, sizes=found[0].sizes, costs=seconds)


def as_told(line: str) -> dict[str, Any]:
    """A line of the first rank; empty where it is something else that a library said."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


if __name__ == "__main__":
    run("pretrain", Pretrain, main)
