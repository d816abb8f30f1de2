"""A pipeline whose ranks turn out uneven: which blocks move, and a run that goes on under the new split."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.tokens import read_tokens, write_tokens
from training.config import LayerShape, ModelConfig
from training.knobs import PretrainConfig
from training.model import Transformer
from training.parallel.launch import launch
from training.parallel.layout import Layout
from training.parallel.partition import balanced, part_costs
from training.parallel.rebalance import WORTH, resplit
from training.parallel.worker import Job
from training.pretrain import pretrain
from training.state import load_state, part


def test_blocks_leave_a_slow_device_and_are_cheap_again_elsewhere() -> None:
    split = resplit([4, 4], [1.0] * 8, [4.0, 12.0], [1.0, 3.0], 1.25)
    assert split is not None
    assert split.sizes == (6, 2) and split.costs == pytest.approx([1.0] * 8)
    assert split.imbalance == 1.5 and split.gain == 2.0
    assert "4 + 4 blocks become 6 + 2" in split.told([4, 4])


def test_blocks_that_became_costly_stay_costly_elsewhere() -> None:
    split = resplit([4, 4], [1.0] * 8, [4.0, 12.0], [1.0, 1.0], 1.25)
    assert split is not None
    assert split.costs == pytest.approx([1.0] * 4 + [3.0] * 4)
    assert split.sizes == (5, 3) and split.gain == pytest.approx(12 / 9)


def test_a_loss_that_costs_as_much_as_blocks_keeps_its_share() -> None:
    split = resplit([2, 2], [1.0, 1.0, 1.0, 3.0], [2.0, 4.0], [1.0, 1.0], 1.25)
    assert split is not None and split.sizes == (3, 1) and split.gain == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("sizes", "busy", "reference", "limit"),
    [
        ([4, 4], [10.0, 10.0], [1.0, 1.0], 1.25),  # even
        ([4, 4], [10.0, 12.0], [1.0, 1.2], 1.25),  # within the limit
        ([1, 1], [10.0, 30.0], [1.0, 3.0], 1.25),  # uneven, but nothing can move
        ([4, 4], [0.0, 0.0], [1.0, 1.0], 1.25),  # nothing was watched
    ],
)
def test_what_is_not_worth_it_stays(sizes: list[int], busy: list[float], reference: list[float], limit: float) -> None:
    assert resplit(sizes, [1.0] * sum(sizes), busy, reference, limit) is None


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.lists(st.floats(0.5, 4), min_size=4, max_size=4),
    st.lists(st.floats(1, 4), min_size=4, max_size=4),
)
def test_a_new_split_is_the_best_for_what_was_measured(
    sizes: list[int], drift: list[float], devices: list[float]
) -> None:
    devices, costs = devices[: len(sizes)], [1.0] * sum(sizes)
    busy = [size * drift[at] * devices[at] for at, size in enumerate(sizes)]
    split = resplit(sizes, costs, busy, devices, 1.0)
    if split is None:
        return
    fastest = min(devices)
    slowness = [each / fastest for each in devices]
    # what the blocks take on the fastest device gives the measured times where they are
    assert part_costs(split.costs, sizes, slowness) == pytest.approx(busy)
    assert max(part_costs(split.costs, split.sizes, slowness)) * split.gain == pytest.approx(max(busy))
    assert split.gain >= WORTH and sum(split.sizes) == sum(sizes) and min(split.sizes) >= 1
    assert split.sizes == tuple(balanced(split.costs, len(sizes), slowness))


@pytest.mark.slow
def test_a_run_whose_second_rank_is_slow_goes_on_under_a_new_split(tmp_path: Path) -> None:
    shape = ModelConfig(60, 64, (LayerShape(4, 96),) * 6, head_dim=16, max_len=32, dropout=0.0)
    config = PretrainConfig(
        tokens=16 * 16 * 32,
        length=32,
        rows=4,
        accumulate=4,
        evaluations=1,
        valid_tokens=0,
        save_every_s=0.1,
        save_share=0.0,
        precision="fp32",
        attention="plain",
    )
    rng = np.random.default_rng(0)
    documents = [(np.cumsum(rng.random(n) < 0.9) % 60).astype(np.uint16) for n in rng.integers(2, 60, 100)]
    for name in ("train", "valid"):
        write_tokens(tmp_path, name, documents, 60)
    layout = Layout(pipeline=2, sizes=(3, 3), costs=(1.0,) * 6)
    job = Job(str(tmp_path), str(tmp_path / "state"), shape.to_json(), asdict(config), asdict(layout), rebalance=1.25)
    job.save(tmp_path / "job.json")
    said: list[str] = []
    launch(2, "tests.unit.training.parallel.slow_worker", [str(tmp_path / "job.json")], said.append, restarts=0)
    assert any(line.startswith("stages of 3 + 3 blocks become") for line in said), said
    sizes = json.loads((tmp_path / "job.json").read_text())["layout"]["sizes"]
    assert sizes[0] > sizes[1], "the slow rank has fewer blocks"

    torch.manual_seed(config.seed)
    alone = Transformer(shape)
    shards = [read_tokens(tmp_path, name) for name in ("train", "valid")]
    pretrain(alone, *shards, replace(config, save_every_s=1e9), state=tmp_path / "alone")
    saved = load_state(tmp_path / "state")
    assert saved is not None and saved[1]["step"] == config.steps
    steps = [json.loads(line)["step"] for line in said if line.startswith('{"step"')]
    assert steps[-1] == config.steps
    for name, tensor in part(saved[0], "model").items():
        assert torch.allclose(tensor, alone.state_dict()[name], atol=2e-5), name
