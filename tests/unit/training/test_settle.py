"""An asked-for precision: refused where the device lacks it, fp32 where that is faster, and always said so."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from data.errors import DaymillError
from training.config import ModelConfig
from training.mixed import MixedLinear, Mode, layers_of
from training.model import Transformer
from training.precision import AMBIENT, Choice, Kernel, Precision, check_precision, native
from training.settle import OFFERED, held_to_fp32, seconds_of, settle

CPU = torch.device("cpu")


def model() -> Transformer:
    return Transformer(ModelConfig.from_depth(1, 40, max_len=16))


class Device:
    """A device on which a layer takes a known time in each mode, and a pass the sum of its layers' and its own."""

    def __init__(self, of: Transformer, layer_ms: dict[str, float], rest_ms: dict[str, float]) -> None:
        self.model, self.layer_ms, self.rest_ms = of, layer_ms, rest_ms

    def timer(self, layer: nn.Linear, rows: int, mode: Mode, choice: Choice) -> float:
        wide = "wide " if layer.out_features > layer.in_features else ""
        return self.layer_ms[wide + mode] / 1000

    def run(self, precision: Precision, kernel: Kernel) -> None:
        spent = self.rest_ms[precision]
        for _, layer in layers_of(self.model):
            wide = "wide " if layer.out_features > layer.in_features else ""
            own = layer.mode if isinstance(layer, MixedLinear) else precision
            spent += self.layer_ms[wide + own]
        end = time.thread_time() + spent / 1000
        while time.thread_time() < end:
            pass

    def settle(self, precision: Precision, emulate: bool = False) -> Choice:
        return settle(
            self.model, self.run, 64, 32, precision, "plain", emulate=emulate, timer=self.timer, scaling="row"
        )


def test_layers_whose_shape_is_slower_compute_in_fp32() -> None:
    times = {"fp32": 1.0, "bf16": 0.4, "wide fp32": 1.0, "wide bf16": 1.5}
    of = model()
    choice = Device(of, times, {"fp32": 1.0, "bf16": 1.0}).settle("bf16")
    wide = {name for name, layer in layers_of(of) if layer.out_features > layer.in_features}
    assert wide and choice.precision == "bf16" and choice.layers == {name: ["fp32"] for name in wide}
    assert f"{len(wide)} layers in fp32, the fastest" in choice.reason and "a pass takes" in choice.reason
    assert not any(isinstance(layer, MixedLinear) for _, layer in layers_of(of)), "the probe leaves no trace"


def test_a_mode_that_is_faster_everywhere_is_taken_whole() -> None:
    times = {"fp32": 1.0, "bf16": 0.4, "wide fp32": 1.0, "wide bf16": 0.4}
    choice = Device(model(), times, {"fp32": 1.0, "bf16": 1.0}).settle("bf16")
    assert (choice.precision, choice.layers) == ("bf16", {})


@pytest.mark.parametrize(("layer", "rest"), [(1.5, 0.5), (0.5, 9.0)], ids=["its layers", "what lies between"])
def test_a_mode_that_is_slower_gives_way_to_fp32(layer: float, rest: float) -> None:
    times = {"fp32": 1.0, "fp16": layer, "wide fp32": 1.0, "wide fp16": layer}
    choice = Device(model(), times, {"fp32": 0.5, "fp16": rest}).settle("fp16")
    assert (choice.precision, choice.layers) == ("fp32", {})
    assert "fp16 was asked for and is not faster than fp32 here" in choice.reason


def test_adaptive_is_offered_what_beats_fp32_by_shape() -> None:
    times = {"fp32": 1.0, "bf16": 0.3, "fp16": 2.0, "wide fp32": 1.0, "wide bf16": 0.3, "wide fp16": 0.2}
    of = model()
    choice = Device(of, times, {"fp32": 1.0, "adaptive": 1.0}).settle("adaptive")
    for name, layer in layers_of(of):
        wide = layer.out_features > layer.in_features
        assert choice.layers[name] == (["fp16", "bf16", "fp32"] if wide else ["bf16", "fp32"]), "fp8: not on a CPU"


def test_emulation_measures_nothing_and_offers_everything() -> None:
    device = Device(model(), {}, {})
    assert device.settle("fp8", emulate=True) == Choice(
        "fp8", "plain", "fp8 as configured, whatever it costs, fp8 emulated", scaling="row"
    )
    offered = device.settle("adaptive", emulate=True).layers
    assert set(map(tuple, offered.values())) == {OFFERED["adaptive"]} and len(offered) == 7
    assert "emulated" not in device.settle("bf16", emulate=True).reason


@pytest.mark.parametrize("precision", ["tf32", "fp8"])
def test_what_the_device_lacks_is_refused(precision: Precision) -> None:
    with pytest.raises(DaymillError, match=rf"precision {precision} needs a GPU .* emulate: true"):
        check_precision(precision, CPU, False)
    check_precision(precision, CPU, True)
    check_precision(None, CPU, False)
    assert not native(precision, CPU) and native("fp16", CPU)


def test_the_pass_of_the_guard_computes_in_the_layers_modes() -> None:
    of = model()
    seen: list[set[str]] = []

    def run(precision: Precision, _kernel: Kernel) -> None:
        seen.append({layer.mode if isinstance(layer, MixedLinear) else precision for _, layer in layers_of(of)})

    layers = {name: ["fp32"] for name, _ in list(layers_of(of))[:2]}
    held_to_fp32(of, run, Choice("bf16", "plain", "", layers))
    assert {frozenset(modes) for modes in seen} == {frozenset({"fp32"}), frozenset({"fp32", "bf16"})}


@pytest.mark.parametrize("mode", ["fp32", "bf16", "fp16"])
def test_a_real_layer_is_timed(mode: Mode) -> None:
    layer = nn.Linear(16, 32)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    assert 0 < seconds_of(layer, 8, mode, Choice("bf16" if mode == "fp32" else mode, "plain", "")) < 5
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())
    assert layer.weight.grad is None


def test_every_precision_has_modes_and_an_ambient_dtype() -> None:
    assert OFFERED.keys() == AMBIENT.keys()
