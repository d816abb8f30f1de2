"""The resume state: one file, replaced atomically, never mistaken for a fresh start."""

import os
from pathlib import Path

import pytest
import torch

from data.errors import DaymillError
from training.config import ModelConfig
from training.model import Transformer
from training.optim import make_adamw
from training.state import load_state, part, restore_training, save_state, training_tensors


def test_tensors_and_meta_come_back(tmp_path: Path) -> None:
    save_state(
        tmp_path / "deep" / "s", {"a": torch.arange(3), "b/c": torch.ones(2).bfloat16()}, {"step": 7, "x": [1.5]}
    )
    saved = load_state(tmp_path / "deep" / "s")
    assert saved is not None
    tensors, meta = saved
    assert meta == {"step": 7, "x": [1.5]}
    assert torch.equal(tensors["a"], torch.arange(3)) and tensors["b/c"].dtype == torch.bfloat16
    assert list(part(tensors, "b")) == ["c"]


def test_no_file_is_a_fresh_start_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    state = tmp_path / "s"
    assert load_state(state) is None
    save_state(state, {"a": torch.ones(100)}, {})
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(DaymillError, match="cannot be resumed from"):
        load_state(state)


@pytest.mark.parametrize("crash", ["while writing", "before renaming"])
def test_a_crash_during_a_save_leaves_the_previous_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    state = tmp_path / "s"
    save_state(state, {"a": torch.zeros(2)}, {"step": 1})
    if crash == "while writing":
        monkeypatch.setattr("training.state.save_file", lambda _, path, metadata: path.write_bytes(b"half") and 1 / 0)
    else:
        monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_state(state, {"a": torch.ones(2)}, {"step": 2})
    monkeypatch.undo()
    saved = load_state(state)
    assert saved is not None and saved[1] == {"step": 1} and (saved[0]["a"] == 0).all()
    save_state(state, {"a": torch.ones(2)}, {"step": 2})
    assert (load_state(state) or ({}, {}))[1] == {"step": 2}


def test_training_goes_on_with_weights_moments_and_randomness() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_depth(1, 20))
    optimizer = make_adamw(model, 0.1)
    model.hidden(torch.ones(1, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    tensors = {name: tensor.clone() for name, tensor in training_tensors(model, optimizer).items()}
    expected = torch.rand(3)
    twin = Transformer(ModelConfig.from_depth(1, 20))
    other = make_adamw(twin, 0.1)
    restore_training(twin, other, tensors)
    assert torch.equal(torch.rand(3), expected)
    assert training_tensors(twin, other).keys() == tensors.keys()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))


def test_a_state_of_another_model_is_an_error() -> None:
    model = Transformer(ModelConfig.from_depth(1, 20))
    tensors = training_tensors(model, make_adamw(model, 0.1))
    other = Transformer(ModelConfig.from_depth(1, 21))
    with pytest.raises(DaymillError, match="does not fit this model"):
        restore_training(other, make_adamw(other, 0.1), tensors)
