"""What held-out records say about a debiasing: gap, accuracy, leakage, adversary; and where it has to be refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from data.debias import fairness
from data.debias.cases import Cases
from data.debias.config import AccuracyBudget, AdversaryCollapsed, BiasRemains, DebiasConfig
from data.debias.nets import Trained, answer, guess_groups
from data.debias.probe import Leak, fresh_adversary, leak, recall, recall_variance

Codes = NDArray[np.int64]

INVERSE_PENALTY = 3.0
# Above a blind guess. At an equilibrium an adversary and a fresh one differ by 0.01 to 0.03; where one had collapsed,
# the fresh one reached 0.15 to 0.3.
BLIND, SEEN = 0.03, 0.08
CERTAIN = 2.0  # standard errors of the fresh one's recall that come on top, for few records
EXACT = 1e-9  # a difference of shares that is the bar itself is within it


class Seen(NamedTuple):
    """Recall of groups by an adversary and by a fresh one, and the variance of a blind guess's recall."""

    own: float
    fresh: float
    variance: float


class Judged(NamedTuple):
    gap: fairness.Change
    accuracy: fairness.Change


def reference(x: csr_matrix | NDArray[np.floating], labels: Codes, weights: Any = None) -> LogisticRegression:
    """The classifier that is judged by: logistic regression, as the finetuned model's baseline is."""
    return LogisticRegression(C=INVERSE_PENALTY, max_iter=1_000).fit(x, labels, sample_weight=weights)


class Judge:
    """The held-out records, and the report that it fills."""

    def __init__(self, cases: Cases, config: DebiasConfig, report: dict[str, Any]) -> None:
        self.cases, self.config, self.report = cases, config, report
        self.truth, self.groups = cases.labels[cases.held], cases.groups[cases.held]

    def gap_beyond_chance(self, predicted: Codes) -> bool:
        """Whether answers to the learned records (each by a model that did not see it) differ by group at all."""
        cases, config = self.cases, self.config
        groups, truth = cases.groups[cases.learn], cases.labels[cases.learn]
        gap = fairness.equal_odds(fairness.counts_of(groups, truth, predicted, cases.shape), config.min_cell)
        chance = fairness.chance_gap(groups, truth, predicted, cases.shape, config.min_cell, config.seed)
        self.report["chance"] = {"gap": gap, "random_groups": chance}
        return gap > chance  # False for NaN: where no rates can be compared there is no gap to close

    def compare(self, before: Codes, after: Codes) -> Judged:
        """Two classifiers' answers to the held-out records, into the report."""
        cases, config, report = self.cases, self.config, self.report
        change = fairness.compare(self.groups, self.truth, before, after, cases.shape, config.min_cell, config.seed)
        judged = Judged(*change)
        by_label: dict[str, dict[str, float]] = {name: {} for name in cases.label_names}
        for when, predicted in (("before", before), ("after", after)):
            counts = fairness.counts_of(self.groups, self.truth, predicted, cases.shape)
            rates = fairness.rates_of(counts, config.min_cell)
            for name, gap in zip(cases.label_names, fairness.gaps_of(rates), strict=True):
                by_label[name][when] = float(gap)
            for g, group in enumerate(cases.group_names):
                shares = counts[g].sum(0) / max(1, counts[g].sum())
                report["groups"][group][when] = {
                    name: {"recall": float(rates[g, c, c]), "predicted": float(shares[c])}
                    for c, name in enumerate(cases.label_names)
                }
        report["equal_odds"] = judged.gap._asdict() | {"goal": config.goal, "by_label": by_label}
        report["accuracy"] = judged.accuracy._asdict() | {"budget": config.accuracy_budget}
        return judged

    def leaks(self, of: str, before: Any, after: Any) -> Leak:
        """Fresh probes on what held-out records were turned into; the report gets both, the later one is returned."""
        found = [leak(values, self.groups, self.truth, self.config.seed) for values in (before, after)]
        self.report["probe"] = {
            "of": of,
            "before": found[0].accuracy,
            "after": found[1].accuracy,
            "linear": found[1].linear,
            "network": found[1].network,
            "majority": found[1].majority,
            "by_label": found[1].label,
            "tolerance": self.config.leak_tolerance,
            "auc_before": found[0].auc,
            "auc_after": found[1].auc,
        }
        return found[1]

    def seen(self, net: Trained, x: csr_matrix, labels: Codes, groups: Codes) -> Seen:
        """Recall of groups on rows that were not learned from, by the net's adversary and by a fresh one."""
        assert net.adversary is not None
        z = answer(net.encoder, x)[0]
        own = recall(guess_groups(net.adversary, z, labels), groups, labels)
        fresh = fresh_adversary(z, labels, groups, self.cases.shape, self.config.seed)
        return Seen(own, fresh, recall_variance(groups, labels))

    def adversary(self, strength: float, seen: Sequence[Seen]) -> None:
        """Raises AdversaryCollapsed where a fresh adversary sees what the net's own one does not."""
        own, fresh, variance = (float(value) for value in np.mean(seen, axis=0))
        chance, error = 1 / len(self.cases.group_names), float(np.sqrt(variance / len(seen)))
        self.report["adversary"] = {
            "strength": strength,
            "recall": own,
            "fresh_recall": fresh,
            "chance": chance,
            "error": error,
        }
        if own <= chance + BLIND and fresh > chance + SEEN + CERTAIN * error:
            self.report["verdict"] = "refused"
            raise AdversaryCollapsed(
                f"the adversary collapsed: it finds {own:.1%} of each group where a blind guess finds {chance:.1%}, "
                f"but a fresh one finds {fresh:.1%}, so the group is not hidden. Change the strength, give the "
                "adversary more steps, or go on without the level",
                self.report,
            )

    def refuse_leak(self, found: Leak) -> None:
        """Raises BiasRemains where a probe tells the group by more than the tolerance."""
        if found.beyond <= self.config.leak_tolerance + EXACT:
            return
        self.report["verdict"] = "refused"
        raise BiasRemains(
            f"a fresh probe tells the group of {found.accuracy:.1%} of the held-out records from the representation; "
            f"{found.without:.1%} are told without it, and at most {self.config.leak_tolerance:.1%} more were to be. "
            "Raise the strength, narrow the width, or go on without the level",
            self.report,
        )

    def verdict(self, judged: Judged) -> None:
        """Raises AccuracyBudget, or BiasRemains where the gap grew beyond doubt; else the report gets its verdict."""
        gap, accuracy, report = judged.gap, judged.accuracy, self.report
        told = (
            f"the gap between groups goes from {gap.before:.3f} to {gap.after:.3f}, held-out accuracy from "
            f"{accuracy.before:.1%} to {accuracy.after:.1%}"
        )
        report["reason"] = told
        report["verdict"] = "refused"
        if -accuracy.difference > self.config.accuracy_budget + EXACT:
            raise AccuracyBudget(
                f"{told}: more than the budget of {self.config.accuracy_budget:.1%}. Lower the strength, raise the "
                "budget, or go on without the level",
                report,
            )
        if gap.low > 0:
            raise BiasRemains(f"{told}: it grows. Change the strength or go on without the level", report)
        if gap.difference >= 0:
            report["verdict"], report["reason"] = "no gain", f"{told}: nothing is gained"
        else:
            report["verdict"] = "debiased" if gap.after <= self.config.goal * gap.before else "goal not reached"
