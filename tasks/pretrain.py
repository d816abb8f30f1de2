"""Tokens to a language model: next-token pretraining with exact resume."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, model_validator

from data.errors import DaymillError
from data.tokens import load_tokenizer, read_tokens
from tasks.params import Params
from tasks.progress import Progress
from tasks.stage import Context, Result, run
from training.checkpoint import Card, save_checkpoint
from training.config import ModelConfig
from training.curves import open_curves
from training.loader import TokenBatch
from training.model import Transformer
from training.parallel.compress import Compress
from training.parallel.launch import launch
from training.parallel.layout import Layout
from training.parallel.orders import SCHEDULES
from training.parallel.planner import measure, plans, table
from training.parallel.worker import Job
from training.pretrain import Curves, PretrainConfig, Progressed, check_finite, pretrain
from training.state import load_state, part

TOKENS = Path("artifacts/tokenize")
CHECKPOINT = Path("artifacts/pretrain/checkpoint")
CURVES = Path("artifacts/pretrain/curves")
SWITCH = {"auto": None, "on": True, "off": False}


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


class Pretrain(Params):
    depth: int = Field(ge=1, le=48, description="Blocks; width and heads follow from it.")
    tokens: int = Field(ge=0, description="Tokens to train on; 0 leaves random weights.")
    length: int = Field(ge=2, description="Tokens of a packed row.")
    max_len: int = Field(ge=2, description="Longest input that the model will be asked for, tokens.")
    rows: int = Field(ge=1, description="Rows of a micro-batch.")
    accumulate: int = Field(ge=1, description="Micro-batches of one update.")
    lr: float = Field(gt=0)
    warmup: float = Field(ge=0, lt=1, description="Share of the steps.")
    floor: float = Field(ge=0, le=1, description="Last learning rate as a share of the peak.")
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)
    dropout: float = Field(ge=0, lt=1)
    bf16: Literal["auto", "on", "off"]
    attention: Literal["auto", "plain", "sdpa"]
    save_every_s: float = Field(ge=0)
    parallel: Parallel
    seed: int = Field(ge=0)


def main(params: Pretrain, ctx: Context) -> Result:
    tokenizer_json = (TOKENS / "tokenizer.json").read_text(encoding="utf-8")
    train, valid = read_tokens(TOKENS, "train"), read_tokens(TOKENS, "valid")
    vocab_size = load_tokenizer(TOKENS / "tokenizer.json").get_vocab_size()
    torch.manual_seed(params.seed)
    shape = ModelConfig.from_depth(
        params.depth, vocab_size, max_len=max(params.length, params.max_len), dropout=params.dropout
    )
    model = Transformer(shape)
    config = PretrainConfig(
        **params.model_dump(exclude={"depth", "max_len", "dropout", "bf16", "attention", "parallel"}),
        bf16=SWITCH[params.bf16],
        attention=None if params.attention == "auto" else params.attention,
    )
    state = ctx.work / "pretrain.safetensors"
    with (
        ctx.out(CURVES) as folder,
        open_curves(folder) as curves,
        ctx.progress(config.places, unit="tokens") as bar,
    ):
        if params.parallel.ranks == 1 or not params.tokens:
            done = pretrain(model, train, valid, config, state=state, progress=bar, curves=curves)
        else:
            done = over_ranks(model, config, params.parallel, state, bar, curves)
    check_finite(model)
    with ctx.out(CHECKPOINT) as folder:
        save_checkpoint(folder, model, Card(model=shape, task="lm"), tokenizer_json)
    metrics = {
        "steps": done.step,
        "tokens": done.tokens,
        "tokens_per_s": round(done.tokens_per_s),
        "parameters": sum(p.numel() for p in model.parameters()),
        "valid_loss": done.last("valid/loss"),
        "train_loss": done.last("train/loss"),
        "computed_in": done.choice,
    }
    key = "random weights" if not done.step else f"loss {metrics['valid_loss']:.3f}, {done.tokens_per_s:,.0f} tokens/s"
    return Result(len(train), 1, key, metrics)


def over_ranks(
    model: Transformer, config: PretrainConfig, parallel: Parallel, state: Path, bar: Progress, curves: Curves
) -> Progressed:
    """The same run by several ranks of this machine; `model` is given what they trained."""
    state.parent.mkdir(parents=True, exist_ok=True)
    path = state.with_name("job.json")
    if (
        not path.exists()
    ):  # a run that goes on keeps its stages: measured anew they might be others, and the last bits too
        layout = layout_of(model, config, parallel)
        job = Job(
            tokens=str(TOKENS),
            state=str(state),
            model=model.config.to_json(),
            config=asdict(config),
            layout=asdict(layout),
            compress=asdict(compress_of(parallel.compress, round(config.warmup * config.steps))),
        )
        job.save(path)

    def on_line(line: str) -> None:
        told = as_told(line)
        if "values" in told:
            curves.log(told["step"], told["values"])
        elif "tokens" in told:
            bar.advance(told["tokens"] - bar.done, told["note"])
        elif "traffic" in told:
            print(f"pretrain: {traffic_line(told['traffic'])}", flush=True)
        elif line.strip():
            print(f"pretrain: {line}", flush=True)

    launch(parallel.ranks, "training.parallel.worker", [str(path)], on_line, parallel.restarts)
    saved = load_state(state)
    if saved is None:
        raise DaymillError(f"{parallel.ranks} ranks ended without a state; see their lines above")
    tensors, meta = saved
    model.load_state_dict(part(tensors, "model"))
    return Progressed(**meta)


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
    return Layout(**known, schedule=found[0].schedule, sizes=found[0].sizes)


def as_told(line: str) -> dict[str, Any]:
    """A line of the first rank; empty where it is something else that a library said."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


if __name__ == "__main__":
    run("pretrain", Pretrain, main)
