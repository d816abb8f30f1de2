"""D-SReLU: what its backward pass saves, and what a model learns with it, beside GELU, SwiGLU and squared ReLU.

    python benchmarks/activations.py [numbers | learning] [--short]

1. numbers: zeros, counted operations and seconds of a feed-forward network's backward pass (4,096 tokens, 384 x 1,536,
   75 % zeros) as an element mask, with 60 % of the channels and with 60 % of the tokens skipped. Contestants take
   turns; medians, over the dense pass of the same network. Claim: 60 % less computing in backward passes.
2. learning: validation loss after the same steps, and after the same operations, on the sample mails (`daymill sample
   spam`), three seeds; a decoder of 2 blocks x 128, 120 k tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.utils.flop_counter import FlopCounterMode

from data.tokens import TokenShard, encode, parse_tokenizer, read_tokens, train_tokenizer, window, write_tokens
from training.config import LayerShape, ModelConfig
from training.knobs import PretrainConfig
from training.loader import PackedLoader
from training.model import FeedForward, Transformer
from training.pretrain import pretrain, set_training
from training.ranks import token_loss_sum
from training.sparse import Skip
from training.sparsity import by_layer, flops, seconds, zero_share

CLAIM = -0.60
ROWS, LENGTH, WIDTH, FFN, ZEROS = 16, 256, 384, 1536, 0.75
ROUNDS = 15
SKIPS = {
    "dense, no activation": None,
    "element mask": None,
    "neurons": Skip("neurons", 0.6),
    "tokens": Skip("tokens", 0.6),
}

MAILS, CHARS, VOCAB, DEPTH = 3000, 2048, 2048, 2
SEEDS = (0, 1, 2)
OUT = Path("artifacts/bench/activations.json")


@dataclass(frozen=True)
class Variant:
    """A model to train, and what its backward passes skip."""

    name: str
    model: dict[str, Any]
    run: dict[str, Any]


SPARSE = {"activation": "dsrelu", "theta": 0.5}
VARIANTS = (
    Variant("SwiGLU", {}, {}),
    Variant("GELU", {"activation": "gelu"}, {}),
    Variant("squared ReLU", {"activation": "relu2"}, {}),
    Variant("D-SReLU, scheduled", SPARSE, {}),
    Variant("D-SReLU, theta 0.25", SPARSE | {"theta": 0.25}, {}),
    Variant("D-SReLU, learned", SPARSE | {"learned_theta": True}, {}),
    Variant("D-SReLU, neurons skipped", SPARSE, {"skip": "neurons"}),
    Variant("D-SReLU, tokens skipped", SPARSE, {"skip": "tokens"}),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["numbers", "learning"])
    parser.add_argument("--short", action="store_true", help="to see that it works; its figures say nothing")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    report: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    if given.part != "learning":
        report["numbers"] = numbers(1 if given.short else ROUNDS)
    if given.part != "numbers":
        report["learning"] = learning(8_192 if given.short else 120_000, SEEDS[:1] if given.short else SEEDS)
    if not given.short:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def numbers(rounds: int) -> list[dict[str, Any]]:
    """Zeros, operations and seconds of each way to compute a backward pass."""
    torch.manual_seed(0)
    shape = LayerShape(12, FFN, None, 1.0)
    mlp = FeedForward(ModelConfig(2, WIDTH, (shape,), activation="dsrelu"), shape).train()
    x, grad = torch.randn(ROWS, LENGTH, WIDTH), torch.randn(ROWS, LENGTH, WIDTH)
    for weight in (mlp.up.weight, mlp.down.weight):
        torch.nn.init.normal_(weight, std=0.02)
    with torch.no_grad():
        sample = mlp.up(x[:2]).abs().flatten()
        mlp.theta = float(sample.kthvalue(int(ZEROS * len(sample))).values)
    theta = {name: 0.0 if name.startswith("dense") else mlp.theta for name in SKIPS}
    taken: dict[str, list[float]] = {name: [] for name in SKIPS}
    counted: dict[str, tuple[float, int]] = {}
    for turn in range(rounds + 1):
        for name, skip in SKIPS.items():
            mlp.theta, mlp.skip = theta[name], skip
            if not turn:
                counted[name] = zero_share(mlp, x, grad), flops(mlp, x, grad)
            taken[name].append(seconds(mlp, x, grad))
    dense, *_ = SKIPS
    rows = []
    print(f"\nbackward pass, {ROWS * LENGTH} tokens, {WIDTH} x {FFN}; claim {CLAIM:+.0%}")
    print(f"{'':<24}{'zero gradients':>15}{'operations':>12}{'seconds':>10}{'ms':>9}")
    for name, (zeros, count) in counted.items():
        ms = 1000 * median(taken[name][1:])
        change = count / counted[dense][1] - 1, ms / (1000 * median(taken[dense][1:])) - 1
        rows.append({"what": name, "zeros": zeros, "flops": count, "flops_change": change[0], "time_change": change[1]})
        print(f"{name:<24}{zeros:>15.1%}{change[0]:>+12.0%}{change[1]:>+10.0%}{ms:>9.1f}")
    return rows


def learning(tokens: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Losses of every variant; those that skip also run on until they have computed as much as the first one."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        train, valid, vocab = corpus(Path(name))
        first = step_flops(VARIANTS[0], train, vocab)
        print(f"\nvalidation loss after {tokens:,} tokens of mails, {len(seeds)} seeds: mean (lowest to highest)")
        print(f"{'':<28}{'operations':>12}{'same steps':>24}{'same operations':>24}{'zeros':>8}")
        for variant in VARIANTS:
            share = step_flops(variant, train, vocab) / first
            runs = [trained(variant, train, valid, vocab, tokens, seed, Path(name)) for seed in seeds]
            losses, longer = [run["loss"] for run in runs], None
            if share < 0.98:
                longer = [
                    trained(variant, train, valid, vocab, round(tokens / share), seed, Path(name))["loss"]
                    for seed in seeds
                ]
            zeros = mean(run["zeros"] for run in runs)
            rows.append(
                {"what": variant.name, "operations": share, "losses": losses, "longer": longer, "zeros": zeros}
                | {"thetas": [run["thetas"] for run in runs]}
            )
            print(f"{variant.name:<28}{share:>12.3f}{told(losses):>24}{told(longer or losses):>24}{zeros:>8.1%}")
            sys.stdout.flush()
    return rows


def told(losses: Sequence[float]) -> str:
    return f"{mean(losses):.4f} ({min(losses):.3f}-{max(losses):.3f})"


def corpus(folder: Path) -> tuple[TokenShard, TokenShard, int]:
    """The sample mails as token shards; every tenth mail is for validation."""
    texts = []
    for path in sorted(Path("input/spam").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    if not texts:
        sys.exit("input/spam has no mails: run `daymill sample spam` first")
    texts = texts[:: max(1, len(texts) // MAILS)]
    parts = {"train": [t for at, t in enumerate(texts) if at % 10], "valid": texts[::10]}
    tokenizer = parse_tokenizer(train_tokenizer((window(t, CHARS, 0.5) for t in parts["train"]), VOCAB))
    for name, part in parts.items():
        write_tokens(folder, name, encode(tokenizer, part, CHARS + 1, CHARS, 0.5), tokenizer.get_vocab_size())
    return read_tokens(folder, "train"), read_tokens(folder, "valid"), tokenizer.get_vocab_size()


RUN = PretrainConfig(
    tokens=0,
    length=128,
    rows=8,
    evaluations=1,
    valid_tokens=30_000,
    save_every_s=1e9,
    precision="fp32",
    attention="plain",
    theta_ramp=0.2,
)


def made(variant: Variant, vocab: int, seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(ModelConfig.from_depth(DEPTH, vocab, max_len=RUN.length, **variant.model))


def step_flops(variant: Variant, train: TokenShard, vocab: int) -> int:
    """Counted operations of a step's forward and backward pass."""
    model = made(variant, vocab, 0).train()
    set_training(model, replace(RUN, **variant.run))
    batch = PackedLoader(train, RUN.length, RUN.rows, 0).next()
    with FlopCounterMode(display=False) as counter:
        token_loss_sum(model, batch).backward()
    return int(counter.get_total_flops())


def trained(
    variant: Variant, train: TokenShard, valid: TokenShard, vocab: int, tokens: int, seed: int, folder: Path
) -> dict[str, Any]:
    """Validation loss of a run, the share of zero gradients at its end, and the thetas of its layers."""
    model = made(variant, vocab, seed)
    config = replace(RUN, tokens=tokens, seed=seed, **variant.run)
    state = folder / "state"
    state.unlink(missing_ok=True)
    done = pretrain(model, train, valid, config, state=state)
    batch = PackedLoader(train, RUN.length, RUN.rows, seed).next()
    zeros = mean(layer.zeros for layer in by_layer(model, batch, rounds=1))
    return {"loss": done.last("valid/loss"), "zeros": zeros, "thetas": [block.mlp.threshold for block in model.blocks]}


if __name__ == "__main__":
    main()
