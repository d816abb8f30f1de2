"""What a run's summary says, in words and figures; terminal.py and artifacts.py give it its looks."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

Found = Mapping[str, Any]


def sections(found: Found) -> list[tuple[str, list[tuple[str, str]]]]:
    """Titles with their lines, in the order of a reader's questions: is it good, is it small, is it fast."""
    listed = [
        ("Quality on the test rows", quality(found.get("test"), found.get("compression"))),
        ("Size and speed", size_and_speed(found.get("compression"), found.get("released"))),
        ("Parity with the trained model", parity(found.get("parity"))),
        ("Controls at the same budget", controls(found.get("controls"))),
        ("Bundle", bundle(found.get("released"))),
    ]
    return [(title, rows) for title, rows in listed if rows]


def quality(test: Found | None, compression: Found | None) -> list[tuple[str, str]]:
    if not test:
        return []
    interval = f" (95 % {decimal(test['f1_low'])} to {decimal(test['f1_high'])})" if test["f1_low"] is not None else ""
    rows = [
        ("rows", count(test["rows"])),
        ("F1, trained model", decimal(test["f1"]) + interval),
        ("F1, TF-IDF baseline", decimal(test["tfidf_f1"]) + difference(test)),
        ("F1, majority baseline", decimal(test["majority_f1"])),
    ]
    if compression and compression["f1_final"] is not None:
        loss = compression["f1_final"] - compression["f1_unpruned_fp32"]
        rows.insert(
            2, ("F1, compressed model", f"{decimal(compression['f1_final'])} ({loss:+.4f}{paired(compression)})")
        )
    return rows


def difference(test: Found) -> str:
    return f" (ours {test['paired_diff']:+.4f}{paired(test)})" if test.get("paired_diff") is not None else ""


def paired(of: Found) -> str:
    """The paired bootstrap's interval of a difference, where it was measured."""
    if of.get("paired_low") is None:
        return ""
    return f", paired 95 % {of['paired_low']:+.4f} to {of['paired_high']:+.4f}"


def size_and_speed(compression: Found | None, released: Found | None) -> list[tuple[str, str]]:
    rows = []
    if compression and compression["prunable_kept"] is not None:
        rows.append(("prunable weights kept", share(compression["prunable_kept"])))
    if released and released["file_bytes"] and released["unpruned_file_bytes"]:
        before, after = released["unpruned_file_bytes"], released["file_bytes"]
        rows.append(("model file", f"{megabytes(before)} -> {megabytes(after)} ({share(after / before)})"))
    if released and released["speedup_b1"] is not None:
        gains = f"{released['speedup_b1']:.1f}x at batch 1, {released['speedup_b32']:.1f}x at batch 32"
        rows.append(("over eager fp32", gains))
    for row in released["latency"] if released else []:
        took = f"{row['before_ms']:.1f} -> {row['after_ms']:.1f} ms a call of {row['seq']} tokens"
        rows.append((f"  batch {row['batch']}", took))
    return rows


def parity(measured: Found | None) -> list[tuple[str, str]]:
    if not measured:
        return []
    flips = measured["released_flip_share"]
    return [
        ("rows", count(measured["rows"])),
        ("fp32 graph", f"largest difference {measured['fp32_max_diff']:.1e}, {count(measured['fp32_flips'])} flips"),
        *([("released graph", f"{flips:.2%} of the decisions differ")] if flips is not None else []),
    ]


def controls(measured: Found | None) -> list[tuple[str, str]]:
    if not measured:
        return []
    names = {"ours": "F1, ours", "random": "F1, random pruning", "drop_layers": "F1, dropped layers"}
    rows = [(names.get(name, name), decimal(f1)) for name, f1 in measured.items() if name != "four_bit"]
    four_bit = measured.get("four_bit")
    if four_bit:
        verdict = "refused" if four_bit["refused"] else "NOT refused"
        rows.append(("4-bit weights", f"{verdict} by parity: a logit differs by {four_bit['max_diff']:.2f}"))
    return rows


def bundle(released: Found | None) -> list[tuple[str, str]]:
    if not released:
        return []
    return [
        ("folder", released["bundle"]),
        ("version", released["version"]),
        ("engine", f"{released['engine']}, {released['precision']}"),
        *([("why this one", released["reason"])] if released["reason"] else []),
    ]


def headline(found: Found) -> str:
    states = [entry["state"] for entry in found["stages"].values()]
    ran, cached = states.count("ran"), states.count("cached")
    told = f"{ran} stages ran, {cached} cached, {found['run']['seconds']:.0f} s"
    gate = found.get("gate")
    if not gate:
        return told
    if gate["champion"] == gate["version"]:
        return f"{told}; {gate['version']} serves" + (" already" if gate["verdict"] == "HOLD" else "")
    return f"{told}; {gate['verdict']}, {gate['champion'] or 'nothing'} serves"


def next_commands(found: Found) -> list[str]:
    """What a person may want to do now."""
    listed = [("daymill status", "what is served, and what was")]
    if found.get("gate") and found["gate"]["champion"]:
        listed.insert(0, ("daymill serve", "the released model on http://127.0.0.1:8080, with a page to try it on"))
    elif found.get("test") or "finetune" not in found["stages"]:  # a model that answers is finished with finetune
        listed.insert(0, ("daymill run", "all the way to a released model"))
    listed += [
        ("daymill up", "the Prefect UI: a form to run it again, live logs"),
        ("daymill run --data my/records/", "your own records"),
    ]
    return ["next:", *(f"  {command:<32} {meaning}" for command, meaning in listed)]


def complaint(name: str, code: int, said: Iterable[str]) -> str:
    """What went wrong, in the stage's last words; one that was killed had none."""
    lines = [f"stage {name} failed (exit code {code}):", *said]
    if any(line.endswith(f"exited with -{signal.SIGKILL}") for line in lines):
        lines.append(
            f"{name} was killed from outside (SIGKILL), as the system does when memory runs out. What it had saved "
            "is kept: run again to go on; if memory was short, first lower its rows, workers or ranks in params.yaml"
        )
    return "\n".join(lines)


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def count(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def decimal(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"


def megabytes(value: int) -> str:
    return f"{value / 1e6:.1f} MB"


def share(value: float) -> str:
    return f"{value:.1%}"
