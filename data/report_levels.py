"""What the levels of bias and domain did, as sections of the page of a cleaning run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from data.charts import meter, short
from data.report_parts import facts, percent, share, table

SHOWN_LABELS = 6


def groups(each_group: Sequence[Mapping[str, Any]]) -> str:
    """Each {"group", "records", "kept", "label_shares": {label: share}, ...}: other figures become columns too."""
    if not each_group:
        return ""
    known = ("group", "records", "kept", "label_shares")
    extra = [key for key in dict.fromkeys(key for each in each_group for key in each) if key not in known]
    labels = sorted({label for each in each_group for label in each.get("label_shares") or {}})
    shown = labels[:SHOWN_LABELS]
    rows = []
    for each in each_group:
        records, kept = int(each.get("records") or 0), int(each.get("kept") or 0)
        row = [escape(str(each.get("group"))), f"{records:,}", f"{kept:,}", share(kept, records)]
        row += [percent((each.get("label_shares") or {}).get(label, 0)) for label in shown]
        rows.append([*row, *(escape(short(each.get(key))) for key in extra)])
    names = ["Group", "Records", "Kept", "Share kept", *(f"label {label}" for label in shown)]
    names += [key.replace("_", " ") for key in extra]
    more = len(labels) - len(shown)
    note = f'<p class="notes">{more:,} more labels are in report.json.</p>' if more else ""
    return table(names, rows, numbers=tuple(range(1, len(names))), ids=(0,)) + note


def bias(told: Mapping[str, Any] | None) -> str:
    """What data/debias reports: the gap between groups, what it cost, and whether the group can still be told."""
    if not told:
        return ""
    good = told.get("verdict") == "debiased"
    verdict = escape(str(told.get("verdict") or "no verdict"))
    state = f'<span class="ok">{verdict}</span>' if good else f"<b>{verdict}</b>"
    parts = [f"<p>{state}, mode {escape(str(told.get('mode')))}: {escape(str(told.get('reason') or ''))}.</p>"]
    odds, accuracy, probe = (told.get(name) or {} for name in ("equal_odds", "accuracy", "probe"))
    rows = []
    for name, each, limit in (
        ("equal-odds gap between groups", odds, f"goal: {short(odds.get('goal'))} of it may remain"),
        ("held-out accuracy", accuracy, f"budget: {percent(accuracy.get('budget'))}"),
        (f"group told from {probe.get('of', 'the features')}", probe, f"by guessing: {percent(probe.get('majority'))}"),
    ):
        if "before" in each and "after" in each:
            change = float(each["after"]) - float(each["before"])
            between = f"{100 * each['low']:+.1f} to {100 * each['high']:+.1f}" if "low" in each else "–"
            cells = [percent(each["before"]), percent(each["after"]), f"{100 * change:+.1f}", between]
            rows.append([escape(name), *cells, escape(limit)])
    if rows:
        names = ["Measured on held-out records", "Before", "After", "Points", "95 % interval", ""]
        parts.append(table(names, rows, numbers=(1, 2, 3, 4)))
    rows = []
    for group, each in (told.get("groups") or {}).items():
        for label, count_ in (each.get("labels") or {}).items():
            before, after = ((each.get(when) or {}).get(label, {}).get("recall") for when in ("before", "after"))
            meters = meter(float(after or 0))
            rows.append([escape(group), escape(label), f"{int(count_):,}", percent(before), percent(after), meters])
    if rows:
        names = ["Group", "Label", "Records", "Found before", "Found after", ""]
        parts.append("<p>How many of each group's records with a label are given it:</p>")
        parts.append(table(names, rows, numbers=(2, 3, 4), ids=(0, 1)))
    rest = {name: value for name, value in told.items() if name not in ("verdict", "reason", "mode", "groups")}
    return "".join(parts) + f"<details><summary>every figure</summary>{facts(rest, folded=False)}</details>"


def domain(told: Mapping[str, Any] | None) -> str:
    """What data/adapt/domain.py reports."""
    if not told:
        return ""
    state = '<span class="ok">on</span>' if told.get("on") else "<b>off</b>"
    gain = told.get("gain") or {}
    figures = {
        "method": told.get("method"),
        "mode": told.get("mode"),
        "target examples": told.get("target"),
        "effective sample size": told.get("effective_sample_size"),
    }
    if gain:
        figures[f"{gain.get('metric')} on held-out target examples"] = (
            f"{short(gain.get('before'))} before, {short(gain.get('after'))} after"
        )
        figures["gain"] = f"{short(gain.get('difference'))} ({short(gain.get('low'))} to {short(gain.get('high'))})"
    return f"<p>The level is {state}: {escape(str(told.get('reason') or ''))}.</p>" + facts(figures)
