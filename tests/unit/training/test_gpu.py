"""What only a machine with a GPU can show: training on it is that of the host, and goes on to the bit."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from data.tokens import write_tokens
from tests.unit.training.test_pretrain import CONFIG, Killed, fresh, shard
from training.history import Progressed
from training.knobs import PretrainConfig
from training.model import Classifier, Transformer
from training.parallel.launch import launch
from training.parallel.layout import Layout
from training.parallel.worker import Job
from training.peak import peak_of
from training.predict import predict_logits
from training.pretrain import pretrain
from training.state import load_state, part

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; there is none"),
]
GPU = torch.device("cuda", 0)


def run(state: Path, config: PretrainConfig, device: torch.device, kill_at: int = -1) -> tuple[Transformer, Progressed]:
    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    model = fresh().to(device)
    return model, pretrain(model, shard(), shard(1), config, state=state, on_step=on_step)


def test_a_gpu_learns_what_the_host_learns(tmp_path: Path) -> None:
    config = replace(CONFIG, look_every=4)
    found = []
    for device in (torch.device("cpu"), GPU):
        model = Transformer(replace(fresh().config, dropout=0.0))
        model.load_state_dict(fresh().state_dict())
        done = pretrain(model.to(device), shard(), shard(1), config, state=tmp_path / str(device))
        found.append([values["train/loss"] for _, values in done.points])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert done.last("memory/gpu_peak_mib") > 0 and done.last("train/mfu") > 0


@pytest.mark.parametrize("kill_at", [1, 13])
def test_a_cut_run_on_a_gpu_ends_bit_equal(tmp_path: Path, kill_at: int) -> None:
    """Dropout draws from the GPU's own random state."""
    whole, _ = run(tmp_path / "whole", CONFIG, GPU)
    with pytest.raises(Killed):
        run(tmp_path / "cut", CONFIG, GPU, kill_at)
    torch.cuda.manual_seed(99)
    again, _ = run(tmp_path / "cut", CONFIG, GPU)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_run_begun_on_a_gpu_goes_on_on_the_host(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "state", CONFIG, GPU, 12)
    _, done = run(tmp_path / "state", CONFIG, torch.device("cpu"))
    assert done.step == CONFIG.steps


def test_bf16_and_compiled_blocks_learn_alike(tmp_path: Path) -> None:
    _, eager = run(tmp_path / "eager", replace(CONFIG, precision="bf16"), GPU)
    _, compiled = run(tmp_path / "compiled", replace(CONFIG, precision="bf16", compile=True, look_every=5), GPU)
    assert compiled.last("train/loss") == pytest.approx(eager.last("train/loss"), rel=0.05)
    assert any("layers/grad_norm/0" in values for _, values in compiled.points)


def test_a_classifier_on_a_gpu_answers_as_on_the_host() -> None:
    torch.manual_seed(0)
    model = Classifier(fresh(), 3)
    rows = [torch.arange(2, 2 + length).numpy() for length in (3, 9, 14)]
    ours, theirs = (predict_logits(copy.deepcopy(model).to(device), rows) for device in (torch.device("cpu"), GPU))
    assert abs(ours - theirs).max() < 1e-3


def test_this_gpu_has_a_peak() -> None:
    assert peak_of(GPU, "bf16").flops > 1e12


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("layout", [Layout(data=2), Layout(tensor=2), Layout(data=2, shard=True)], ids=str)
def test_two_gpus_learn_what_one_process_learns(tmp_path: Path, layout: Layout) -> None:
    for name, seed in (("train", 0), ("valid", 1)):
        documents = shard(seed)
        write_tokens(tmp_path, name, (documents[i] for i in range(len(documents))), 40)
    model = fresh()
    shape = replace(model.config, dropout=0.0)
    job = Job(str(tmp_path), str(tmp_path / "state"), shape.to_json(), asdict(CONFIG), asdict(layout))
    job.save(tmp_path / "job.json")
    launch(2, "training.parallel.worker", [str(tmp_path / "job.json")], print, 0)
    saved = load_state(tmp_path / "state")
    assert saved is not None and saved[1]["step"] == CONFIG.steps
    assert all(torch.isfinite(tensor).all() for tensor in part(saved[0], "model").values())
