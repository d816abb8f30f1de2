"""Checkpoints: config.json + model.safetensors + tokenizer.json, written atomically, read without pickle."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from data.errors import DaymillError
from training.config import ModelConfig
from training.model import Classifier, Transformer


@dataclass(frozen=True)
class Card:
    """What config.json says of a checkpoint beside its weights."""

    model: ModelConfig
    task: str  # "lm" | "classify" | "dialogue" | "summarize"
    labels: list[str] = field(default_factory=list)
    positive: str | None = None
    threshold: float = 0.5
    preprocess: dict[str, Any] = field(default_factory=dict)
    quantization: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"model": self.model.to_json()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Card:
        return Card(**data | {"model": ModelConfig.from_json(data["model"])})

    def with_model(self, model: ModelConfig) -> Card:
        return replace(self, model=model)


def save_checkpoint(folder: Path, model: nn.Module, card: Card, tokenizer_json: str) -> None:
    """Write a checkpoint folder beside its place and rename it: a crash leaves the previous one usable."""
    beside = folder.with_name(folder.name + ".writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, beside / "model.safetensors")
    (beside / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (beside / "config.json").write_text(json.dumps(card.to_json(), indent=1) + "\n", encoding="utf-8")
    replace_folder(beside, folder)


def replace_folder(new: Path, place: Path) -> None:
    """Put `new` at `place`; at every instant one complete folder is there or beside it as `.old`."""
    old = place.with_name(place.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        os.rename(place, old)
    os.rename(new, place)
    shutil.rmtree(old, ignore_errors=True)


def load_card(folder: Path) -> Card:
    """The card of a checkpoint folder. Raises DaymillError when the folder or its config.json is not one."""
    path = folder / "config.json"
    try:
        return Card.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DaymillError(f"no checkpoint at {folder}: config.json is missing") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DaymillError(f"{path}: not a Daymill checkpoint ({error})") from error


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint folder by name."""
    try:
        return load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise DaymillError(f"{folder / 'model.safetensors'}: cannot be read ({error})") from error


def build_model(card: Card) -> Transformer | Classifier:
    """The untrained module that a card describes (full precision; see compression.quantize for INT8 cards)."""
    backbone = Transformer(card.model)
    return Classifier(backbone, len(card.labels)) if card.task == "classify" else backbone


def load_checkpoint(folder: Path) -> tuple[Transformer | Classifier, Card]:
    """Model in eval mode and its card. Missing, unexpected or misshapen tensors are an error, never ignored."""
    card = load_card(folder)
    model = build_model(card)
    try:
        model.load_state_dict(load_tensors(folder), strict=True)
    except RuntimeError as error:
        raise DaymillError(f"{folder}: weights do not fit config.json ({error})") from error
    return model.eval(), card
