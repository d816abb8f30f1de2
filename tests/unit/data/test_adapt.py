"""Domain adaptation: finds the target's records, earns its place on held-out examples, or stays off."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.adapt.domain import AdaptConfig, Adapted, adapt
from data.adapt.features import Words, ngram_rows, tokens_of
from data.adapt.gain import bounds, exact_bounds, resampled
from data.adapt.perplexity import ORDERS, STRENGTHS, gather, losses, token_counts
from data.adapt.ratios import calibrate, chosen, effective_size, weights_of
from data.adapt.sampling import folds_of, gumbel, sample_pool, target_examples
from data.adapt.target import load_target
from data.errors import DaymillError

SHARED = [f"common{i}" for i in range(60)]
NEAR = [f"kidney{i}" for i in range(40)]
FAR = [f"engine{i}" for i in range(40)]


def texts(count: int, own: list[str], seed: int, length: int = 30) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(own if draw.random() < 0.4 else SHARED) for _ in range(length)) for _ in range(count)]


POOL = texts(240, FAR, 1) + texts(60, NEAR, 2)
IS_NEAR = np.arange(300) >= 240
TARGET = texts(30, NEAR, 3)


@pytest.fixture(scope="module", params=["discriminator", "ngram"])
def adapted(request: pytest.FixtureRequest) -> Adapted:
    return adapt(POOL, TARGET, AdaptConfig(method=request.param))


def test_the_target_s_records_weigh_more_and_perplexity_falls(adapted: Adapted) -> None:
    gain = adapted.report["gain"]
    assert adapted.on and adapted.keep.all()
    assert adapted.weights[IS_NEAR].min() > adapted.weights[~IS_NEAR].max()
    assert gain["metric"] == "perplexity" and 0 < gain["low"] <= gain["difference"] <= gain["high"]
    assert gain["difference"] == pytest.approx(gain["before"] - gain["after"], abs=1e-5)


def test_weights_have_mean_1_and_a_bounded_effective_size(adapted: Adapted) -> None:
    assert adapted.weights.dtype == np.float32 and len(adapted.weights) == 300
    assert float(adapted.weights.mean()) == pytest.approx(1, abs=1e-5)
    assert 300 / 20 <= adapted.report["effective_sample_size"] < 150


def test_the_report_is_json(adapted: Adapted) -> None:
    report = json.loads(json.dumps(adapted.report))
    assert {"method", "mode", "target", "gain", "effective_sample_size", "on", "reason"} <= set(report)
    assert report["target"] == 30 and report["pool"] == 300


@pytest.mark.parametrize("gumbel_noise", [False, True])
def test_select_keeps_a_share_with_the_target_s_records_in_it(gumbel_noise: bool) -> None:
    found = adapt(POOL, TARGET, AdaptConfig("ngram", "select", keep_share=0.2, gumbel=gumbel_noise))
    assert found.report["kept"] == found.keep.sum() == 60
    assert found.keep[IS_NEAR].mean() > (0.6 if gumbel_noise else 0.95)
    assert (found.weights == 1).all()


@pytest.mark.parametrize(("method", "seed"), [("ngram", 0), ("ngram", 1), ("ngram", 2), ("discriminator", 3)])
def test_a_target_of_the_pool_s_own_kind_switches_it_off(method: str, seed: int) -> None:
    mixed = texts(160, FAR, 10 + seed) + texts(160, NEAR, 20 + seed)
    random.Random(seed).shuffle(mixed)
    found = adapt(mixed[40:], mixed[:40], AdaptConfig(method=method, seed=seed))  # type: ignore[arg-type]
    assert not found.on and not found.report["on"]
    assert (found.weights == 1).all() and found.keep.all()
    assert found.report["effective_sample_size"] == 280 and "not above zero" in found.report["reason"]
    assert len(found.log_ratios) == 280 and found.report["gain"]["low"] <= 0


def test_labelled_targets_are_told_by_accuracy() -> None:
    """In the target's domain the same words mean the other label, so records from there teach better."""

    def labelled(own: list[str], seed: int, count: int, flip: bool) -> tuple[list[str], list[str]]:
        draw = random.Random(seed)
        truth = [draw.random() < 0.5 for _ in range(count)]
        words = texts(count, own, seed)
        return [f"{t} {'up' if y != flip else 'down'} {'up' if y != flip else 'down'}" for t, y in zip(words, truth)], [
            "yes" if y else "no" for y in truth
        ]

    far, far_labels = labelled(FAR, 5, 150, flip=False)
    near, near_labels = labelled(NEAR, 6, 75, flip=True)
    target, labels = labelled(NEAR, 7, 60, flip=True)
    found = adapt(far + near, target, AdaptConfig("ngram"), labels=labels, pool_labels=far_labels + near_labels)
    gain = found.report["gain"]
    assert gain["metric"] == "accuracy" and gain["examples"] == 60
    assert found.on and gain["after"] > gain["before"] + 0.2 and gain["low"] > 0
    # negative control: labels of chance teach nobody
    random.Random(1).shuffle(labels)
    assert not adapt(far + near, target, AdaptConfig("ngram"), labels=labels, pool_labels=far_labels + near_labels).on


