"""Peaks: found by name without taking one GPU for another, measured where there is no name."""

import pytest
import torch

from training.peak import SIZES, TABLE, peak_of, probe


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "fp8", 1671),
        ("NVIDIA H200", "tf32", 494.7),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA L40S", "fp16", 362),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("NVIDIA GeForce RTX 4090", "fp32", 82.6),
        ("NVIDIA A100-SXM4-40GB", "adaptive", 312),
    ],
)
def test_gpus_are_known_by_name(monkeypatch: pytest.MonkeyPatch, name: str, precision: str, tera: float) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    found = peak_of(torch.device("cuda", 0), precision)
    assert found.flops == pytest.approx(tera * 1e12) and name in found.source


@pytest.mark.parametrize(("name", "precision"), [("NVIDIA A10G", "bf16"), ("Tesla T4", "bf16"), ("Some GPU", "fp16")])
def test_what_the_table_does_not_have_is_measured(monkeypatch: pytest.MonkeyPatch, name: str, precision: str) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr("training.peak.probe", lambda *_: 7e12)
    found = peak_of(torch.device("cuda", 0), precision)
    assert found.flops == 7e12 and "measured" in found.source


def test_bf16_products_are_never_slower_than_fp32_by_the_table() -> None:
    for model, peaks in TABLE.items():
        ladder = [peaks[kind] for kind in ("fp8", "bf16", "tf32", "fp32") if kind in peaks]
        assert ladder == sorted(ladder, reverse=True), model


def test_the_probe_measures_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "cpu", (64,))
    monkeypatch.setattr("training.peak.SECONDS", 0.01)
    before = torch.get_rng_state()
    assert probe(torch.device("cpu"), torch.float32) > 1e6
    assert torch.equal(torch.get_rng_state(), before)
