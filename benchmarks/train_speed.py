"""Training speed and loss: ours beside a nanoGPT-style loop and the transformers Trainer.

256 tokens, heads of 64, vocabulary 8,192, 16 rows, AdamW, next-token loss, two threads, the sample's mails packed.
All train on the same rows with the same rates; each contestant is a process of its own, they take turns, and medians
are compared. The loss is the mean of the last turn, which all begin after as many tokens. The loop as it ships
computes in fp32; the compiled one and the Trainer in whichever of fp32 and bf16 is faster here. Run as `make bench`:
about 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.faster import bf16_is_faster
from benchmarks.mails import mail_shards
from benchmarks.turns import answer, contests

if TYPE_CHECKING:
    from torch import Tensor

    from training.loader import PackedLoader

LENGTH, VOCAB, ROWS, HEAD = 256, 8192, 16, 64
SIZES = {"6 layers x 384": (6, 384), "4 layers x 128": (4, 128)}
STEPS = 8  # of a turn
ROUNDS = 8
THREADS = 2
LR = 1e-3
OUT = Path("artifacts/bench/train_speed.json")
OURS, PLAIN, COMPILED = "daymill", "nanogpt-style, fp32 as it ships", "nanogpt-style, compiled"
TRAINER = "transformers Trainer"
BARS = {
    "6 layers x 384": {PLAIN: 2.5, COMPILED: 1.0, TRAINER: 1.3},
    "4 layers x 128": {PLAIN: 1.0, COMPILED: 1.0, TRAINER: 1.0},
}
LOSS_BAR = 1.01  # times a peer's loss
Turn = Callable[[int], tuple[float, float]]  # seconds of so many steps, mean loss of them


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("contestant", nargs="?")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    given = options.parse_args()
    if given.contestant:
        contestant(*given.contestant.split("|"))
        return
    for width in sorted({width for _, width in SIZES.values()}):
        faster = "bf16" if bf16_is_faster(width) else "fp32, so bars that are bf16's gain are out of reach"
        print(f"width {width}: the Trainer and the compiled loop compute in {faster}")
    report = {}
    for size, bars in BARS.items():
        names = [name for name in (OURS, *bars) if name != COMPILED or shutil.which("c++")]
        told = contests(Path(__file__), [f"{name}|{size}" for name in names], given.rounds)
        speed = {name: median(turn[0] for turn in told[f"{name}|{size}"]) for name in names}
        loss = {name: told[f"{name}|{size}"][-1][1] for name in names}
        print(f"{size:34} {'tokens/s':>9} {'ours is':>9} {'bar':>6} {'loss':>7} {'ours is':>9} {'bar':>6}")
        for name in names:
            ours = f"{speed[OURS] / speed[name]:8.2f}x {bars[name]:6.1f}" if name != OURS else f"{'':16}"
            lost = f"{loss[OURS] / loss[name]:8.3f}x {LOSS_BAR:6.2f}" if name != OURS else ""
            print(f"{name:34} {speed[name]:9,.0f} {ours} {loss[name]:7.3f} {lost}")
        print()
        report[size] = {"turns": told, "tokens_per_s": speed, "loss": loss, "bars": bars}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def contestant(name: str, size: str) -> None:
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    layers, width = SIZES[size]
    turn = {
        OURS: lambda: ours(layers, width),
        PLAIN: lambda: plain(layers, width, improved=False),
        COMPILED: lambda: plain(layers, width, improved=True),
        TRAINER: lambda: trainer(layers, width),
    }[name]()
    turn(2)  # warm-up

    def measured() -> tuple[float, float]:
        seconds, loss = turn(STEPS)
        return STEPS * ROWS * LENGTH / seconds, loss

    answer(measured)


def loader() -> PackedLoader:
    """The same rows in the same order for all."""
    from training.loader import PackedLoader

    return PackedLoader(mail_shards(VOCAB)[0], LENGTH, ROWS, seed=0)


def rate_at(step: int) -> float:
    """Warm-up over 20 steps, then constant: no contestant's rate depends on how long it will run."""
    return LR * min(1.0, (step + 1) / 20)