def test_accuracy_without_labels_is_an_error() -> None:
    with pytest.raises(DaymillError, match="20 target examples with labels"):
        adapt(POOL, TARGET, AdaptConfig(metric="accuracy"))


def test_order_and_batches_change_nothing() -> None:
    order = list(range(300))
    random.Random(4).shuffle(order)
    config = AdaptConfig("ngram", sample=200, seed=7)
    one = adapt(POOL, TARGET, config)
    shuffled = [POOL[i] for i in order]
    parts = [shuffled[:1], shuffled[1:130], [], shuffled[130:]]
    two = adapt(lambda: iter(parts), TARGET[::-1], config)
    assert one.on
    assert (one.weights[order] == two.weights).all() and (one.log_ratios[order] == two.log_ratios).all()
    assert one.report == two.report


def test_target_examples_in_the_pool_do_not_teach_their_own_evaluation() -> None:
    """Copies of the target in a pool of the same kind would look like a gain, were they learned from."""
    mixed = texts(200, NEAR, 30)
    copies = [text.upper() for text in mixed[:30] for _ in range(3)]
    found = adapt(mixed[30:] + copies, mixed[:30], AdaptConfig("ngram"))
    assert found.report["target_in_pool"] == 90 and found.report["learned_from"] == 170
    assert not found.on


@pytest.mark.parametrize("target", [[], TARGET[:19], [*TARGET[:19], TARGET[0].upper(), " "]])
def test_too_few_distinct_examples_are_an_error(target: list[str]) -> None:
    with pytest.raises(DaymillError, match=r"distinct target examples .* at least 20"):
        adapt(POOL, target)


def test_more_than_200_examples_are_sampled_by_content() -> None:
    many = texts(260, NEAR, 8)
    one, two = target_examples(many, None, 0), target_examples(many[::-1], None, 0)
    assert one.texts == two.texts and len(one.texts) == 200 and one.given == 260
    assert len(one.keys) == 260  # those left over are held out of the comparison too
    assert target_examples(many, None, 1).texts != one.texts


@pytest.mark.parametrize("count", [0, 10])
def test_a_pool_too_small_switches_it_off(count: int) -> None:
    found = adapt(POOL[:count], TARGET)
    assert not found.on and len(found.weights) == len(found.keep) == count and "needs 50" in found.report["reason"]


def test_texts_without_words_neither_break_nor_weigh() -> None:
    found = adapt([*POOL, "", "!?", "  "], [*TARGET, "..."], AdaptConfig("discriminator"))
    assert (found.log_ratios[-3:] == 0).all() and np.isfinite(found.weights).all()


def test_wrong_knobs_are_named() -> None:
    with pytest.raises(DaymillError, match=r"max_weight is 1.*keep_share is 0"):
        AdaptConfig(max_weight=1, keep_share=0)


@given(
    st.lists(st.floats(-60, 60), min_size=1, max_size=60),
    st.floats(1.01, 100),
)
@settings(max_examples=50, deadline=None)
def test_any_ratios_give_bounded_weights_in_their_order(ratios: list[float], most: float) -> None:
    values = np.array(ratios)
    weights = weights_of(values, most)
    assert float(weights.mean(dtype=np.float64)) == pytest.approx(1, abs=1e-4)
    assert weights.max() <= most * 1.0001 and weights.min() >= 0
    assert effective_size(weights) >= len(ratios) / most * 0.999
    assert (np.diff(weights[np.argsort(values)]) >= 0).all()


def test_ties_at_the_border_stay_together() -> None:
    assert chosen(np.array([3.0, 1.0, 1.0, 0.0]), 0.5).tolist() == [True, True, True, False]
    assert chosen(np.zeros(0), 0.5).tolist() == []


def test_gumbel_noise_draws_in_proportion() -> None:
    ranks = np.arange(20_000, dtype=np.uint64)  # small ranks, as sampled ones are
    heavy = np.arange(20_000) % 2 == 0
    picked = chosen(np.where(heavy, math.log(3.0), 0.0), 0.05, gumbel(ranks))
    assert picked[heavy].sum() / picked.sum() == pytest.approx(0.75, abs=0.03)
    assert np.bincount(folds_of(ranks)).min() > 3_800


def test_calibration_finds_a_known_density_ratio() -> None:
    draw = np.random.default_rng(0)
    target, pool = draw.normal(1, 1, 200), draw.normal(0, 1, 5_000)
    grid = np.array([-1.0, 0.0, 1.0, 2.0])
    # log N(x; 1, 1) / N(x; 0, 1) = x - 1/2
    assert calibrate(target, pool).log_ratios(grid) == pytest.approx(grid - 0.5, abs=0.35)


def test_calibration_stays_finite_where_sides_do_not_overlap_and_flat_where_they_are_reversed() -> None:
    apart = calibrate(np.linspace(9, 10, 20), np.linspace(-1, 0, 500))
    assert 0 < apart.slope < 50 and np.isfinite(apart.log_ratios(np.array([-1e3, 1e3]))).all()
    assert (calibrate(np.linspace(-9, -8, 20), np.linspace(-1, 0, 500)).log_ratios(np.array([-9.0, 0.0])) == 0).all()


