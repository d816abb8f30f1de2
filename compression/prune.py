"""Structured pruning: which heads and FFN channels stay, and the smaller model with their weights.

Removing a head takes its rows out of q, k and v and its columns out of o; removing a channel takes a row out of gate
and up and a column out of down. The widths of every block are in the config, so a pruned model is an ordinary model:
it trains, saves, loads and exports as any other.

Query heads that share a head of keys and values leave together with it.
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
    """What stays of a block: its number, and indices of its (query) heads and FFN channels, ascending."""

    block: int
    heads: tuple[int, ...]
    ffn: tuple[int, ...]


@dataclass(frozen=True)
class Unit:
    """Something that leaves as a whole: one head or those of one group, or a group of channels of one block."""

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

    Units of all blocks compete in one ranking. Every block keeps at least one group of heads and of channels; a
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


def unit_costs(config: ModelConfig, shape: LayerShape) -> tuple[int, int]:
    """Parameters of one group of heads (a head of keys and values, and its query heads) and of one FFN channel."""
    return 2 * (shape.group + 1) * config.width * config.head_dim, config.ffn_matrices * config.width


def removable(config: ModelConfig, scores: Sequence[Scores]) -> list[Unit]:
    """All units but each block's best heads and best channels; a group holds channels of similar score."""
    units = []
    for layer, (shape, score) in enumerate(zip(config.layers, scores, strict=True)):
        if score.heads.shape != (shape.heads,) or score.ffn.shape != (shape.ffn,):
            raise DaymillError(f"prune: the scores of block {layer} are not those of its {shape}")
        group_cost, channel_cost = unit_costs(config, shape)
        groups = score.heads.unflatten(0, (shape.keys, shape.group)).sum(1)
        for group in groups.argsort(stable=True).tolist()[:-1]:
            members = tuple(range(group * shape.group, (group + 1) * shape.group))
            units.append(Unit(layer, "heads", members, group_cost, float(groups[group])))
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
    layers = tuple(kept_shape(old.layers[keep.block], keep) for keep in kept)
    source = model.state_dict()
    tensors = {name: tensor for name, tensor in source.items() if not name.startswith(BLOCKS)}
    for layer, keep in enumerate(kept):
        shape = old.layers[keep.block]
        rows = rows_of(keep.heads, old.head_dim)
        shared = rows if shape.group == 1 else rows_of(key_heads(shape, keep), old.head_dim)
        channels = torch.tensor(keep.ffn)
        place = f"{BLOCKS}{keep.block}."
        for name, tensor in source.items():
            if name.startswith(place):
                part = name.removeprefix(place)
                tensors[f"{BLOCKS}{layer}.{part}"] = cut(part, tensor, rows, shared, channels)
    # A smaller model that follows a teacher needs no dropout: its noise moves the logits more than a cut does.
    small = Classifier(Transformer(replace(old, layers=layers, dropout=0.0)), model.head.out_features)
    small.load_state_dict(tensors, strict=True)
    return small.to(model.head.weight.device).train(model.training)


def key_heads(shape: LayerShape, keep: Kept) -> tuple[int, ...]:
    """Heads of keys and values that stay. Raises DaymillError where a group would stay in part."""
    if any(
        tuple(range(first, first + shape.group)) != keep.heads[at : at + shape.group] or first % shape.group
        for at, first in enumerate(keep.heads)
        if at % shape.group == 0
    ):
        raise DaymillError(
            f"prune: of block {keep.block} the heads {list(keep.heads)} would stay; expected whole groups of "
            f"{shape.group}, which share a head of keys and values"
        )
    return tuple(head // shape.group for head in keep.heads[:: shape.group])


def kept_shape(shape: LayerShape, keep: Kept) -> LayerShape:
    kv_heads = None if shape.kv_heads is None else len(key_heads(shape, keep))
    return replace(shape, heads=len(keep.heads), ffn=len(keep.ffn), kv_heads=kv_heads)


def rows_of(heads: Sequence[int], head_dim: int) -> Tensor:
    return (torch.tensor(heads)[:, None] * head_dim + torch.arange(head_dim)).flatten()


def cut(part: str, tensor: Tensor, rows: Tensor, shared: Tensor, channels: Tensor) -> Tensor:
    """The tensor `part` of a block without rows or columns of units that leave; `shared` are the rows of k and v."""
    match part.split("."):
        case ["attn", "q", _]:
            return tensor[rows]
        case ["attn", "k" | "v", _]:
            return tensor[shared]
        case ["attn", "o", "weight"]:
            return tensor[:, rows]
        case ["mlp", "gate" | "up", _]:
            return tensor[channels]
        case ["mlp", "down", "weight"]:
            return tensor[:, channels]
    return tensor  # norms and the biases of o and down belong to the residual stream, a theta to its layer
