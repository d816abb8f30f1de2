"""Any layout of ranks gives the losses, gradients, norms and weights of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from data.errors import DaymillError
from tests.unit.training.parallel import worlds
from tests.unit.training.parallel.models import LENGTH, batches, tiny
from training.config import LayerShape
from training.loader import TokenBatch, share
from training.optim import make_adamw
from training.parallel.layout import Layout, Mesh, local
from training.parallel.orders import Schedule
from training.parallel.tensor import pieces_of
from training.parallel.whole import restore_part, whole_tensors
from training.ranks import token_loss_sum
from training.sparse import Skip
from training.state import load_state, restore_training, save_state, training_tensors
from training.step import Trainer
from training.world import Alone

STEPS = 3
MICRO, ROWS = 4, 6  # the second, fourth ... micro-batch has fewer rows: pipelines fill them up


def step_batches(step: int) -> list[TokenBatch]:
    found = batches(MICRO, ROWS, seed=step)
    return [share(batch, 0, 2) if number % 2 else batch for number, batch in enumerate(found)]


def train(rank: int, layout: Layout, dtype: torch.dtype, more: dict[str, Any]) -> dict[str, Any]:
    """A few steps: gradients of the last one, weights after it, and reports."""
    skip, smoothing = more.get("skip"), more.get("smoothing", 0.0)
    model = tiny(4, dtype=dtype, **shape_of(more))
    world = Mesh(model, layout, LENGTH, bucket_bytes=6_000) if layout.ranks > 1 else Alone()
    model.smoothing = smoothing
    model.set_skip(Skip("neurons", skip) if skip else None)
    trainer = Trainer(model, make_adamw(model, 0.1), 0.05, world)
    reports = []
    for step in range(STEPS):
        parts = step_batches(step)
        if isinstance(world, Mesh):
            parts = [share(batch, world.rank, world.ranks) for batch in parts]
        report = trainer.step(parts, lambda batch: token_loss_sum(model, batch), lambda batch: batch.tokens, 1e-3)
        reports.append([report.loss_sum, report.weight, report.grad_norm])
    named = world.named if isinstance(world, Mesh) else list(model.named_parameters())
    return {
        "gradients": {name: full(p.grad) for name, p in named},
        "weights": {name: full(p.detach()) for name, p in named},
        "reports": reports,
        "data": world.rank if isinstance(world, Mesh) else 0,
        "tensor": dist.get_rank(world.tensors) if isinstance(world, Mesh) else 0,
    }


def shape_of(more: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in more.items() if key not in ("skip", "smoothing")}


def full(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole(told: list[dict[str, Any]], what: str, layout: Layout, more: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The whole model's tensors, of the ranks' parts. Ranks that have the same part must agree to the bit."""
    found: dict[str, torch.Tensor] = {}
    config = tiny(4, **shape_of(more)).config
    pieces = [pieces_of(config, rank, layout.tensor) if layout.tensor > 1 else {} for rank in range(layout.tensor)]
    parts: dict[tuple[str, int], torch.Tensor] = {}
    for rank in told:
        for name, tensor in rank[what].items():
            at = (name, rank["tensor"] if name in pieces[0] else 0)
            if at in parts:
                assert torch.equal(parts[at], tensor), f"{name}: ranks with the same part differ"
            parts[at] = tensor
    for (name, number), tensor in sorted(parts.items(), key=lambda item: item[0][1]):
        if name in pieces[0]:
            dim = pieces[number][name].dim
            found[name] = torch.cat([found[name], tensor], dim) if name in found else tensor
        else:
            found[name] = tensor
    return found


def check(layout: Layout, folder: Path, dtype: torch.dtype, relative: float, **more: Any) -> None:
    told = worlds.run(layout.ranks, folder, train, layout, dtype, more)
    alone = train(0, Layout(), dtype, more)
    for rank in told:
        for ours, theirs in zip(rank["reports"], alone["reports"], strict=True):
            assert ours == pytest.approx(theirs, rel=10 * relative)
    for what in ("gradients", "weights"):
        ours, theirs = whole(told, what, layout, more), alone[what]
        assert ours.keys() == theirs.keys()
        largest = max(float(tensor.abs().max()) for tensor in theirs.values())
        for name, tensor in theirs.items():
            scale = max(float(tensor.abs().max()), 1e-6 * largest)  # a key's bias has no gradient but for rounding
            assert float((ours[name] - tensor).abs().max()) <= relative * scale, f"{what} of {name}"


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"norm": "layer", "activation": "gelu", "bias": True, "position": "learned"}])
@pytest.mark.parametrize("ranks", [2, 3])
def test_tensor_parallel(ranks: int, more: dict[str, Any], tmp_path: Path) -> None:
    check(Layout(tensor=ranks), tmp_path, torch.float64, 1e-10, **more)


