"""Runs in fp16 whose loss scale overflows: skipped steps leave the schedule alone, and a resume replays them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.unit.training.test_classify import CONFIG as CLASSIFY
from tests.unit.training.test_classify import fresh as classifier
from tests.unit.training.test_classify import rows
from tests.unit.training.test_pretrain import CONFIG, STEPS, Killed, assert_equal, fresh, shard
from training import numerics
from training.classify import train_classifier
from training.history import Progressed
from training.loader import PackedLoader
from training.model import Transformer
from training.pretrain import pretrain
from training.scaling import LossScale
from training.schedule import learning_rate
from training.state import load_state, save_state

FP16 = replace(CONFIG, precision="fp16", emulate=True)


@pytest.fixture(autouse=True)
def too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that overflows a few times before it fits, and soon tries to grow again."""
    monkeypatch.setattr(numerics, "LossScale", partial(LossScale, value=2.0**22, growth_steps=7))


def run(state: Path, kill_at: int | None = None) -> tuple[Transformer, Progressed]:
    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    model = fresh()
    return model, pretrain(model, shard(), shard(1), FP16, state=state, on_step=on_step)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Progressed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "LossScale", partial(LossScale, value=2.0**22, growth_steps=7))
        return run(tmp_path_factory.mktemp("whole") / "state")


def test_skipped_steps_leave_schedule_and_counters_alone(whole: tuple[Transformer, Progressed]) -> None:
    _, done = whole
    assert done.skipped >= 2 and done.step == STEPS and done.numerics["updates"] == STEPS
    rates = [values["train/lr"] for _, values in done.points]
    warmup = round(FP16.warmup * STEPS)
    assert rates == [learning_rate(step, STEPS, FP16.lr, warmup, FP16.floor) for step in range(STEPS)]
    assert [step for step, _ in done.points] == list(range(1, STEPS + 1))
    assert done.last("train/loss") < done.points[0][1]["train/loss"]
    loader = PackedLoader(shard(), FP16.length, FP16.rows, FP16.seed)
    for _ in range((STEPS + done.skipped) * FP16.accumulate):
        loader.next()
    assert done.position == loader.position(), "the rows of a skipped step are used up"


@pytest.mark.parametrize("kill_at", [1, 9])
def test_a_cut_run_ends_bit_equal(whole: tuple[Transformer, Progressed], kill_at: int, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at)
    model, done = run(tmp_path / "state")
    assert_equal(whole[0], model)
    assert (done.skipped, done.numerics) == (whole[1].skipped, whole[1].numerics)


@pytest.mark.parametrize("forget", [{"value": 2.0**22}, {"clean": 0}])
def test_a_forgotten_scale_shows(
    whole: tuple[Transformer, Progressed], forget: dict[str, float], tmp_path: Path
) -> None:
    """The control of the test above."""
    with pytest.raises(Killed):
        run(tmp_path / "state", 12)
    saved = load_state(tmp_path / "state")
    assert saved is not None
    saved[1]["numerics"]["loss_scale"] |= forget
    save_state(tmp_path / "state", *saved)
    model, _ = run(tmp_path / "state")
    with pytest.raises(AssertionError, match="differs"):  # other rows were skipped
        assert_equal(whole[0], model)


def test_a_classifier_takes_all_its_updates() -> None:
    config = replace(CLASSIFY, precision="fp16", emulate=True)
    history = train_classifier(classifier(), rows(30), config)
    assert history.skipped >= 2 and history.steps == history.numerics["updates"]
    torch.manual_seed(0)
    plain = train_classifier(classifier(), rows(30), replace(config, precision="fp32"))
    assert plain.skipped == 0 and plain.steps == history.steps
