"""The page of a cleaning run: what came in, what each rule took, what stayed, and what that did for the data.

One json-able dict in, one self-contained HTML page out: no script, nothing from elsewhere, light and dark. What a run
did not measure is left out with a word. Ids are shown, texts never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from data.charts import flow, histogram, meter, ranked, short
from data.data_docs import STYLE

SHOWN_ROWS = 12  # of a long table before the rest is folded away
SHOWN_SOURCES = 20
SHOWN_MEMBERS = 20
SHOWN_CLUSTERS = 10

LOOK = """
:root { --keeps: #4b7fdc; --drops: #d9775f; --band: #4b7fdc66; --branch: #d9775f77; --soft: #8882; }
h2 + p.lead { margin-top: -.4rem; opacity: .8; }
.none { opacity: .65; font-style: italic; }
.wide { overflow-x: auto; } svg { display: block; font-family: inherit; } svg text { fill: currentColor; }
.flow { width: 100%; min-width: 46rem; } .flow .band { fill: var(--band); } .flow .node { fill: var(--keeps); }
.flow .drop { fill: var(--branch); } .flow .level { font-size: 15px; font-weight: 600; }
.flow .rule { font-size: 12.5px; } .flow .count { font-size: 11.5px; opacity: .75; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2.6rem; margin: 1.2rem 0; }
.figures div { display: flex; flex-direction: column; } .figures b { font-size: 1.55rem; font-weight: 600; }
.figures span { opacity: .75; font-size: .9em; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.4rem 1.8rem; }
.grid figure { margin: 0; } .grid figcaption { font-size: .9em; overflow-wrap: anywhere; margin-bottom: .3rem; }
.histogram { width: 100%; } .histogram .count, .histogram .mark { font-size: 11px; }
.keeps { fill: var(--keeps); background: var(--keeps); } .drops { fill: var(--drops); background: var(--drops); }
.histogram .threshold { stroke: currentColor; stroke-dasharray: 3 3; fill: none; }
.histogram .axis { stroke: var(--line); fill: none; } .histogram .mark { font-weight: 600; }
.meter { display: block; min-width: 6rem; height: .6em; margin-top: .5em; background: var(--soft); border-radius: 2px; }
.meter span { display: block; height: 100%; min-width: 1px; border-radius: 2px; }
td.id { overflow-wrap: anywhere; } td.words { max-width: 34rem; } summary { cursor: pointer; opacity: .8; }
details > table, details > p { margin-top: .4rem; } .wide > table { min-width: 34rem; }
"""


def page(report: Mapping[str, Any]) -> str:
    """HTML of a report with any of the keys: levels, sources, histograms, clusters, pairs, groups, bias, domain, noise,
    labels, claims (see the sections below for the shape of each)."""
    levels = report.get("levels") or []
    parts = [
        _head(levels),
        _section("From raw to kept", _flow(levels)),
        _section("What each rule took", _rules(levels)),
        _section("Noise before and after", _noise(report.get("noise"), report.get("labels"))),
        _section("Measures and their thresholds", _histograms(report.get("histograms") or [], levels)),
        _section("Duplicates", _pairs(report.get("pairs")) + _clusters(report.get("clusters") or [])),
        _section("Groups", _groups(report.get("groups") or [])),
        _section("Bias", _facts(report.get("bias"), "The level did not run.")),
        _section("Domain", _domain(report.get("domain"))),
        _section("Sources", _sources(report.get("sources") or {})),
        _section("The public claim beside this run", _claims(report.get("claims") or [])),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What cleaning did</title><style>{STYLE}{LOOK}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}"


def _none(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def _head(levels: Sequence[Mapping[str, Any]]) -> str:
    if not levels:
        return "<h1>What cleaning did</h1>" + _none("No level has reported.")
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
    return (picture or _none("No record came in.")) + (f'<ul class="notes">{listed}</ul>' if listed else "")


def _rules(levels: Sequence[Mapping[str, Any]]) -> str:
    taken = [
        (str(level["name"]), rule, count, int(level["in"]))
        for level in levels
        for rule, count in ranked(level.get("dropped_by_rule") or {})
    ]
    if not taken:
        return _none("None took any record.")
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
    else:
        parts.append(_none("Noise was not estimated."))
    if labels:
        parts.append(
            f"<p>{_count(labels.get('suspected'))} labels are suspected to be wrong, {_count(labels.get('reviewed'))} "
            "were reviewed by a person.</p>"
        )
    return "".join(parts)


def _histograms(histograms: Sequence[Mapping[str, Any]], levels: Sequence[Mapping[str, Any]]) -> str:
    """Each {"measure", "edges", "counts", "threshold": number or null, "direction": "min" or "max", "rule"}."""
    if not histograms:
        return _none("No measure was counted.")
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
        figures.append(f"<figure><figcaption>{name}</figcaption>{picture or _none('not drawn')}</figure>")
    lead = '<p class="notes">Records by measure, each bin as wide as the next; what the threshold takes is in red.</p>'
    return f'{lead}<div class="grid">{"".join(figures)}</div>'


def _pairs(pairs: Mapping[str, Any] | None) -> str:
    """{"verified", "merged", "vetoed": {kind: count}}."""
    if not pairs:
        return _none("Near duplicates were not looked for.")
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
        return _none("There is no cluster of duplicates.")
    largest = sorted(clusters, key=lambda each: (-int(each["size"]), str(each["survivor"])))[:SHOWN_CLUSTERS]
    rows = []
    for each in largest:
        members = [str(member) for member in each.get("members") or []]
        listed = "<br>".join(f"<code>{escape(member)}</code>" for member in members[:SHOWN_MEMBERS])
        hidden = int(each["size"]) - 1 - len(members[:SHOWN_MEMBERS])
        more = f"<br>and {hidden:,} more" if hidden > 0 and listed else ""
        folded = f"<details><summary>{len(members):,} shown</summary>{listed}{more}</details>" if listed else "–"
        rows.append(
            [
                f"<code>{escape(str(each['survivor']))}</code>",
                f"{int(each['size']):,}",
                short(each.get("similarity_min")),
                _count(each.get("linked")),
                folded,
            ]
        )
    names = ["Survivor", "Records", "Least similarity", "Kept apart", "Members"]
    return f"<h3>The largest clusters</h3>{_table(names, rows, numbers=(1, 2, 3), ids=(0, 4))}"


def _groups(groups: Sequence[Mapping[str, Any]]) -> str:
    """Each {"group", "records", "kept", "positive_share", ...}: further columns are shown as they come."""
    if not groups:
        return _none("The records have no group.")
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
        return _none("The level did not run.")
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
    return text + _facts(facts, "")


def _facts(facts: Mapping[str, Any] | None, missing: str) -> str:
    """Any nested figures as a table of two columns."""
    if not facts:
        return _none(missing)
    rows = [[escape(name), escape(value)] for name, value in _flat(facts)]
    return _table(["", ""], rows, ids=(0, 1))


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
        return _none("Sources were not counted.")
    counts = sorted(((int(c["in"]), int(c["kept"]), str(name)) for name, c in sources.items()), reverse=True)
    if len(counts) > SHOWN_SOURCES:
        rest = counts[SHOWN_SOURCES:]
        counts = counts[:SHOWN_SOURCES]
        counts.append((sum(r[0] for r in rest), sum(r[1] for r in rest), f"{len(rest):,} more sources"))
    rows = [
        [
            f"<code>{escape(name)}</code>",
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
        return _none("No claim was compared.")
    rows = [
        [escape(str(each["what"])), escape(short(each["claim"])), escape(short(each.get("measured"))) or "not measured"]
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
    return shown + (
        f'<details><summary>{len(hidden):,} more</summary><div class="wide"><table>{head}{body(hidden)}</table></div></details>'
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "–"


def _percent(share: Any) -> str:
    return f"{float(share):.2%}" if isinstance(share, int | float) else "–"


def _count(value: Any) -> str:
    return f"{int(value):,}" if isinstance(value, int | float) else "no count of"
