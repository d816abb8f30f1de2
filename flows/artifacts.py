"""A run's artifacts in the Prefect UI, as markdown: its configuration first, its stages and summary last."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from flows.report import Found, count, headline, seconds, sections


def configuration(data: str, until: str, preset: str, changes: Sequence[str], params: Mapping[str, Any]) -> str:
    """What this run was told and what params.yaml says after it; secrets are hidden by the caller."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    yaml.dump(dict(params), text)
    changed = "\n".join(f"- `{change}`" for change in changes) or "- nothing"
    told = f"| data | until | preset |\n|---|---|---|\n| {data or '(params.yaml)'} | {until} | {preset} |"
    return f"{told}\n\nChanged in params.yaml by this run:\n\n{changed}\n\n```yaml\n{text.getvalue()}```"


def stages(found: Found) -> str:
    lines = ["| stage | state | seconds | in | out | key metric |", "|---|---|---:|---:|---:|---|"]
    for name, entry in found["stages"].items():
        cells = (name, entry["state"], seconds(entry["seconds"]), count(entry["in"]), count(entry["out"]), entry["key"])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(found: Found) -> str:
    parts = [f"**{headline(found)}**"]
    for title, rows in sections(found):
        lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
        parts += [f"### {title}", "\n".join(lines)]
    if found.get("gate"):
        reasons = "\n".join(f"- {reason}" for reason in found["gate"]["reasons"])
        parts += [f"### Gate: {found['gate']['verdict']}", reasons]
    if found.get("answers"):
        lines = ["| a mail from | answer | score | version |", "|---|---|---:|---|"]
        for answer in found["answers"]:
            cells = (answer["question"], answer["label"], f"{answer['score']:.3f}", answer["version"])
            lines.append("| " + " | ".join(cells) + " |")
        parts += ["### Three questions", "\n".join(lines)]
    return "\n\n".join(parts)


def stopped(states: Mapping[str, str], name: str, how: str, message: str) -> str:
    rows = [f"| {done} | {state} |" for done, state in states.items()]
    return "\n".join(["| stage | state |", "|---|---|", *rows, f"| {name} | {how} |", "", "```", message, "```"])
