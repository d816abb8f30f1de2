"""Structured pruning: which heads and FFN channels stay, and the smaller model with their weights.

Removing a head takes its rows out of q, k and v and its columns out of o; removing a channel takes a row out of gate
and up and a column out of down. The widths of every block are in the config, so a pruned model is an ordinary model:
it trains, saves, loads and exports as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from compression.importance import Batch, Scores, taylor_scores
from data.errors import DaymillError
from training.config import LayerShape, ModelConfig
from training.model import Classifier, Transformer
from training.precision import AMBIENT, Precision

BLOCKS = "backbone.blocks."
CHANNELS = 32  # channels leave in groups of 32, so that products stay multiples of the vector registers


@dataclass(frozen=True)
class Kept:
    """What stays of a block: its number, and indices of its heads and FFN channels, ascending."""

    block: int
    heads: tuple[int, ...]
    ffn: tuple[int, ...]


@dataclass(frozen=True)
class Unit:
    """Something that leaves as a whole: one head, or a group of channels of one block."""

    layer: int
    kind: str  # "heads" | "ffn"
    members: tuple[int, ...]
    parameters: int
    score: float


Chooser = Callable[[Classifier, float], list[Kept]]  # model, prunable parameters that may stay -> what stays


def by_importance(batches: Sequence[Batch], precision: Precision = "fp32") -> Chooser:
    """Our way to choose: Taylor scores of the model as it is now, over these rows."""
    dtype = AMBIENT[precision] or torch.float32
    return lambda model, parameters: choose(model.backbone.config, taylor_scores(model, batches, dtype), parameters)


def kept_share(config: ModelConfig, unpruned: ModelConfig) -> float:
    """Prunable parameters of `config` over those of `unpruned`."""
    return config.prunable_parameters() / unpruned.prunable_parameters()


def step_shares(target: float, steps: int) -> list[float]:
    """Kept share after each of `steps` pruning steps: a geometric path, each step removing the same fraction."""
    if not 0 < target <= 1 or steps < 1:
        raise DaymillError(f"target share {target} in {steps} steps; expected 0 < target <= 1 and a step or more")
    return [target ** ((step + 1) / steps) for step in range(steps)]


def choose(config: ModelConfig, scores: Sequence[Scores], parameters: float) -> list[Kept]:
    """What stays when units leave, least score per parameter first, until at most `parameters` prunable ones do.

    Units of all blocks compete in one ranking. Every block keeps at least one head and one group of channels; a
    budget below that is a DaymillError.
    """
    gone: list[dict[str, set[int]]] = [{"heads": set(), "ffn": set()} for _ in config.layers]
    left = config.prunable_parameters()
    for unit in sorted(removable(config, scores), key=lambda u: (u.score / u.parameters, u.layer, u.kind)):
        if left <= parameters:
            break
        gone[unit.layer][unit.kind].update(unit.members)
        left -= unit.parameters
    if left > parameters:
        raise DaymillError(
            f"prune: one head and {CHANNELS} channels a block are {left:,} parameters, more than the target of "
            f"{int(parameters):,}; raise prune.target_share or train a larger model"
        )
    return [
        Kept(
            block,
            tuple(head for head in range(shape.heads) if head not in out["heads"]),
            tuple(channel for channel in range(shape.ffn) if channel not in out["ffn"]),
        )
        for block, (shape, out) in enumerate(zip(config.layers, gone))
    ]


def unit_costs(config: ModelConfig) -> tuple[int, int]:
    """Parameters of one head and of one FFN channel."""
    return 4 * config.width * config.head_dim, (3 if config.activation == "swiglu" else 2) * config.width


def removable(config: ModelConfig, scores: Sequence[Scores]) -> list[Unit]:
    """All units but each block's best head and best channels; a group holds channels of similar score."""
    head_cost, channel_cost = unit_costs(config)
    units = []
    for layer, (shape, score) in enumerate(zip(config.layers, scores, strict=True)):
        if score.heads.shape != (shape.heads,) or score.ffn.shape != (shape.ffn,):
            raise DaymillError(f"prune: the scores of block {layer} are not those of its {shape}")
        for head in score.heads.argsort(stable=True).tolist()[:-1]:
            units.append(Unit(layer, "heads", (head,), head_cost, float(score.heads[head])))
        order = score.ffn.argsort(stable=True).tolist()
        odd = shape.ffn % CHANNELS  # leaves first, alone, so that what stays is a multiple of the group
        starts = ([0] if odd else []) + list(range(odd, shape.ffn, CHANNELS))
        for start, end in pairwise(starts):
            members = tuple(order[start:end])
            total = float(score.ffn[list(members)].sum())
            units.append(Unit(layer, "ffn", members, channel_cost * len(members), total))
    return units


def shrink(model: Classifier, kept: Sequence[Kept]) -> Classifier:
    """A new model of the blocks, heads and channels that `kept` names; its weights are bit-equal copies."""
    old = model.backbone.config
    if not kept:
        raise DaymillError("prune: no block would stay")
    layers = tuple(LayerShape(len(keep.heads), len(keep.ffn)) for keep in kept)
    source = model.state_dict()
    tensors = {name: tensor for name, tensor in source.items() if not name.startswith(BLOCKS)}
    for layer, keep in enumerate(kept):
        heads = torch.tensor(keep.heads)
        rows = (heads[:, None] * old.head_dim + torch.arange(old.head_dim)).flatten()
        channels = torch.tensor(keep.ffn)
        place = f"{BLOCKS}{keep.block}."
        for name, tensor in source.items():
            if name.startswith(place):
                part = name.removeprefix(place)
                tensors[f"{BLOCKS}{layer}.{part}"] = cut(part, tensor, rows, channels)
    # A smaller model that follows a teacher needs no dropout: its noise moves the logits more than a cut does.
    small = Classifier(Transformer(replace(old, layers=layers, dropout=0.0)), model.head.out_features)
    small.load_state_dict(tensors, strict=True)
    return small.to(model.head.weight.device).train(model.training)


def cut(part: str, tensor: Tensor, rows: Tensor, channels: Tensor) -> Tensor:
    """The tensor `part` of a block without the rows or columns of the units that leave."""
    match part.split("."):
        case ["attn", "q" | "k" | "v", _]:
            return tensor[rows]
        case ["attn", "o", "weight"]:
            return tensor[:, rows]
        case ["mlp", "gate" | "up", _]:
            return tensor[channels]
        case ["mlp", "down", "weight"]:
            return tensor[:, channels]
    return tensor  # norms, and the biases of o and down, belong to the residual stream
