"""The knobs of cleaning in params.yaml are those that the library knows, and all of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from data.quality.rules import QualityConfig
from tasks.clean_params import Clean, Quality
from tasks.machines import Data
from tasks.params import load, plain, read
from tasks.score import Score

PARAMS = Path(__file__).resolve().parents[3] / "params.yaml"


def test_every_rule_has_a_knob() -> None:
    assert set(Quality.model_fields) == {field.name for field in fields(QualityConfig)}
    assert set(plain(read(PARAMS))["clean"]["quality"]) == set(Quality.model_fields)


def test_the_shipped_sections_are_legal() -> None:
    for name, model in {"score": Score, "clean": Clean, "data": Data}.items():
        load(name, model, PARAMS)
