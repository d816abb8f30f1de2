"""The model card: what a bundle is, how good, how small, how fast, and where not to trust it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from serving.manifest import Manifest


def model_card(manifest: Manifest) -> str:
    """card.md of a manifest. Known figures get their sentences; a section without figures says it was not measured."""
    metrics = manifest.metrics
    sections = [
        intro(manifest),
        "## Quality\n\n" + (quality(metrics["test"]) if "test" in metrics else NOT_MEASURED),
        "## Size\n\n" + (figures(metrics["compression"]) if "compression" in metrics else NOT_MEASURED),
        "## Parity with the trained model\n\n" + (figures(metrics["parity"]) if "parity" in metrics else NOT_MEASURED),
        "## Speed\n\n" + (figures(metrics["speed"]) if "speed" in metrics else NOT_MEASURED),
        "## Data and lineage\n\n" + (figures(manifest.lineage) if manifest.lineage else "Not recorded.\n"),
        "## Limits\n\n" + limits(manifest),
    ]
    return "\n".join(sections)


NOT_MEASURED = "Not measured.\n"


def intro(manifest: Manifest) -> str:
    decision = (
        f"P({manifest.positive}) at or above {manifest.threshold:.4g} is answered with {manifest.positive}"
        if manifest.binary
        else "the most probable label is answered"
    )
    return (
        f"# {manifest.name}\n\n"
        f"Version {manifest.version}. Text in, one of {', '.join(manifest.labels)} out; {decision}.\n"
        f"Runs on {manifest.runtime.package} {manifest.runtime.range} in {manifest.precision}, "
        f"tuned on a CPU with {', '.join(manifest.cpu_features) or 'no special instructions'}.\n"
    )


def quality(test: Mapping[str, Any]) -> str:
    """The headline metric with its interval, beside the baselines."""
    rows = [("this model, as served", test.get("f1"), test.get("f1_low"), test.get("f1_high"))]
    rows += [
        (title, test.get(f"{key}_f1"), test.get(f"{key}_f1_low"), test.get(f"{key}_f1_high"))
        for key, title in (("tfidf", "TF-IDF + logistic regression"), ("majority", "always the most frequent label"))
    ]
    lines = [
        f"{test.get('metric', 'F1')} on {test.get('rows', '?')} rows of the test split, 95 % bootstrap intervals:\n",
        "| model | F1 | interval |",
        "|---|---|---|",
    ]
    for title, value, low, high in rows:
        interval = f"{low:.3f} - {high:.3f}" if low is not None and high is not None else ""
        lines.append(f"| {title} | {f'{value:.3f}' if value is not None else 'not measured'} | {interval} |")
    return "\n".join(lines) + "\n"


def figures(values: Mapping[str, Any]) -> str:
    """A mapping as a table, nested keys joined by dots."""
    return "\n".join(["| what | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in flat(values))]) + "\n"


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in sorted(values.items()):
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            yield f"{prefix}{key}", text.replace("|", "\\|").replace("\n", " ")


def limits(manifest: Manifest) -> str:
    cut = manifest.preprocess
    lines = [
        f"At most {cut.max_len} tokens and {cut.max_chars} characters of a text are read, {cut.tail:.0%} at its end.",
        f"Every text gets one of {len(manifest.labels)} labels, also one of a kind that training never saw.",
        "The score is a softmax output and no promise of a frequency.",
        f"On another CPU a logit may differ by up to {manifest.tolerance:g}; beyond that a server is not ready.",
    ]
    if manifest.int8 and not manifest.reduced_range:
        lines.append("INT8: refused on x86 CPUs without VNNI.")
    return "".join(f"- {line}\n" for line in lines)
