"""The page of a run: everything that was told is on it, and what went wrong is marked."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

from training.curve_charts import MOST_COLUMNS, MOST_POINTS, columns, heat, lines, shares, thinned
from training.page import page


def looks(step: int, dead: float = 0.0, update: float = 1e-3) -> dict[str, float]:
    values = {"train/loss": 5 / step, "train/lr": 1e-3, "train/mfu": 0.4, "time/compute": 1.0}
    for block in (0, 10, 2):
        values |= {f"layers/out_std/{block}": 0.1 * step, f"layers/ffn_dead/{block}": dead}
        values |= {f"layers/update_ratio/{block}": update, f"layers/grad_norm/{block}": 1.0}
    return values | {"layers/grad_norm/rest": 2.0, "layers/update_ratio/rest": update}


def test_a_run_is_all_on_its_page() -> None:
    html = page("A <run>", [(step, looks(step)) for step in (1, 2, 3)], {"wall": 10.0, "step": 8.0}, {"steps": "3"})
    assert "A &lt;run&gt;" in html and "<script" not in html and "http" not in html.replace("http-equiv", "")
    for caption in ("Loss", "Learning rate", "Model FLOPs utilization", "Where the time went", "Dead channels"):
        assert caption in html
    assert "compute 80.0%" in html and "other 20.0%" in html
    assert re.findall(r"<tr><td>(\w+)</td>", html) == ["0", "2", "10", "rest"], "blocks by number, the rest last"
    assert "Loss scale" not in html, "what was not told has no empty chart"
    assert 'class="bad"' not in html


def test_what_is_wrong_is_marked() -> None:
    for values in (looks(1, dead=0.9), looks(1, update=1e-7), looks(1) | {"layers/out_std/0": math.nan}):
        assert 'class="bad"' in page("", [(1, values)], {}, {})


def test_a_run_without_steps_or_looks_has_a_page() -> None:
    assert "No step was trained" in page("Nothing", [], {}, {})
    plain = page("Plain", [(1, {"train/loss": 2.0})], {"wall": 1.0, "step": 1.0}, {})
    assert "Loss" in plain and "Layers" not in plain


def test_pictures_are_well_formed_and_small() -> None:
    many = [(float(step), math.sin(step / 50)) for step in range(5000)]
    for picture in (lines({"a<b": many}), heat({"0": many, "1": many[:10]}), heat({"0": [(1.0, math.nan)]}, True)):
        ElementTree.fromstring(picture)
        assert len(picture) < 40_000
    assert lines({"none": [(1.0, math.nan)]}) == "" and heat({}) == ""
    assert "width:25.000%" in shares({"a": 0.25, "b": 0.75})


def test_thinning_keeps_the_mean_and_maps_keep_spikes() -> None:
    points = [(float(step), 100.0 if step == 777 else 1.0) for step in range(1000)]
    assert len(thinned(points)) == MOST_POINTS and len(columns(points)) == MOST_COLUMNS
    assert max(y for _, y in columns(points)) == 100
    assert thinned(points[:5]) == points[:5]
    spoiled = [(x, math.nan if x == 500 else y) for x, y in points]
    assert any(math.isnan(y) for _, y in columns(spoiled)), "what is not finite is not averaged away"


def test_a_page_is_a_file_that_stands_alone(tmp_path: Path) -> None:
    html = page("Run", [(1, looks(1))], {"wall": 1.0, "step": 1.0}, {})
    assert not re.findall(r'(?:src|href)="', html)
