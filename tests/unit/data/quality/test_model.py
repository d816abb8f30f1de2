"""The learned quality model: it tells noise from text, the same every time, and noise does not vouch for itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from data.errors import DaymillError
from data.quality import model as modeling
from data.quality.bins import BINS, Bins
from data.quality.calibration import Calibration, noise_among, threshold_at, validation_of
from data.quality.grams import batch_of, document_counts, looks, rows
from data.quality.measures import measure_batch
from data.quality.model import QualityModel, train_quality
from data.quality.weak import KINDS, corrupted, weak_examples
from data.samples import noise
from data.samples.grammar import note

SOUND = 400


def sound(seed: int, count: int = SOUND) -> list[str]:
    rng = random.Random(seed)
    return [note(rng, rng.choice(("fraud", "ok"))) for _ in range(count)]


@pytest.fixture(scope="module")
def learned() -> QualityModel:
    known = weak_examples(sound(0), [], seed=0)
    return train_quality(known.good, known.bad, 0, known.parents)


def test_sound_text_is_told_from_noise_of_its_own_and_other_kinds(learned: QualityModel) -> None:
    good = learned.score(sound(1, 200))
    assert (good < 0.08).mean() <= 0.02
    rng = random.Random(2)
    for kind in ("scanned", "syllables", "log_lines", "program", "backwards", "many_scripts", "page_menu"):
        bad = learned.score([noise.spoil(text, kind, rng) for text in sound(3, 30)])
        assert np.median(bad) < 0.08, kind
        assert np.median(bad) < np.quantile(good, 0.01), kind


def test_noise_among_the_good_examples_is_set_aside_and_does_not_vouch_for_itself() -> None:
    rng = random.Random(4)
    kinds = ("scanned", "syllables", "log_lines", "program", "backwards", "many_scripts", "page_menu", "unfilled")
    noisy = [noise.spoil(text, kinds[at % len(kinds)], rng) for at, text in enumerate(sound(5, 40))]
    good = [*sound(6, 250), *noisy]
    known = weak_examples(good, [], seed=0)
    model = train_quality(known.good, known.bad, 0, known.parents)
    assert (model.score(noisy) < 0.2).mean() > 0.8
    assert (model.score(sound(6, 250)) < 0.2).mean() <= 0.02
    assert 30 <= model.validation["set_aside"] <= 60
    assert 0.02 < model.validation["noise_among_good"] < 0.2
    # the control: examples that people chose are all believed, and then it does vouch
    believing = train_quality(known.good, known.bad, 0)
    assert believing.validation["set_aside"] == 0
    assert (believing.score(noisy) < 0.2).mean() < 0.5


def test_words_count_where_people_gave_the_examples() -> None:
    good = [f"The invoice of customer number {n} was paid on time." for n in range(60)]
    bad = [f"The invoice of customer number {n} was lost in space." for n in range(60)]
    model = train_quality(good, bad, 0)
    asked = [f"The invoice of customer number 77 was {what}." for what in ("paid on time", "lost in space")]
    assert model.score(asked)[0] > 0.9 > 0.1 > model.score(asked)[1]


def test_the_same_model_and_scores_every_time_and_from_disk(learned: QualityModel, tmp_path: Path) -> None:
    known = weak_examples(sound(0), [], seed=0)
    train_quality(known.good, known.bad, 0, known.parents).save(tmp_path / "again")
    learned.save(tmp_path / "once")
    for name in ("model.npz", "model.json"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    texts = [*sound(7, 30), "", "x", "今天天气很好，我们一起去公园散步吧。", *corrupted(sound(8, 20), 3)]
    scores = learned.score(texts)
    judged = ~np.isnan(scores)
    assert scores.dtype == np.float32 and ((scores[judged] >= 0) & (scores[judged] <= 1)).all()
    assert judged[:30].all() and judged[32] and not judged[30:32].any(), "too short to judge"
    loaded = QualityModel.load(tmp_path / "once")
    assert np.array_equal(loaded.score(texts), scores, equal_nan=True)
    assert np.array_equal(loaded.score(texts, measure_batch(texts)), scores, equal_nan=True)
    assert np.array_equal(loaded.score(texts[::-1])[::-1], scores, equal_nan=True)
    assert np.array_equal(np.concatenate([loaded.score([text]) for text in texts]), scores, equal_nan=True)
    assert len(loaded.score([])) == 0


def test_what_is_no_model_of_this_version_is_refused(learned: QualityModel, tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match="holds no quality model"):
        QualityModel.load(tmp_path)
    learned.save(tmp_path)
    told = json.loads((tmp_path / "model.json").read_text()) | {"measures": ["chars"]}
    (tmp_path / "model.json").write_text(json.dumps(told))
    with pytest.raises(DaymillError, match="its measures are another version's"):
        QualityModel.load(tmp_path)


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(DaymillError, match="19 good and 50 bad examples"):
        train_quality(sound(0, 19), sound(1, 50), 0)


def test_validation_tells_how_far_it_may_be_believed(learned: QualityModel) -> None:
    told = learned.validation
    assert (told["good"], told["bad"]) == (SOUND, SOUND)
    assert told["auc"] > 0.95 and told["average_precision"] > 0.95 and told["ece"] < 0.08
    assert sum(row["examples"] for row in told["reliability"]) == 2 * SOUND
    assert [row["good_lost"] for row in told["thresholds"]] == sorted(row["good_lost"] for row in told["thresholds"])
    json.dumps(told)


def test_copies_and_their_origins_fall_into_one_fold() -> None:
    good = sound(9, 50)
    known = weak_examples(good, ["refused " * 3], seed=1)
    fold = modeling.folds_of(known.good, known.bad, known.parents, 1)
    assert known.parents == [-1, *range(50)]
    assert (fold[51:] == fold[:50]).all()
    assert modeling.fold_of("One  TEXT", 1) == modeling.fold_of("one text", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_spoils_any_text(kind: str) -> None:
    texts = [*sound(10, 5), "x", "今天天气很好，我们一起去公园散步吧。", "two words", "\ud800 lone", "  "]
    spoiled = corrupted(texts, 0, [kind])
    assert spoiled == corrupted(texts, 0, [kind])
    assert corrupted(texts[:1], 0, [kind])[0] != texts[0]


@pytest.mark.parametrize("kind", noise.KINDS)
def test_every_other_kind_of_noise_spoils(kind: str) -> None:
    for text in (*sound(11, 3), "x", ""):
        assert isinstance(noise.spoil(text, kind, random.Random(0)), str)
    assert noise.spoil(sound(11, 1)[0], kind, random.Random(0)) != sound(11, 1)[0]


def test_bins_hold_their_quantiles_and_what_is_missing() -> None:
    column = np.arange(1000, dtype=np.float32)
    bins = Bins.of(np.column_stack([column, np.full(1000, np.nan, np.float32)]))
    places = bins.places(np.array([[-5, np.nan], [500, 1], [5000, 2]], np.float32))
    assert places[:, 0].tolist() == [0, 9, BINS - 2]
    assert places[:, 1].tolist() == [2 * BINS - 1, BINS, BINS]
    weights = np.arange(2 * BINS, dtype=np.float32)
    numbers = np.array([[500, 1], [1, np.nan]], np.float32)
    assert np.allclose(bins.one_hot(numbers) @ weights, bins.add_up(numbers, weights))


def test_a_calibration_rises_and_keeps_its_word() -> None:
    rng = np.random.default_rng(0)
    margins = rng.normal(size=20_000)
    truth = (rng.random(20_000) < 1 / (1 + np.exp(-2 * margins))).astype(np.int64)
    line = Calibration.of(margins, truth)
    asked = np.array([-1.0, 0.0, 1.0])
    assert np.allclose(line.probability(asked), 1 / (1 + np.exp(-2 * asked)), atol=0.04)
    assert (np.diff(line.points[0]) > 0).all() and (np.diff(line.points[1]) >= 0).all()
    told = validation_of(margins, truth, np.arange(20_000) % 5, 0.0)
    assert told["ece"] < 0.02
    at = threshold_at(line.probability(margins), truth, 0.01)
    assert at["good_lost"] == pytest.approx(0.01, abs=0.002)


def test_noise_among_good_examples_is_estimated_and_taken_out_of_the_odds() -> None:
    rng = np.random.default_rng(1)
    margins = np.concatenate([rng.normal(3, 0.5, 900), rng.normal(-3, 1, 100), rng.normal(-3, 1, 1000)])
    truth = np.repeat([1, 0], [1000, 1000])
    noisy = noise_among(margins, truth)
    assert noisy == pytest.approx(0.1, abs=0.03)
    low = np.array([-3.0])
    assert Calibration.of(margins, truth).probability(low)[0] == pytest.approx(0.09, abs=0.04)
    assert Calibration.of(margins, truth, noisy).probability(low)[0] < 0.03


def test_items_are_counted_once_a_text_and_weigh_as_in_their_matrix() -> None:
    texts = [*sound(12, 20), "", "aa", "今天天气很好"]
    batch = batch_of(texts)
    counts = document_counts(batch)
    ends, numbers, values = rows(batch)
    assert counts.sum() == len(numbers)
    assert counts.max() <= len(texts)
    weights = np.random.default_rng(0).normal(size=len(counts)).astype(np.float32)
    shares = np.log2((counts + 0.5) / (len(texts) + 1)).astype(np.float32)
    looked = looks(batch, shares, weights)
    for text in range(len(texts)):
        inside = slice(ends[text], ends[text + 1])
        assert looked[text, -1] == pytest.approx(float(weights[numbers[inside]] @ values[inside]), abs=1e-3)
    assert (looked[:20, 6:10] == 0).all()
    strange = looks(batch_of(["qzx wvj kqq zzxv"]), shares, weights)[0]
    assert strange[8] == 1 and strange[4] < looked[0, 4]
