"""Useful tokens a second at the mails' lengths: packed rows beside the transformers Trainer's padded batches.

Next-token training of a 4-layer model of width 256 (heads of 64) on the sample's mails of up to 512 tokens, AdamW,
two threads. A useful token is one that is a target; padding is none. The Trainer has its rows at random, and grouped
by length, in the precision that is faster for it here. Each contestant is a process of its own; they take turns;
medians. About 15 minutes (`daymill sample spam` first).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.faster import bf16_is_faster
from benchmarks.mails import joined, mail_tokens
from benchmarks.turns import answer, contests

LAYERS, WIDTH, HEAD, LENGTH, VOCAB, ROWS = 4, 256, 64, 512, 8192, 8
STEPS = 6  # of a turn
ROUNDS = 6
THREADS = 2
OUT = Path("artifacts/bench/mails_speed.json")
OURS, RANDOM, GROUPED = "daymill, packed", "Trainer, random batches", "Trainer, grouped by length"
BARS = {RANDOM: 2.5}
Turn = Callable[[int], tuple[float, int, int]]  # seconds, useful tokens, places of so many steps


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("contestant", nargs="?")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    given = options.parse_args()
    if given.contestant:
        contestant(given.contestant)
        return
    names = [OURS, RANDOM, GROUPED]
    told = contests(Path(__file__), names, given.rounds)
    speed = {name: median(turn[0] for turn in told[name]) for name in names}
    useful = {name: sum(turn[1] for turn in told[name]) / len(told[name]) for name in names}
    print(f"{'':28} {'useful tokens/s':>16} {'useful places':>14} {'ours is':>9} {'bar':>5}")
    for name in names:
        ratio = f"{speed[OURS] / speed[name]:8.2f}x" if name != OURS else ""
        print(f"{name:28} {speed[name]:16,.0f} {useful[name]:14.1%} {ratio:>9} {BARS.get(name, ''):>5}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"turns": told, "median": speed, "useful": useful, "bars": BARS}, indent=1) + "\n")


def contestant(name: str) -> None:
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    turn = ours() if name == OURS else trainer(grouped=name == GROUPED)
    turn(2)  # warm-up

    def measured() -> tuple[float, float]:
        seconds, tokens, places = turn(STEPS)
        return tokens / seconds, tokens / places

    answer(measured)


def ours() -> Turn:
    from training.config import LayerShape, ModelConfig
    from training.knobs import PretrainConfig
    from training.loader import PackedLoader, batch_of
    from training.memory import keep_freed_memory
    from training.model import Transformer
    from training.optim import make_adamw
    from training.pretrain import probe
    from training.ranks import token_loss_sum
    from training.step import Trainer

    keep_freed_memory()
    rows = PackedLoader(joined(mail_tokens(VOCAB, LENGTH)), LENGTH, ROWS, seed=0)
    ffn = -(-(8 * WIDTH // 3) // 32) * 32
    model = Transformer(ModelConfig(VOCAB, WIDTH, (LayerShape(WIDTH // HEAD, ffn),) * LAYERS, HEAD, LENGTH))
    choice = probe(model, batch_of(rows.packed, 0, ROWS), PretrainConfig(tokens=1, length=LENGTH, rows=ROWS))
    model.set_attention(choice.attention)
    model.train()
    step = Trainer(model, make_adamw(model, 0.1), clip=1.0)

    def run(count: int) -> tuple[float, int, int]:
        useful = places = 0
        start = time.perf_counter()
        for _ in range(count):
            batch = rows.next()
            step.step([batch], lambda b: token_loss_sum(model, b, choice.precision), lambda b: b.tokens, 1e-4)
            useful += batch.tokens
            places += batch.ids.numel()
        return time.perf_counter() - start, useful, places

    return run


def trainer(grouped: bool) -> Turn:
    """The transformers Trainer on a GPT-2 of the same size; a turn goes on where the one before ended."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=WIDTH // HEAD, use_cache=False
        )
    )
    mails = [torch.from_numpy(row).long() for row in mail_tokens(VOCAB, LENGTH) if len(row) > 1]
    rows = [{"input_ids": row, "labels": row, "length": len(row)} for row in mails]
    counted = [0, 0]

    def padded(batch: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row["input_ids"]) for row in batch], batch_first=True)
        counted[0] += int(mask.sum()) - len(batch)
        counted[1] += mask.numel()
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    class Meter(TrainerCallback):
        """Seconds inside steps, so that the Trainer's set-up of a run and its loading of rows do not count."""

        seconds = 0.0
        began = 0.0

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            self.seconds += time.perf_counter() - self.began

    folder, turns = tempfile.mkdtemp(), 0

    def run(count: int) -> tuple[float, int, int]:
        nonlocal turns
        turns += 1
        counted[:] = [0, 0]
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=count,
            per_device_train_batch_size=ROWS,
            use_cpu=True,
            bf16=bf16_is_faster(WIDTH),
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=turns,
            train_sampling_strategy="group_by_length" if grouped else "random",
            length_column_name="length",
            remove_unused_columns=False,
        )
        meter = Meter()
        Trainer(model=model, args=arguments, train_dataset=rows, data_collator=padded, callbacks=[meter]).train()
        return meter.seconds, counted[0], counted[1]

    return run


if __name__ == "__main__":
    main()
