"""AdamW with decay groups, and its state as plain tensors by parameter name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from data.errors import DaymillError


def decay_groups(model: nn.Module) -> tuple[list[str], list[str]]:
    """Names of the parameters with and without weight decay: matrices have it; norms, biases and scales do not."""
    with_decay: list[str] = []
    without: list[str] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (with_decay if parameter.ndim >= 2 else without).append(name)
    return with_decay, without


def make_adamw(
    model: nn.Module, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8
) -> torch.optim.AdamW:
    """Fused AdamW; its learning rate is set at every step from the schedule."""
    parameters = dict(model.named_parameters())
    with_decay, without = decay_groups(model)
    groups = [
        {"params": [parameters[name] for name in with_decay], "weight_decay": weight_decay},
        {"params": [parameters[name] for name in without], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, betas=betas, eps=eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """State tensors as "<parameter name>/<state name>": what safetensors can hold."""
    return {
        f"{name}/{key}": value.detach().clone()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave. Raises DaymillError for a tensor that fits no parameter."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, state = key.rpartition("/")
        parameter = parameters.get(name)
        if parameter is None or (value.ndim and value.shape != parameter.shape):
            raise DaymillError(f"optimizer state {key} {tuple(value.shape)} fits no parameter of the model")
        optimizer.state[parameter][state] = value.to(parameter.device, copy=True)
