"""Which device a process trains on, and what follows from it, as far as a machine without a GPU can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from data.errors import DaymillError
from tests.unit.training.test_layers import CONFIG, TOKENS
from training.clock import Waiting
from training.device import backend, best_device, compile_blocks, here, moved, rank_device
from training.model import Transformer
from training.optim import make_adamw
from training.precision import KERNELS
from training.state import RNG_OF_GPU, training_tensors

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("rank", "ranks", "gpus", "expected"),
    [(0, 1, 0, "cpu"), (1, 2, 2, "cuda:1"), (3, 4, 8, "cuda:3"), (0, 2, 1, "cpu"), (1, 2, 1, "cpu")],
    ids=["no gpu", "a gpu each", "more gpus than ranks", "too few, first", "too few, second"],
)
def test_ranks_have_a_gpu_each_or_none_has_one(rank: int, ranks: int, gpus: int, expected: str) -> None:
    assert rank_device(rank, ranks, gpus) == torch.device(expected)


def test_gpus_talk_by_nccl_and_what_stays_on_the_host_by_gloo() -> None:
    assert backend(CPU) == "gloo"
    assert backend(torch.device("cuda", 0)) == "cpu:gloo,cuda:nccl"


def test_a_process_takes_the_gpu_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert best_device() == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert best_device() == torch.device("cuda", 2)


def test_a_rank_looks_up_its_gpu_in_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert here() == torch.device("cuda", 1) and taken == [torch.device("cuda", 1)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert here() == CPU and len(taken) == 1


def test_on_the_host_nothing_is_copied() -> None:
    tensor = torch.ones(2)
    assert moved(tensor, CPU) is tensor


def test_compiling_without_a_gpu_is_refused() -> None:
    with pytest.raises(DaymillError, match=r"pretrain\.compile is on and there is no GPU"):
        compile_blocks(nn.ModuleList(), CPU)


def test_a_state_of_the_host_has_no_random_state_of_a_gpu() -> None:
    model = Transformer(CONFIG)
    assert RNG_OF_GPU not in training_tensors(model, make_adamw(model, 0.1))


def test_the_model_makes_its_tensors_where_its_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, which refuses tensors of the host as a GPU does; it knows no autocast, which is left out."""
    monkeypatch.setattr("training.model.compute_dtype", lambda x: x.dtype)
    monkeypatch.setattr("training.model.softmax", lambda scores: scores.softmax(-1))
    for position in ("rotary", "learned"):
        model = Transformer(replace(CONFIG, position=position)).to("meta")
        ids = torch.zeros(2, TOKENS, dtype=torch.long, device="meta")
        for kernel in KERNELS:
            model.set_attention(kernel)
            for mask, docs in ((None, ids), (ids, None)):
                assert model.hidden(ids, mask, docs).device.type == "meta"
        with pytest.raises(RuntimeError, match="device"):
            model.hidden(ids, None, torch.zeros(2, TOKENS, dtype=torch.long))


def test_time_on_a_gpu_is_taken_from_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        now = 0.0

        def __init__(self, enable_timing: bool = False) -> None:
            assert enable_timing

        def record(self) -> None:
            Event.now += 1500.0
            self.at = Event.now

        def elapsed_time(self, other: Event) -> float:
            return other.at - self.at

    synchronized: list[None] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: synchronized.append(None))
    waiting = Waiting()
    waiting.on_gpu = True
    with waiting, waiting:
        pass
    waiting.add(5.0)
    assert waiting.seconds() == 1.5 == waiting.seconds() and len(synchronized) == 1
