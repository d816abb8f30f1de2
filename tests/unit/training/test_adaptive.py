"""Adaptive precision: what moves a layer and what does not; every decision is an event that can be followed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.errors import DaymillError
from tests.unit.training.test_pretrain import CONFIG, Killed, assert_equal, shard
from training.adaptive import Layer, Look, Rules, objection, relative_update
from training.config import ModelConfig
from training.history import Progressed
from training.mixed import Mode
from training.model import Transformer
from training.numerics import read_record, write_record
from training.optim import make_adamw
from training.pretrain import pretrain
from training.state import load_state, save_state

RULES = Rules()
MOVES = 1.0  # weights that move a lot: every grid is fine enough
MODES: list[str] = ["fp8", "fp16", "bf16", "fp32"]


def look(overflow: float = 0.0, fp16: float = 0.0, fp8: float = 0.0) -> Look:
    """Shares of a million values."""
    return Look(1e6, 1e6, overflow * 1e6, fp16 * 1e6, fp8 * 1e6)


def test_a_look_counts_what_each_mode_would_lose() -> None:
    seen = Look()
    seen.values(torch.tensor([0.0, 1.0, -7e4, float("nan"), 2.0**-24, 2.0**-26, 1e-9]))
    assert (seen.count, seen.nonzero, seen.overflow, seen.flushed_fp16) == (7, 5, 2, 2)
    seen = Look()
    seen.values(torch.tensor([448.0, 2.0**-9, 2.0**-10, 1e-6]))
    assert (seen.overflow, seen.flushed_fp8) == (0, 2)
    kept = torch.tensor([448.0, 2.0**-9, 2.0**-10, 1e-6]).to(torch.float8_e4m3fn)
    assert int((kept.float() == 0).sum()) == 2, "what the look counts is what the cast flushes"
    seen = Look()
    seen.gradients(torch.tensor([57344.0, 2.0**-16, 2.0**-18]))
    assert seen.flushed_fp8 == 1


@pytest.mark.parametrize(
    ("mode", "seen", "moved", "told"),
    [
        ("fp16", look(overflow=1e-3), MOVES, "overflow"),
        ("bf16", look(overflow=1e-3), MOVES, ""),
        ("fp16", look(fp16=0.03), MOVES, "underflow"),
        ("fp16", look(fp16=0.01), MOVES, ""),
        ("fp8", look(fp8=0.03), MOVES, "underflow"),
        ("fp8", look(), 0.06, "move by"),
        ("fp8", look(), 0.07, ""),
        ("bf16", look(), 0.003, "move by"),
        ("fp16", look(), 0.003, ""),
        ("fp32", look(1, 1, 1), 0.0, ""),
    ],
)
def test_what_speaks_against_a_mode(mode: Mode, seen: Look, moved: float, told: str) -> None:
    why = objection(mode, seen, moved, RULES)
    assert (told in why) if told else not why


def changes(signal: list[float], rules: Rules) -> list[str]:
    """Modes that a layer goes through when this share of its values overflows fp16."""
    layer = Layer(["fp16", "bf16", "fp32"], "fp16")
    return [made[0] for share in signal if (made := layer.decide(look(overflow=share), MOVES, rules))]


def test_noise_around_the_limit_changes_nothing_twice() -> None:
    rng = np.random.default_rng(0)
    noisy = list(RULES.overflow * rng.lognormal(0, 1, 500))
    assert len(changes(noisy, RULES)) <= 1
    eager = replace(RULES, looks=1, wait=0, margin=1.0)
    assert len(changes(noisy, eager)) > 100, "the control: without hysteresis it would flip all the time"


def test_a_lasting_change_is_followed_after_a_few_looks_and_back_well_below_the_limit() -> None:
    bad, good, near = 1e-3, 0.0, RULES.overflow / 2
    assert changes([bad] * (RULES.looks - 1), RULES) == []
    assert changes([bad] * RULES.looks, RULES) == ["bf16"]
    assert changes([bad, bad, good, bad, bad], RULES) == [], "looks must be in a row"
    assert changes([bad] * 3 + [near] * 50, RULES) == ["bf16"], "half the limit is not well below it"
    assert changes([bad] * 3 + [good] * (RULES.wait - 1), RULES) == ["bf16"], "it rests after a change"
    assert changes([bad] * 3 + [good] * RULES.wait, RULES) == ["bf16", "fp16"]


def test_without_any_mode_that_fits_the_last_is_taken() -> None:
    layer = Layer(["fp8", "bf16"], "fp8")
    assert [layer.decide(look(), 0.0, RULES) for _ in range(3)][-1] == (
        "bf16",
        "its weights move by 0.0e+00 between looks",
    )


def test_the_relative_update_is_what_adam_does() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 4, bias=False)
    optimizer = make_adamw(layer, 0.0)
    for _ in range(3):
        layer.weight.grad = torch.randn(4, 8)
        optimizer.param_groups[0]["lr"] = 0.01
        before = layer.weight.detach().clone()
        assert relative_update(layer.weight, make_adamw(layer, 0.0)) == float("inf")
        optimizer.step()
    moved = (layer.weight.detach() - before).norm() / layer.weight.detach().norm()
    assert relative_update(layer.weight, optimizer) == pytest.approx(float(moved), rel=1e-4)


# A run whose weights move so little that layers leave fp8 at the third look.
SLOW = replace(CONFIG, tokens=45 * 32, accumulate=1, lr=1e-4, precision="adaptive", emulate=True, warmup=0.0)


def run(state: Path, kill_at: int | None = None, **more: Any) -> tuple[Transformer, Progressed, list[str]]:
    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_depth(1, 40, max_len=16))
    lines: list[str] = []
    config = replace(SLOW, **more)
    done = pretrain(model, shard(), shard(1), config, state=state, on_step=on_step, note=lines.append)
    return model, done, lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Progressed, list[str]]:
    return run(tmp_path_factory.mktemp("whole") / "state")


def events(done: Progressed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done.numerics["adaptive"]["events"]
    return found


def test_decisions_are_told_and_kept(whole: tuple[Transformer, Progressed, list[str]]) -> None:
    model, done, lines = whole
    first = events(done)[0]
    assert (first["step"], first["from"]) == (30, "fp8") and "move by" in first["why"]
    assert len(events(done)) == 7 and len(lines) == 8, "every layer of the block, and how the run computes"
    assert f"step 30: {first['layer']} from fp8 to {first['to']}" in lines[1]
    assert type(model.blocks[0].attn.q) is torch.nn.Linear, "the model that comes out is an ordinary one"


@pytest.mark.parametrize("kill_at", [25, 36])
def test_a_cut_run_decides_and_ends_alike(
    whole: tuple[Transformer, Progressed, list[str]], kill_at: int, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at)
    model, done, _ = run(tmp_path / "state")
    assert_equal(whole[0], model)
    assert done.numerics == whole[1].numerics


def forget_counts(layer: dict[str, Any]) -> None:
    layer["asked"] = 0


def forget_mode(layer: dict[str, Any]) -> None:
    layer["mode"] = "fp8"


@pytest.mark.parametrize(("kill_at", "forget"), [(25, forget_counts), (36, forget_mode)])
def test_what_is_forgotten_is_missed(
    whole: tuple[Transformer, Progressed, list[str]],
    kill_at: int,
    forget: Callable[[dict[str, Any]], None],
    tmp_path: Path,
) -> None:
    """The control of the test above."""
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at)
    saved = load_state(tmp_path / "state")
    assert saved is not None
    for layer in saved[1]["numerics"]["adaptive"]["layers"].values():
        forget(layer)
    save_state(tmp_path / "state", *saved)
    model, _, _ = run(tmp_path / "state")
    with pytest.raises(AssertionError, match="differs"):
        assert_equal(whole[0], model)


def test_a_run_is_replayed_from_its_record(
    whole: tuple[Transformer, Progressed, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, done, _ = whole
    record = tmp_path / "precision.json"
    write_record(record, done.choice, done.numerics)
    monkeypatch.setattr(Look, "take", None)  # nothing is measured
    # Whatever the configuration says: the record says what is computed.
    again, redone, _ = run(tmp_path / "again", replay=str(record), precision=None, emulate=False)
    assert_equal(model, again)
    assert events(redone) == events(done)

    told = json.loads(record.read_text())
    record.write_text(json.dumps(told | {"events": told["events"][1:]}))
    other, _, _ = run(tmp_path / "other", replay=str(record))
    with pytest.raises(AssertionError, match="differs"):
        assert_equal(model, other)


@pytest.mark.parametrize("text", ["", "{}", '{"choice": {"precision": "fp32"}, "events": []}', '{"choice": 3}', "[]"])
def test_what_is_no_record_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    model = Transformer(ModelConfig.from_depth(1, 40, max_len=16))
    for name in ("r.json", "missing.json"):
        with pytest.raises(DaymillError, match="no record of the precision of a run of this model"):
            read_record(tmp_path / name, model)


def test_a_record_of_another_model_or_with_other_modes_is_an_error(
    whole: tuple[Transformer, Progressed, list[str]], tmp_path: Path
) -> None:
    model, done, _ = whole
    path = tmp_path / "r.json"
    write_record(path, done.choice, done.numerics)
    read_record(path, model)
    with pytest.raises(DaymillError, match="not the model's 14"):
        read_record(path, Transformer(ModelConfig.from_depth(2, 40, max_len=16)))
    path.write_text(path.read_text().replace('"to": "', '"to": "fp'))
    with pytest.raises(DaymillError, match="a mode that it was not offered"):
        read_record(path, model)
    write_record(path, done.choice | {"layers": {name: ["fp4"] for name in done.choice["layers"]}}, {})
    with pytest.raises(DaymillError, match="fp4"):
        read_record(path, model)
