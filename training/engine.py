"""What a pretraining run is made of, for those that take single steps of it: trials, sweeps, benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from training.knobs import PretrainConfig
from training.loader import TokenBatch
from training.memory import keep_freed_memory
from training.mixed import set_modes
from training.model import Transformer
from training.numerics import Numerics
from training.optim import make_adamw
from training.pretrain import probe, set_training
from training.ranks import token_loss_sum
from training.step import StepReport, Trainer


@dataclass(frozen=True)
class Engine:
    """A trainer and the loss that its run has."""

    trainer: Trainer
    loss_sum: Callable[[TokenBatch], Tensor]

    def step(self, batches: list[TokenBatch], rate: float) -> StepReport:
        return self.trainer.step(batches, self.loss_sum, weight_of, rate)


def weight_of(batch: TokenBatch) -> float:
    return batch.tokens


def open_engine(model: Transformer, config: PretrainConfig, batch: TokenBatch) -> Engine:
    """As `pretrain` begins a run of its own: memory, seed, precision and kernel (measured on `batch`), optimizer."""
    keep_freed_memory()
    torch.manual_seed(config.seed)
    choice = probe(model, batch, config)
    set_modes(model, choice)
    model.set_attention(choice.attention)
    set_training(model, config)
    model.train()
    numerics = Numerics(model, choice)
    trainer = Trainer(model, make_adamw(model, config.weight_decay), config.clip, numerics=numerics)
    return Engine(trainer, lambda given: token_loss_sum(model, given, choice.precision))
