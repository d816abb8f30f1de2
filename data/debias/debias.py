"""Debiasing (level 4): weights or features for training that treat groups alike, judged on held-out records.

Weights keep the records as they are and suit any model; a representation is stricter: not even a model made to find the
group finds it in the features. Both come from the same adversarial network (nets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.debias.cases import NONE, Cases, cases_of
from data.debias.config import DebiasConfig, Debiased
from data.debias.features import BATCH, Features
from data.debias.judge import Judge, reference
from data.debias.nets import Trained, answer, quiet_torch, train
from data.debias.probe import leak
from data.debias.weights import bounded, log_ratio, spread

Progress = Callable[[int, int], None]

ATTEMPTS = 3  # at a representation
STRONGER, WEAKER = 1.6, 0.6  # the next attempt's strength, where one leaks or else costs too much
CAUTION = 0.7  # of tolerance and budget when choosing among them: the judgment is on other records


def debias(
    texts: Sequence[str],
    labels: Sequence[str | None],
    groups: Sequence[str | None],
    config: DebiasConfig | None = None,
    progress: Progress | None = None,
) -> Debiased:
    """Weights or features that take the treatment of groups out of what is learned; no record is changed or dropped.

    All records weigh 1 and the report's verdict says why where there is nothing to compare (fewer than two groups or
    labels of `min_group` records), no gap beyond chance, or no gain. The same records give the same in any order.
    `progress(done, total)` counts networks. Raises AdversaryCollapsed, AccuracyBudget or BiasRemains (DebiasRefused,
    with the report) where the result would not do what it says, and DaymillError for sequences of unequal lengths.
    """
    config = config or DebiasConfig()
    cases = cases_of(texts, labels, groups, config)
    report: dict[str, Any] = {
        "mode": config.mode,
        "verdict": "nothing to compare",
        "reason": cases.reason,
        "records": cases.counts,
        "groups": cases.group_report,
    }
    if cases.reason:
        return Debiased(np.ones(len(texts), dtype=np.float32), None, report)
    ordered = [texts[i] for i in cases.order]
    with quiet_torch(config.threads):
        job = Job(ordered, cases, config, progress or (lambda _done, _total: None), report)
        try:
            weights, features = job.weights() if config.mode == "weights" else job.representation()
        finally:
            _round(report)  # a refusal carries it too
    return Debiased(_given(weights, cases), None if features is None else _given(features, cases), report)


class Job:
    """One call of `debias`: the records by content, their features, and the judge."""

    def __init__(
        self, texts: list[str], cases: Cases, config: DebiasConfig, progress: Progress, report: dict[str, Any]
    ) -> None:
        self.texts, self.cases, self.config, self.report = texts, cases, config, report
        self.progress, self.trained = progress, 0
        self.features = Features(config.features, config.max_chars)
        self.x = self.features.fit([texts[i] for i in cases.learn])
        self.x_held = self.features.of([texts[i] for i in cases.held])
        self.labels, self.groups = cases.labels[cases.learn], cases.groups[cases.learn]
        self.judge = Judge(cases, config, report)

    def weights(self) -> tuple[NDArray[np.float32], None]:
        config, cases, judge, report = self.config, self.cases, self.judge, self.report
        alike = np.ones(len(self.texts), dtype=np.float32)
        before = reference(self.x, self.labels)
        if not judge.gap_beyond_chance(self.cross_fitted()):
            self.compare(before, before)
            report["verdict"], found = "no gap beyond chance", report["chance"]
            report["reason"] = f"the gap is {found['gap']:.3f}, and random groups reach {found['random_groups']:.3f}"
            return alike, None

        ratio = np.zeros(len(self.texts))  # its logarithm, until it is complete
        pairs, seen = [], []
        for k in range(config.folds):
            learn, ask = cases.fold != k, cases.fold == k
            plain, blind = (self.train(learn, strength, k, 2 * config.folds) for strength in (0.0, config.strength))
            pairs.append((plain, blind))
            ratio[cases.learn[ask]] = log_ratio(plain, blind, self.x[ask], self.labels[ask])
            seen.append(judge.seen(blind, self.x[ask], self.labels[ask], self.groups[ask]))
        judge.adversary(config.strength, seen)
        learned = np.zeros(len(self.texts), dtype=bool)
        learned[cases.learn] = True
        labelled = cases.labels != NONE
        others = np.flatnonzero(labelled & ~learned)
        for start in range(0, len(others), BATCH):
            at = others[start : start + BATCH]
            x, codes = self.features.of([self.texts[i] for i in at]), cases.labels[at]
            ratio[at] = np.mean([log_ratio(*pair, x, codes) for pair in pairs], axis=0)
        weights = alike.astype(np.float64)
        weights[labelled] = bounded(np.exp(ratio[labelled]), config.max_weight)

        self.compare(before, reference(self.x, self.labels, weights[cases.learn]))
        if report["verdict"] == "no gain":
            return alike, None
        report["weights"] = spread(weights[labelled])
        return weights.astype(np.float32), None

    def representation(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        cases, judge = self.cases, self.judge
        fit = ~cases.check
        plain = self.train(fit, 0.0, 0, 1 + ATTEMPTS)
        blind, strength = self.blind_enough(plain)
        z_plain, z_blind = ([answer(net.encoder, x)[0] for x in (self.x[fit], self.x_held)] for net in (plain, blind))
        answers = [reference(z[0], self.labels[fit]).predict(z[1]) for z in (z_plain, z_blind)]
        judged = judge.compare(*answers)
        found = judge.leaks("the representation", z_plain[1], z_blind[1])
        judge.adversary(strength, [judge.seen(blind, self.x_held, judge.truth, judge.groups)])
        judge.refuse_leak(found)
        judge.verdict(judged)
        features = [
            answer(blind.encoder, self.features.of(self.texts[start : start + BATCH]))[0]
            for start in range(0, len(self.texts), BATCH)
        ]
        return np.ones(len(self.texts), dtype=np.float32), np.concatenate(features)

    def blind_enough(self, plain: Trained) -> tuple[Trained, float]:
        """The first network that neither leaks nor costs too much on records it did not see, else the nearest to it."""
        cases, config = self.cases, self.config
        x, labels, groups = self.x[cases.check], self.labels[cases.check], self.groups[cases.check]

        def right(net: Trained) -> float:
            return float((answer(net.encoder, x)[1].argmax(-1) == labels).mean())

        tried, strength = [], config.strength
        for number in range(ATTEMPTS):
            net = self.train(~cases.check, strength, number, 1 + ATTEMPTS)
            told = leak(answer(net.encoder, x)[0], groups, labels, config.seed).beyond
            leaks = max(told - CAUTION * config.leak_tolerance, 0)
            costs = max(right(plain) - right(net) - CAUTION * config.accuracy_budget, 0)
            tried.append((leaks + costs, number, strength, net))
            if not leaks + costs:
                break
            strength *= STRONGER if leaks > costs else WEAKER
        _, _, strength, net = min(tried, key=lambda one: one[:2])
        return net, strength

    def train(self, rows: NDArray[np.bool_], strength: float, number: int, planned: int) -> Trained:
        net = train(
            self.x[rows],
            self.labels[rows],
            self.groups[rows],
            self.cases.shape,
            strength,
            self.config,
            seed=self.config.seed * 1_000 + number,
        )
        self.trained += 1
        self.progress(self.trained, planned)
        return net

    def cross_fitted(self) -> NDArray[np.int64]:
        """The reference's answer to each learned row, by one that did not see it."""
        found = np.zeros_like(self.labels)
        for k in range(self.config.folds):
            learn, ask = self.cases.fold != k, self.cases.fold == k
            found[ask] = reference(self.x[learn], self.labels[learn]).predict(self.x[ask])
        return found

    def compare(self, before: Any, after: Any) -> None:
        """The reference with and without weights, judged; what its scores tell of the group, and what the texts do."""
        judge = self.judge
        judged = judge.compare(before.predict(self.x_held), after.predict(self.x_held))
        judge.leaks("the classifier's scores", *(model.predict_proba(self.x_held) for model in (before, after)))
        self.report["probe"]["texts"] = leak(self.x_held, judge.groups, judge.truth, self.config.seed).accuracy
        judge.verdict(judged)


def _given(values: NDArray[np.float32], cases: Cases) -> NDArray[np.float32]:
    """Back in the order in which the records were given."""
    back = np.empty_like(values)
    back[cases.order] = values
    return back


def _round(report: dict[str, Any]) -> None:
    """Six digits, in place, and None for NaN, which is no JSON."""
    for key, value in report.items():
        if isinstance(value, dict):
            _round(value)
        elif isinstance(value, float):
            report[key] = None if np.isnan(value) else round(value, 6)