# Keys shared by two query heads, thetas that are learned, smoothed targets, an output embedding of its own.
SPARSE = {
    "shape": LayerShape(6, 48, 3, 0.02),
    "activation": "dsrelu",
    "learned_theta": True,
    "smoothing": 0.1,
    "tied": False,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "more"),
    [
        (Layout(tensor=3), SPARSE),
        (Layout(tensor=2, pipeline=2, sizes=(1, 3)), SPARSE),
        (Layout(tensor=2), SPARSE | {"tied": True, "activation": "relu2", "learned_theta": False}),
        (Layout(data=2, shard=True), SPARSE | {"skip": 0.6}),
        (Layout(data=2, pipeline=2, sizes=(2, 2)), SPARSE | {"skip": 0.6, "tied": True}),
    ],
    ids=["tensor", "tensor x pipeline", "squared", "sharded, skipping", "data x pipeline, skipping"],
)
def test_what_a_model_may_have_is_the_same_on_ranks(layout: Layout, more: dict[str, Any], tmp_path: Path) -> None:
    check(layout, tmp_path, torch.float64, 1e-10, **more)


def refused(_: int) -> str:
    model = tiny(1, **shape_of(SPARSE))
    Mesh(model, Layout(tensor=2), LENGTH)
    try:
        model.set_skip(Skip("neurons", 0.6))
    except DaymillError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_tensor_parallel_ranks_do_not_skip(tmp_path: Path) -> None:
    assert all("not for tensor-parallel ranks" in told for told in worlds.run(2, tmp_path, refused))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "ranks", "sizes"),
    [
        ("gpipe", 2, (1, 3)),
        ("1f1b", 2, (2, 2)),
        ("1f1b", 4, (1, 1, 1, 1)),
        ("interleaved", 2, (1, 1, 1, 1)),
        ("zero-bubble", 2, (3, 1)),
        ("zero-bubble-v", 2, (1, 1, 1, 1)),
    ],
)
def test_pipelines(schedule: Schedule, ranks: int, sizes: tuple[int, ...], tmp_path: Path) -> None:
    check(Layout(pipeline=ranks, schedule=schedule, sizes=sizes), tmp_path, torch.float64, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        Layout(data=2, tensor=2),
        Layout(data=2, pipeline=2, sizes=(2, 2)),
        Layout(tensor=2, pipeline=2, sizes=(1, 3)),
        Layout(data=2, tensor=2, pipeline=2, sizes=(2, 2)),
        Layout(data=2, shard=True),
        Layout(data=2, tensor=2, shard=True),
        Layout(data=2, pipeline=2, sizes=(2, 2), shard=True),
        Layout(data=2, pipeline=2, schedule="interleaved", sizes=(1, 1, 1, 1), shard=True),
    ],
    ids=[
        "data x tensor",
        "data x pipeline",
        "tensor x pipeline",
        "all three",
        "sharded",
        "sharded x tensor",
        "sharded x pipeline",
        "sharded x interleaved",
    ],
)
def test_combinations(layout: Layout, tmp_path: Path) -> None:
    check(layout, tmp_path, torch.float32, 1e-4)


