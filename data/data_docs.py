"""The data docs: one page without scripts, fonts or anything from elsewhere, so that it opens anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from data.expectations import Check, describe, found

STYLE = """
:root { color-scheme: light dark; --line: #8884; --ok: #2e7d4f; --bad: #c0392b; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .45rem .7rem; vertical-align: top; }
tr { border-bottom: 1px solid var(--line); } th { font-weight: 600; } td.number, th.number { text-align: right; }
td.number { font-variant-numeric: tabular-nums; }
.checks { table-layout: fixed; overflow-wrap: anywhere; }
.checks th:first-child { width: 3.5rem; } .checks th:last-child { width: 16rem; }
@media (max-width: 45rem) {
  .checks, .checks tbody, .checks tr, .checks td { display: block; width: auto; }
  .checks tr:first-child { display: none; }
  .checks td { padding: .15rem 0; } .checks tr { padding: .5rem 0; }
}
.ok { color: var(--ok); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.bar { display: inline-block; height: .6em; min-width: 1px; background: #5b8def; border-radius: 2px; }
.notes { opacity: .7; font-size: .9em; } code { font-size: .92em; }
"""


def page(
    checks: Sequence[Check],
    counts: Mapping[str, int],
    dropped: Mapping[str, int],
    profile: Mapping[str, str],
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """HTML of the checks by suite, of the counts (in, kept, dropped), the drops by rule and a few measures; `more` has
    further tables by title."""
    failed = sum(not check.passed for check in checks)
    verdict = (
        f'<span class="bad">{failed} of {len(checks)} expectations failed</span>'
        if failed
        else f'<span class="ok">all {len(checks)} expectations hold</span>'
    )
    facts = " · ".join(f"{value:,} {escape(name)}" for name, value in counts.items())
    title = "Kept records" if profile else "Records that came in"
    parts = [f"<h1>{title}</h1><p>{verdict} · {facts}</p>"]
    for suite in dict.fromkeys(check.suite for check in checks):
        parts.append(f"<h2>Suite {escape(suite)}</h2>{_checks([check for check in checks if check.suite == suite])}")
    if profile:
        parts.append(f"<h2>Why records were dropped</h2>{_drops(dropped, sum(counts.values()) or 1)}")
    for title, facts_of in {"Profile of the kept records": profile, **(more or {})}.items():
        rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts_of.items())
        if rows:
            parts.append(f"<h2>{escape(title)}</h2><table>{rows}</table>")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Data docs</title><style>{STYLE}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _checks(checks: Sequence[Check]) -> str:
    rows = []
    for check in checks:
        mark = '<span class="ok">holds</span>' if check.passed else '<span class="bad">fails</span>'
        notes = f'<div class="notes">{escape(check.notes)}</div>' if check.notes else ""
        result = found(check) if not check.passed or check.unexpected or check.observed else f"{check.rows:,} records"
        rows.append(f"<tr><td>{mark}</td><td>{escape(describe(check))}{notes}</td><td>{escape(result)}</td></tr>")
    return f"<table class='checks'><tr><th></th><th>Expectation</th><th>Found</th></tr>{''.join(rows)}</table>"


def _drops(dropped: Mapping[str, int], total: int) -> str:
    if not dropped:
        return "<p>None was.</p>"
    most = max(dropped.values())
    rows = "".join(
        f'<tr><td><code>{escape(rule)}</code></td><td class="number">{count:,}</td>'
        f'<td class="number">{count / total:.2%}</td>'
        f'<td><span class="bar" style="width:{20 * count / most:.1f}rem"></span></td></tr>'
        for rule, count in sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    )
    head = '<tr><th>Rule</th><th class="number">Records</th><th class="number">Share</th><th></th></tr>'
    return f"<table>{head}{rows}</table>"
