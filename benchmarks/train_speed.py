"""Training speed: ours beside a plain nanoGPT-style loop and the transformers Trainer, in tokens a second.

6 layers x 384, 256 tokens, vocabulary 8,192, 16 rows, AdamW, next-token loss, two threads, made-up tokens. Each
contestant is a process of its own; they take turns, and medians are compared. Run as `make bench`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.turns import answer, contest, medians

LAYERS, WIDTH, LENGTH, VOCAB, ROWS = 6, 384, 256, 8192, 16
STEPS = 6  # of a turn
ROUNDS = 5
THREADS = 2
OUT = Path("artifacts/bench/train_speed.json")
OURS, PLAIN, TRAINER = "daymill", "nanogpt-style fp32", "transformers trainer bf16"
BARS = {PLAIN: 2.0, TRAINER: 1.1}


def main() -> None:
    figures = contest(Path(__file__), [OURS, PLAIN, TRAINER], ROUNDS)
    middle = medians(figures)
    print(f"{'tokens/s':28} {'median':>9} {'ours is':>9} {'bar':>6}")
    for name, value in middle.items():
        ratio = "" if name == OURS else f"{middle[OURS] / value:.2f}x"
        print(f"{name:28} {value:9,.0f} {ratio:>9} {BARS.get(name, ''):>6}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    ratios = {name: middle[OURS] / middle[name] for name in BARS}
    report = {"tokens_per_s": figures, "median": middle, "ratio": ratios, "bars": BARS}
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def contestant(name: str) -> None:
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    step = {OURS: ours, PLAIN: plain, TRAINER: trainer}[name]()
    step(2)  # warm-up

    answer(lambda: STEPS * ROWS * LENGTH / step(STEPS))


def timed(step: Callable[[], object]) -> Callable[[int], float]:
    """Seconds that a number of steps take."""

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
        return time.perf_counter() - start

    return run


def ours() -> Callable[[int], float]:
    """The pretraining step as the stage runs it: packed rows, probes at start, clipping, schedule, fused AdamW."""
    import numpy as np

    from data.tokens import TokenShard
    from training.config import ModelConfig
    from training.loader import PackedLoader, batch_of
    from training.memory import keep_freed_memory
    from training.model import Transformer
    from training.optim import make_adamw
    from training.pretrain import PretrainConfig, probe, token_loss_sum
    from training.schedule import learning_rate
    from training.step import Trainer

    keep_freed_memory()
    random = np.random.default_rng(0)
    lengths = random.integers(64, 512, size=2000)
    tokens = random.integers(2, VOCAB, size=int(lengths.sum())).astype("<u2")
    shard = TokenShard(tokens, np.concatenate([[0], np.cumsum(lengths)]))
    model = Transformer(ModelConfig.from_depth(LAYERS, VOCAB, max_len=LENGTH))
    assert model.config.width == WIDTH
    config = PretrainConfig(tokens=10**9, length=LENGTH, rows=ROWS)
    loader = PackedLoader(shard, LENGTH, ROWS, seed=0)
    choice = probe(model, batch_of(loader.packed, 0, ROWS), config)
    print(choice, file=sys.stderr, flush=True)
    model.set_attention(choice.attention)
    model.train()
    trainer = Trainer(model, make_adamw(model, 0.1), clip=1.0)
    done = 0

    def step() -> None:
        nonlocal done
        rate = learning_rate(done, config.steps, config.lr, 100, config.floor)
        trainer.step([loader.next()], lambda b: token_loss_sum(model, b, choice.precision), lambda b: b.tokens, rate)
        done += 1

    return timed(step)


def plain() -> Callable[[int], float]:
    """What a reader of nanoGPT would run on a CPU: fp32, fused attention, LayerNorm, GELU, mean loss, clipping."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    heads = 6

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            logits = self.head(self.norm(self.blocks(x)))
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    model = Gpt()
    nn.init.normal_(model.tokens.weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    data = torch.randint(2, VOCAB, (200_000,))

    def step() -> None:
        starts = torch.randint(len(data) - LENGTH - 1, (ROWS,)).tolist()
        ids = torch.stack([data[at : at + LENGTH] for at in starts])
        targets = torch.stack([data[at + 1 : at + 1 + LENGTH] for at in starts])
        loss = model(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return timed(step)


def trainer() -> Callable[[int], float]:
    """The transformers Trainer on a GPT-2 of the same size, bf16; a turn goes on where the one before ended."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=6, use_cache=False)
    )

    class Rows(torch.utils.data.Dataset):
        data = torch.randint(2, VOCAB, (4096, LENGTH))

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
            return {"input_ids": self.data[at], "labels": self.data[at]}

    class Meter(TrainerCallback):
        """Seconds inside steps, so that the Trainer's set-up of a run and its loading of rows do not count."""

        seconds = 0.0
        began = 0.0

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            self.seconds += time.perf_counter() - self.began

    folder = tempfile.mkdtemp()

    def run(count: int) -> float:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=count,
            per_device_train_batch_size=ROWS,
            bf16=True,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            learning_rate=1e-3,
            weight_decay=0.1,
            max_grad_norm=1.0,
        )
        meter = Meter()
        Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[meter]).train()
        return meter.seconds

    return run


if __name__ == "__main__":
    if len(sys.argv) > 1:
        contestant(sys.argv[1])
    else:
        main()
