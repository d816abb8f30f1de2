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

SHOWN_ROWS = 12  # of a long table before the rest is folded away
SHOWN_SOURCES = 20
SHOWN_MEMBERS = 20
SHOWN_CLUSTERS = 10
LONG_ID = 72

LOOK = """
@media (prefers-color-scheme: dark) { :root { --ok: #58b884; --bad: #f08a7a; } }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2.6rem; margin: 1.2rem 0; }
.figures div { display: flex; flex-direction: column; } .figures b { font-size: 1.55rem; font-weight: 600; }
.figures span { opacity: .75; font-size: .9em; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.4rem 1.8rem; }
.grid figure { margin: 0; } .grid figcaption { font-size: .9em; overflow-wrap: anywhere; margin-bottom: .3rem; }
.wide { overflow-x: auto; } .wide > table { min-width: 34rem; } .facts td:first-child { width: 45%; }
td.id { overflow-wrap: anywhere; } summary { cursor: pointer; opacity: .8; white-space: nowrap; }
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
        ("Groups", _groups(report.get("groups") or []), "the records have none"),
        ("Bias", _facts(report.get("bias") or {}), "the level did not run"),
        ("Domain", _domain(report.get("domain")), "the level did not run"),
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
        (f"{stayed:,}", f"kept ({_share(stayed, came)})"),
        (f"{came - stayed:,}", f"dropped or quarantined ({_share(came - stayed, came)})"),
        (f"{took:,}", "rules took some"),
    ]
    cells = "".join(f"<div><b>{value}</b><span>{escape(name)}</span></div>" for value, name in figures)
    return f'<h1>What cleaning did</h1><div class="figures">{cells}</div>'


def _flow(levels: Sequence[Mapping[str, Any]]) -> str:
    """`levels`: {"name", "in", "kept", "dropped_by_rule": {rule: count}, "note"} in the order in which they run."""
    picture = flow(levels)
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
            _share(count, came),
            meter(count / most, "drops"),
        ]
        for level, rule, count, came in taken
    ]
    return _table(["Level", "Rule", "Records", "Of those in", ""], rows, numbers=(2, 3), ids=(1,))


def _noise(noise: Mapping[str, Any] | None, labels: Mapping[str, Any] | None) -> str:
    """`noise`: {"before", "after": shares, "how"}; `labels`: {"suspected", "reviewed"} counts."""
    parts = []
    if noise:
        before, after = noise.get("before"), noise.get("after")
        most = max(float(before or 0), float(after or 0)) or 1.0
        rows = [
            [name, _percent(share), meter(float(share or 0) / most, kind)]
            for name, share, kind in (("before", before, "drops"), ("after", after, "keeps"))
        ]
        parts.append(_table(["Estimated noise", "Share", ""], rows, numbers=(1,)))
        parts.append(f'<p class="notes">{escape(str(noise.get("how") or ""))}</p>')
    if labels:
        parts.append(
            f"<p>{_count(labels.get('suspected'))} labels are suspected to be wrong, {_count(labels.get('reviewed'))} "
            "were reviewed by a person.</p>"
        )
    return "".join(parts)


def _histograms(histograms: Sequence[Mapping[str, Any]], levels: Sequence[Mapping[str, Any]]) -> str:
    """Each {"measure", "edges", "counts", "threshold": number or null, "direction": "min" or "max", "rule"}."""
    if not histograms:
        return ""
    took: dict[str, int] = {}
    for level in levels:
        for rule, count in (level.get("dropped_by_rule") or {}).items():
            took[rule] = took.get(rule, 0) + int(count)
    figures = []
    for each in histograms:
        rule, threshold, direction = str(each.get("rule") or ""), each.get("threshold"), str(each.get("direction"))
        picture = histogram(each["edges"], each["counts"], threshold, direction)
        words = "no threshold"
        if threshold is not None:
            sign = "at least" if direction == "min" else "at most"
            words = f"{sign} {short(threshold)}" + (f" · {took[rule]:,} dropped" if rule in took else "")
        name = f"<b>{escape(str(each['measure']))}</b> · {escape(words)}"
        figures.append(f"<figure><figcaption>{name}</figcaption>{picture}</figure>")
    lead = '<p class="notes">Records by measure, all bins drawn equally wide; what a threshold takes is in red.</p>'
    return f'{lead}<div class="grid">{"".join(figures)}</div>'


def _pairs(pairs: Mapping[str, Any] | None) -> str:
    """{"verified", "merged", "vetoed": {kind: count}}."""
    if not pairs:
        return ""
    vetoed = ranked(pairs.get("vetoed") or {})
    text = (
        f"<p>{_count(pairs.get('verified'))} similar pairs verified, {_count(pairs.get('merged'))} merged, "
        f"{sum(count for _, count in vetoed):,} kept apart by a protected difference.</p>"
    )
    if not vetoed:
        return text
    most = vetoed[0][1]
    rows = [[escape(kind), f"{count:,}", meter(count / most)] for kind, count in vetoed]
    return text + _table(["Kept apart by", "Pairs", ""], rows, numbers=(1,))


def _clusters(clusters: Sequence[Mapping[str, Any]]) -> str:
    """Each {"survivor", "size", "similarity_min", "members": [ids], "linked"}; the largest are shown."""
    if not clusters:
        return ""
    largest = sorted(clusters, key=lambda each: (-int(each["size"]), str(each["survivor"])))[:SHOWN_CLUSTERS]
    rows = []
    for each in largest:
        members = [_id(str(member)) for member in (each.get("members") or [])[:SHOWN_MEMBERS]]
        hidden = int(each["size"]) - 1 - len(members)
        listed = "<br>".join(members + ([f"and {hidden:,} more"] if hidden > 0 else []))
        folded = f"<details><summary>show {len(members)}</summary>{listed}</details>" if members else "–"
        rows.append(
            [
                _id(str(each["survivor"])),
                f"{int(each['size']):,}",
                short(each.get("similarity_min")),
                _count(each.get("linked")),
                folded,
            ]
        )
    names = ["Survivor", "Records", "Least similarity", "Kept apart", "Members"]
    return _table(names, rows, numbers=(1, 2, 3), ids=(0,))


def _groups(groups: Sequence[Mapping[str, Any]]) -> str:
    """Each {"group", "records", "kept", "positive_share", ...}: further columns are shown as they come."""
    if not groups:
        return ""
    extra = list(dict.fromkeys(key for each in groups for key in each))
    extra = [key for key in extra if key not in ("group", "records", "kept", "positive_share")]
    rows = []
    for each in groups:
        records, kept = int(each.get("records") or 0), int(each.get("kept") or 0)
        row = [escape(str(each.get("group"))), f"{records:,}", f"{kept:,}", _share(kept, records)]
        rows.append([*row, _percent(each.get("positive_share")), *(escape(short(each.get(key))) for key in extra)])
    names = ["Group", "Records", "Kept", "Share kept", "Positive", *(key.replace("_", " ") for key in extra)]
    return _table(names, rows, numbers=tuple(range(1, len(names))), ids=(0,))


def _domain(domain: Mapping[str, Any] | None) -> str:
    """What data/adapt/domain.py reports."""
    if not domain:
        return ""
    state = '<span class="ok">on</span>' if domain.get("on") else "<b>off</b>"
    gain = domain.get("gain") or {}
    text = f"<p>The level is {state}: {escape(str(domain.get('reason') or ''))}.</p>"
    facts = {
        "method": domain.get("method"),
        "mode": domain.get("mode"),
        "target examples": domain.get("target"),
        "effective sample size": domain.get("effective_sample_size"),
    }
    if gain:
        facts[f"{gain.get('metric')} on held-out target examples"] = (
            f"{short(gain.get('before'))} before, {short(gain.get('after'))} after"
        )
        facts["gain"] = f"{short(gain.get('difference'))} ({short(gain.get('low'))} to {short(gain.get('high'))})"
    return text + _facts(facts)


def _facts(facts: Mapping[str, Any]) -> str:
    """Any nested figures as a table of two columns."""
    if not facts:
        return ""
    rows = [[escape(name), escape(value)] for name, value in _flat(facts)]
    return f'<div class="facts">{_table(["", ""], rows, ids=(0, 1))}</div>'


def _flat(facts: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            found += _flat(value, f"{name} · ")
        elif isinstance(value, list | tuple):
            found.append((name, ", ".join(short(item) for item in value)))
        else:
            found.append((name, ("yes" if value else "no") if isinstance(value, bool) else short(value)))
    return found


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
            _id(name),
            f"{came:,}",
            f"{kept:,}",
            _share(kept, came),
            meter(kept / came if came else 0),
        ]
        for came, kept, name in counts
    ]
    return _table(["Source", "Records", "Kept", "Share kept", ""], rows, numbers=(1, 2, 3), ids=(0,))


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    """Each {"what", "claim", "measured"}."""
    if not claims:
        return ""
    rows = [
        [escape("not measured" if each.get(key) is None else short(each[key])) for key in ("what", "claim", "measured")]
        for each in claims
    ]
    return _table(["What", "Claimed", "Measured here"], rows, ids=(0, 1, 2))


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), ids: Sequence[int] = ()
) -> str:
    """Rows of ready HTML; those after the first SHOWN_ROWS are folded away."""

    def kind(place: int) -> str:
        return ' class="number"' if place in numbers else ' class="id"' if place in ids else ""

    def body(some: Sequence[Sequence[str]]) -> str:
        return "".join(f"<tr>{''.join(f'<td{kind(p)}>{cell}</td>' for p, cell in enumerate(row))}</tr>" for row in some)

    head = "".join(f"<th{kind(place)}>{escape(name)}</th>" for place, name in enumerate(names))
    head = f"<tr>{head}</tr>" if any(names) else ""
    shown = f'<div class="wide"><table>{head}{body(rows[:SHOWN_ROWS])}</table></div>'
    hidden = rows[SHOWN_ROWS:]
    if not hidden:
        return shown
    rest = f'<div class="wide"><table>{head}{body(hidden)}</table></div>'
    return f"{shown}<details><summary>{len(hidden):,} more</summary>{rest}</details>"


def _id(value: str) -> str:
    """An id or a path; of a very long one its two ends, and all of it where a mouse rests."""
    if len(value) <= LONG_ID:
        return f"<code>{escape(value)}</code>"
    return f'<code title="{escape(value)}">{escape(value[: LONG_ID - 20])}…{escape(value[-19:])}</code>'


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "–"


def _percent(share: Any) -> str:
    return f"{float(share):.2%}" if isinstance(share, int | float) else "–"


def _count(value: Any) -> str:
    return f"{int(value):,}" if isinstance(value, int | float) else "–"