def ours(layers: int, width: int) -> Turn:
    """The pretraining step as the stage runs it: packed rows, probes at start, clipping, fused AdamW."""
    from training.config import LayerShape, ModelConfig
    from training.knobs import PretrainConfig
    from training.loader import batch_of
    from training.memory import keep_freed_memory
    from training.model import Transformer
    from training.optim import make_adamw
    from training.pretrain import probe
    from training.ranks import token_loss_sum
    from training.step import Trainer

    keep_freed_memory()
    rows = loader()
    ffn = -(-(8 * width // 3) // 32) * 32
    model = Transformer(ModelConfig(VOCAB, width, (LayerShape(width // HEAD, ffn),) * layers, HEAD, LENGTH))
    choice = probe(model, batch_of(rows.packed, 0, ROWS), PretrainConfig(tokens=1, length=LENGTH, rows=ROWS))
    print(choice, file=sys.stderr, flush=True)
    model.set_attention(choice.attention)
    model.train()
    step = Trainer(model, make_adamw(model, 0.1), clip=1.0)
    done = 0

    def run(count: int) -> tuple[float, float]:
        nonlocal done
        lost = 0.0
        start = time.perf_counter()
        for _ in range(count):
            batch = rows.next()
            report = step.step(
                [batch], lambda b: token_loss_sum(model, b, choice.precision), lambda b: b.tokens, rate_at(done)
            )
            done += 1
            lost += report.loss
        return time.perf_counter() - start, lost / count

    return run


def plain(layers: int, width: int, improved: bool) -> Turn:
    """What a reader of nanoGPT would run on a CPU: fused attention, LayerNorm, GELU, mean loss, clipping; in fp32, or
    improved by torch.compile, and by bf16 autocast where that is faster."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    heads = width // HEAD

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(LENGTH, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, VOCAB, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            logits = self.head(self.norm(self.blocks(x)))
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    model = Gpt()
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    forward = torch.compile(model) if improved else model
    mixed = improved and bf16_is_faster(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    rows = loader()
    done = 0

    def run(count: int) -> tuple[float, float]:
        nonlocal done
        lost = 0.0
        start = time.perf_counter()
        for _ in range(count):
            batch = rows.next()
            for group in optimizer.param_groups:
                group["lr"] = rate_at(done)
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                loss = forward(batch.ids, batch.targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            done += 1
            lost += loss.item()
        return time.perf_counter() - start, lost / count

    return run


def trainer(layers: int, width: int) -> Turn:
    """The transformers Trainer on a GPT-2 of the same size, in the faster precision; a turn goes on from the last."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import torch
    from torch.optim.lr_scheduler import LambdaLR
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=LENGTH,
            n_embd=width,
            n_layer=layers,
            n_head=width // HEAD,
            use_cache=False,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )
    rows = loader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = LambdaLR(optimizer, lambda step: rate_at(step) / LR)

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self) -> object:
            while True:
                batch = rows.next()
                # The model's own loss compares each place with the label at the next one.
                labels = torch.cat([batch.targets.new_full((len(batch.ids), 1), -100), batch.targets[:, :-1]], 1)
                for at in range(len(batch.ids)):
                    yield {"input_ids": batch.ids[at], "labels": labels[at]}

    class Meter(TrainerCallback):
        """Seconds inside steps, so that the Trainer's set-up of a run and its loading of rows do not count."""

        seconds = 0.0
        began = 0.0

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            self.seconds += time.perf_counter() - self.began

    class Listening(Trainer):
        losses: list[Tensor]

        def compute_loss(self, *args: object, **kwargs: object) -> Tensor:
            loss: Tensor = super().compute_loss(*args, **kwargs)
            self.losses.append(loss.detach())
            return loss

    folder = tempfile.mkdtemp()

    def run(count: int) -> tuple[float, float]:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=count,
            per_device_train_batch_size=ROWS,
            bf16=bf16_is_faster(width),
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            max_grad_norm=1.0,
        )
        meter = Meter()
        running = Listening(
            model=model, args=arguments, train_dataset=Rows(), callbacks=[meter], optimizers=(optimizer, schedule)
        )
        running.losses = []
        running.train()
        return meter.seconds, float(torch.stack(running.losses).mean())

    return run


if __name__ == "__main__":
    main()