def slow_losses(pool: list[list[str]], weights: list[float], asked: list[str], strength: float) -> float:
    """The same model by dictionaries of words."""
    vocabulary = {word for words in pool for word in words}
    loss = 0.0
    for place in range(len(asked)):
        chance = 1 / (len(vocabulary) + 1)
        for order in range(1, ORDERS + 1):
            padded = ["<s>"] * (order - 1)
            context = tuple((padded + asked)[place : place + order - 1])
            hits = seen = 0.0
            for words, weight in zip(pool, weights):
                line = padded + words
                for end in range(len(words)):
                    if tuple(line[end : end + order - 1]) == context:
                        seen += weight
                        hits += weight * (words[end] == asked[place])
            chance = (hits + strength * chance) / (seen + strength)
        loss -= math.log(chance)
    return loss


def test_the_language_model_is_the_one_of_its_formula() -> None:
    draw = random.Random(0)
    pool = [[draw.choice("abcd") for _ in range(draw.randint(1, 9))] for _ in range(12)]
    target = [[draw.choice("abcde") for _ in range(draw.randint(1, 6))] for _ in range(5)]
    weights = [draw.random() * 3 for _ in pool]
    memo = Words()
    parts = [[" ".join(words) for words in pool[:5]], [" ".join(words) for words in pool[5:]]]
    evidence = gather([tokens_of(part, memo) for part in parts], tokens_of([" ".join(t) for t in target], memo))
    found = losses(evidence, np.array(weights, np.float32))
    assert token_counts(evidence).tolist() == [len(words) for words in target]
    for place, strength in enumerate(STRENGTHS):
        assert found[place] == pytest.approx([slow_losses(pool, weights, t, strength) for t in target], rel=1e-6)


def test_rows_count_words_and_pairs_within_a_text() -> None:
    memo = Words()
    rows = ngram_rows(tokens_of(["a b a b", "", "A  B", "你好"], memo))
    twice = 1 + math.log(2)
    assert sorted(rows[0].data.tolist()) == pytest.approx([1, twice, twice, twice])  # b a; a, b, a b
    assert [rows[i].nnz for i in range(4)] == [4, 0, 3, 3]
    together, alone = ngram_rows(tokens_of(["x y", "z"], memo)), ngram_rows(tokens_of(["z"], memo))
    assert (together[1] != alone[0]).nnz == 0  # no pair crosses from one text to the next


def test_a_sample_is_by_content_whatever_the_order() -> None:
    pool = [*POOL, POOL[0]]
    one = sample_pool(lambda: iter([pool]), ["x"] * 301, frozenset(), 50, 3)
    two = sample_pool(lambda: iter([pool[::-1]]), ["x"] * 301, frozenset(), 50, 3)
    assert one.texts == two.texts and len(one.texts) == 50 and (one.every_rank[::-1] == two.every_rank).all()


def test_the_expanded_interval_holds_for_twenty() -> None:
    """Of 300 samples of 20 with mean zero, no more than about 1 in 40 may lie wholly above it."""
    draw = np.random.default_rng(0)
    counts = resampled(20, 0)[:1_000]
    above = sum(bounds(counts @ draw.normal(size=20) / 20, 20)[0] > 0 for _ in range(300))
    assert above <= 15  # 7.5 expected


def test_a_few_changed_answers_are_no_proof() -> None:
    assert exact_bounds(5, 0, 20)[0] < 0 < exact_bounds(6, 0, 20)[0]  # a sign test: 1/32 and 1/64
    assert exact_bounds(0, 0, 20) == (0.0, 0.0)
    low, high = exact_bounds(4, 9, 40)
    assert (low, high) == pytest.approx(tuple(-x for x in reversed(exact_bounds(9, 4, 40))))


def test_a_target_file_is_read_by_the_strict_readers(tmp_path: Path) -> None:
    path = tmp_path / "target.jsonl"
    path.write_text('{"body": "one text", "label": 1}\n{"body": "another", "id": "b"}\n', encoding="utf-8")
    found = load_target(path, {"text": "body"})
    assert found.texts == ["one text", "another"] and found.labels == ["1", None] and found.ids[1] == "b"


def test_a_wrong_target_file_is_refused_by_line_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "target.jsonl"
    path.write_text('{"text": "fine"}\n{"text": "secret" oops}\n{"text": ""}\n', encoding="utf-8")
    with pytest.raises(DaymillError, match=r"2 examples cannot be read: line 2: .*; line 3: text") as error:
        load_target(path)
    assert "secret" not in str(error.value)
    with pytest.raises(DaymillError, match="no file"):
        load_target(tmp_path / "missing.jsonl")
    with pytest.raises(DaymillError, match="body"):
        path.write_text('{"text": "fine"}\n', encoding="utf-8")
        load_target(path, {"label": "body"})