def held(_: int, layout: Layout) -> dict[str, int]:
    """Bytes of parameters, gradients and moments that a rank holds after a step."""
    model = tiny(4)
    world = Mesh(model, layout, LENGTH) if layout.ranks > 1 else Alone()
    optimizer = make_adamw(model, 0.1)
    parts = step_batches(0)
    if isinstance(world, Mesh):
        parts = [share(batch, world.rank, world.ranks) for batch in parts]
    Trainer(model, optimizer, 1.0, world).step(
        parts, lambda batch: token_loss_sum(model, batch), lambda batch: batch.tokens, 1e-3
    )
    tensors = [tensor for p in model.parameters() for tensor in (p, p.grad, *optimizer.state[p].values())]
    return {"bytes": sum(local(tensor).nbytes for tensor in tensors if tensor is not None)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "share_of_one"),
    [(Layout(tensor=2), 0.52), (Layout(data=4, shard=True), 0.30), (Layout(data=2, tensor=2, shard=True), 0.30)],
    ids=["tensor 2", "sharded 4", "sharded 2 x tensor 2"],
)
def test_a_rank_holds_its_share(layout: Layout, share_of_one: float, tmp_path: Path) -> None:
    alone = held(0, Layout())["bytes"]
    told = [rank["bytes"] for rank in worlds.run(layout.ranks, tmp_path, held, layout)]
    print(f"{layout}: {max(told) / alone:.1%} of one process")
    assert max(told) <= share_of_one * alone


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DaymillError, match="makes 8 ranks; 4 were started"):
        Layout(2, 2, 2, sizes=(1, 1)).check(4)
    with pytest.raises(DaymillError, match="3 pipeline stages do not spread over 2"):
        Layout(pipeline=2, sizes=(1, 1, 1)).check(2)
    with pytest.raises(DaymillError, match="silently wrong gradients"):
        Layout(2, 1, 2, "zero-bubble", (1, 1), True).check(4)
    with pytest.raises(DaymillError, match="4 heads and 48 channels; 5 tensor-parallel ranks"):
        pieces_of(tiny(1).config, 0, 5)
    with pytest.raises(DaymillError, match="6 heads on 3 key-value heads and 48 channels; 4 tensor-parallel ranks"):
        pieces_of(tiny(1, **shape_of(SPARSE)).config, 0, 4)


def go_on(rank: int, layout: Layout, state: Path, first: int, steps: int) -> dict[str, Any]:
    """Steps `first` and following, from the state where there is one; rank 0 saves."""
    model = tiny(4, seed=0 if first == 0 else 7, dtype=torch.float64)
    world = Mesh(model, layout, LENGTH) if layout.ranks > 1 else Alone()
    optimizer = make_adamw(model, 0.1)
    saved = load_state(state)
    if saved is not None and isinstance(world, Mesh):
        restore_part(world, optimizer, saved[0])
    elif saved is not None:
        restore_training(model, optimizer, saved[0] | {"rng": torch.get_rng_state()})
    trainer = Trainer(model, optimizer, 0.05, world)
    losses = []
    for step in range(first, first + steps):
        parts = step_batches(step)
        if isinstance(world, Mesh):
            parts = [share(batch, world.rank, world.ranks) for batch in parts]
        report = trainer.step(parts, lambda batch: token_loss_sum(model, batch), lambda batch: batch.tokens, 1e-3)
        losses.append(report.loss)
    whole_model = whole_tensors(world, optimizer) if isinstance(world, Mesh) else training_tensors(model, optimizer)
    if rank == 0:
        save_state(state, whole_model, {"step": first + steps})
    return {"losses": losses}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Layout(tensor=2), Layout(pipeline=2, schedule="zero-bubble", sizes=(3, 1))),
        (Layout(data=2, pipeline=2, sizes=(2, 2)), Layout()),
        (Layout(), Layout(tensor=2, pipeline=2, sizes=(1, 3))),
        (Layout(data=2, shard=True), Layout(data=2, tensor=2, shard=True)),
    ],
    ids=["tensor to pipeline", "four to one", "one to four", "sharded to sharded and split"],
)
def test_a_run_goes_on_under_another_layout(before: Layout, after: Layout, tmp_path: Path) -> None:
    """Two steps compared, not one: a moment that was silently not loaded shows in the second."""
    state = tmp_path / "state.safetensors"
    for number, (layout, first, steps) in enumerate(((before, 0, 3), (after, 3, 3))):
        if layout.ranks > 1:
            told = worlds.run(layout.ranks, tmp_path / f"part{number}", go_on, layout, state, first, steps)
            losses = told[0]["losses"]
        else:
            losses = go_on(0, layout, state, first, steps)["losses"]
    alone = tmp_path / "alone.safetensors"
    expected = go_on(0, Layout(), alone, 0, 6)["losses"]
    assert losses == pytest.approx(expected[3:], rel=1e-10)
    ours, theirs = load_state(state), load_state(alone)
    assert ours is not None and theirs is not None
    for name, tensor in theirs[0].items():
        if name != "rng":
            scale = float(tensor.abs().max()) or 1.0
            assert float((ours[0][name] - tensor).abs().max()) <= 1e-10 * scale, name
