"""The page of a cleaning run: what came in, what each rule took, what stayed, and what that did for the data.

One json-able dict in, one self-contained HTML page out: no script, nothing from elsewhere, light and dark. What a run
did not measure is left out with a word. Ids are shown, texts never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from data.charts import CHART_STYLE, flow, histogram, meter, ranked, short
from data.data_docs import STYLE
from data.report_levels import bias, domain, groups
from data.report_parts import counted, identifier, percent, share, table

SHOWN_SOURCES = 20
SHOWN_MEMBERS = 20
SHOWN_CLUSTERS = 10

LOOK = """
@media (prefers-color-scheme: dark) { :root { --ok: #58b884; --bad: #f08a7a; } }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2.6rem; margin: 1.2rem 0; }
.figures div { display: flex; flex-direction: column; } .figures b { font-size: 1.55rem; font-weight: 600; }
.figures span { opacity: .75; font-size: .9em; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.4rem 1.8rem; }
.grid figure { margin: 0; } .grid figcaption { font-size: .9em; overflow-wrap: anywhere; margin-bottom: .3rem; }
.wide, .flow { overflow-x: auto; } .wide > table { min-width: 34rem; } .flow > svg { min-width: 44rem; }
 .facts td:first-child { width: 45%; }
td.id { overflow-wrap: anywhere; min-width: 9rem; } summary { cursor: pointer; opacity: .8; white-space: nowrap; }
details > table { margin-top: .4rem; }
"""


def page(report: Mapping[str, Any]) -> str:
    """HTML of a report with any of the keys: levels, sources, histograms, clusters, pairs, groups, bias, domain, noise,
    labels, claims (the sections below say the shape of each)."""
    levels = report.get("levels") or []
    # title, what to show, and the word where there is nothing to show
    sections = [
        ("From raw to kept", _flow(levels), "no record came in"),
        ("What each rule took", _rules(levels), "none took any record"),
        ("Noise before and after", _noise(report.get("noise"), report.get("labels")), "not estimated"),
        ("Measures and their thresholds", _histograms(report.get("histograms") or [], levels), "none was counted"),
        ("Duplicates", _pairs(report.get("pairs")), "near ones were not looked for"),
        ("The largest clusters of duplicates", _clusters(report.get("clusters") or []), "there is none"),
        ("Groups", groups(report.get("groups") or []), "the records have none"),
        ("Bias", bias(report.get("bias")), "the level did not run"),
        ("Domain", domain(report.get("domain")), "the level did not run"),
        ("Sources", _sources(report.get("sources") or {}), "not counted"),
        ("The public claim beside this run", _claims(report.get("claims") or []), "nothing was compared"),
    ]
    parts = [_head(levels)]
    parts += [f"<h2>{escape(title)}</h2>\n{body}" for title, body, _ in sections if body]
    left_out = [f"<li><b>{escape(title)}</b>: {escape(why)}</li>" for title, body, why in sections if not body]
    if left_out:
        parts.append(f'<h2>Not on this page</h2>\n<ul class="notes">{"".join(left_out)}</ul>')
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What cleaning did</title><style>{STYLE}{CHART_STYLE}{LOOK}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _head(levels: Sequence[Mapping[str, Any]]) -> str:
    if not levels:
        return "<h1>What cleaning did</h1>"
    came, stayed = int(levels[0]["in"]), int(levels[-1]["kept"])
    took = sum(bool(count) for level in levels for count in (level.get("dropped_by_rule") or {}).values())
    figures = [
        (f"{came:,}", "records came in"),
        (f"{stayed:,}", f"kept ({share(stayed, came)})"),
        (f"{came - stayed:,}", f"dropped or quarantined ({share(came - stayed, came)})"),
        (f"{took:,}", "rules took some"),
    ]
    cells = "".join(f"<div><b>{value}</b><span>{escape(name)}</span></div>" for value, name in figures)
    return f'<h1>What cleaning did</h1><div class="figures">{cells}</div>'


def _flow(levels: Sequence[Mapping[str, Any]]) -> str:
    """`levels`: {"name", "in", "kept", "dropped_by_rule": {rule: count}, "note"} in the order in which they run."""
    if not levels:
        return ""
    picture = f'<div class="flow">{flow(levels)}</div>'
    notes = [(str(level["name"]), str(level["note"])) for level in levels if level.get("note")]
    listed = "".join(f"<li><b>{escape(name)}</b>: {escape(note)}</li>" for name, note in notes)
    return picture + (f'<ul class="notes">{listed}</ul>' if listed else "")


def _rules(levels: Sequence[Mapping[str, Any]]) -> str:
    taken = [
        (str(level["name"]), rule, count, int(level["in"]))
        for level in levels
        for rule, count in ranked(level.get("dropped_by_rule") or {})
    ]
    if not taken:
        return ""
    most = max(count for _, _, count, _ in taken)
    rows = [
        [
            escape(level),
            f"<code>{escape(rule)}</code>",
            f"{count:,}",
            share(count, came),
            meter(count / most, "drops"),
        ]
        for level, rule, count, came in taken
    ]
    return table(["Level", "Rule", "Records", "Of those in", ""], rows, numbers=(2, 3), ids=(1,))


def _noise(noise: Mapping[str, Any] | None, labels: Mapping[str, Any] | None) -> str:
    """`noise`: {"before", "after": shares, "how"}; `labels`: {"suspected", "reviewed"} counts."""
    parts = []
    if noise:
        before, after = noise.get("before"), noise.get("after")
        most = max(float(before or 0), float(after or 0)) or 1.0
        rows = [
            [name, percent(share), meter(float(share or 0) / most, kind)]
            for name, share, kind in (("before", before, "drops"), ("after", after, "keeps"))
        ]
        parts.append(table(["Estimated noise", "Share", ""], rows, numbers=(1,)))
        parts.append(f'<p class="notes">{escape(str(noise.get("how") or ""))}</p>')
    if labels:
        suspected, reviewed = (counted(labels.get(name)) for name in ("suspected", "reviewed"))
        parts.append(f"<p>{suspected} labels are suspected to be wrong, {reviewed} were reviewed by a person.</p>")
    return "".join(parts)


def _histograms(histograms: Sequence[Mapping[str, Any]], levels: Sequence[Mapping[str, Any]]) -> str:
    """Each {"measure", "edges", "counts", "threshold": number or null, "direction": "min" or "max", "rule"}."""
    if not histograms:
        return ""
    took: dict[str, int] = {}
    for level in levels:
        for rule, count in (level.get("dropped_by_rule") or {}).items():
            took[rule] = took.get(rule, 0) + int(count)
    took_some: list[str] = []
    took_none: list[str] = []
    for each in histograms:
        rule, threshold, direction = str(each.get("rule") or ""), each.get("threshold"), str(each.get("direction"))
        picture = histogram(each["edges"], each["counts"], threshold, direction)
        words = "no threshold"
        if threshold is not None:
            sign = "at least" if direction == "min" else "at most"
            words = f"{sign} {short(threshold)}" + (f" · {took[rule]:,} dropped" if rule in took else "")
        name = f"<b>{escape(str(each['measure']))}</b> · {escape(words)}"
        of = took_some if rule in took or threshold is None else took_none
        of.append(f"<figure><figcaption>{name}</figcaption>{picture}</figure>")
    lead = '<p class="notes">Records by measure, all bins drawn equally wide; what a threshold takes is in red.</p>'
    parts = [f'<div class="grid">{"".join(figures)}</div>' if figures else "" for figures in (took_some, took_none)]
    if took_none:
        parts[1] = f"<details><summary>{len(took_none):,} thresholds that took none</summary>{parts[1]}</details>"
    return lead + "".join(parts)


def _pairs(pairs: Mapping[str, Any] | None) -> str:
    """{"verified", "merged", "vetoed": {kind: count}}."""
    if not pairs:
        return ""
    vetoed = ranked(pairs.get("vetoed") or {})
    text = (
        f"<p>{counted(pairs.get('verified'))} similar pairs verified, {counted(pairs.get('merged'))} merged, "
        f"{sum(count for _, count in vetoed):,} kept apart by a protected difference.</p>"
    )
    if not vetoed:
        return text
    most = vetoed[0][1]
    rows = [[escape(kind), f"{count:,}", meter(count / most)] for kind, count in vetoed]
    return text + table(["Kept apart by", "Pairs", ""], rows, numbers=(1,))


def _clusters(clusters: Sequence[Mapping[str, Any]]) -> str:
    """Each {"survivor", "size", "similarity_min", "members": [ids], "linked"}; the largest are shown."""
    if not clusters:
        return ""
    largest = sorted(clusters, key=lambda each: (-int(each["size"]), str(each["survivor"])))[:SHOWN_CLUSTERS]
    rows = []
    for each in largest:
        members = [identifier(str(member)) for member in (each.get("members") or [])[:SHOWN_MEMBERS]]
        hidden = int(each["size"]) - 1 - len(members)
        listed = "<br>".join(members + ([f"and {hidden:,} more"] if hidden > 0 else []))
        folded = f"<details><summary>show {len(members)}</summary>{listed}</details>" if members else "–"
        rows.append(
            [
                identifier(str(each["survivor"])),
                f"{int(each['size']):,}",
                short(each.get("similarity_min")),
                counted(each.get("linked")),
                folded,
            ]
        )
    names = ["Survivor", "Records", "Least similarity", "Kept apart", "Members"]
    return table(names, rows, numbers=(1, 2, 3), ids=(0,))


def _sources(sources: Mapping[str, Mapping[str, Any]]) -> str:
    """{source: {"in", "kept"}}, the largest first."""
    if not sources:
        return ""
    counts = sorted(((int(c["in"]), int(c["kept"]), str(name)) for name, c in sources.items()), reverse=True)
    if len(counts) > SHOWN_SOURCES:
        rest = counts[SHOWN_SOURCES:]
        counts = counts[:SHOWN_SOURCES]
        counts.append((sum(r[0] for r in rest), sum(r[1] for r in rest), f"{len(rest):,} more sources"))
    rows = [
        [
            identifier(name),
            f"{came:,}",
            f"{kept:,}",
            share(kept, came),
            meter(kept / came if came else 0),
        ]
        for came, kept, name in counts
    ]
    return table(["Source", "Records", "Kept", "Share kept", ""], rows, numbers=(1, 2, 3), ids=(0,))


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    """Each {"what", "claim", "measured"}."""
    if not claims:
        return ""
    rows = [
        [escape("not measured" if each.get(key) is None else short(each[key])) for key in ("what", "claim", "measured")]
        for each in claims
    ]
    return table(["What", "Claimed", "Measured here"], rows, ids=(0, 1, 2))
