"""`daymill why` and `daymill ledger`: a record's story and the counts of all, for a reader or as JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from data.tally import Balance, Count, Tally
from flows.settings import find_root
from flows.terminal import console, titled
from tasks import ledgers

SHOWN_PARTNERS = 10
SHOWN_SOURCES = 20
VERDICT_STYLE = {"kept": "green", "repaired": "yellow", "dropped": "red", "quarantined": "red"}


def show_why(wanted: str, as_json: bool, with_text: bool) -> int:
    story = ledgers.why(find_root(), wanted, with_text)
    if as_json:
        print(json.dumps(story, ensure_ascii=False))
    else:
        render_story(story, console())
    return 0


def show_ledger(
    stage: str | None,
    rule: str | None,
    source: str | None,
    samples: int,
    with_text: bool,
    as_json: bool,
    csv_path: Path | None,
) -> int:
    """1 where some stage's records do not add up."""
    found = ledgers.counts(find_root(), stage, rule, source, samples, with_text)
    if csv_path is not None:
        write_csv(found.counts, csv_path)
    late = ledgers.stale(find_root())
    if as_json:
        print(json.dumps(as_dict(found) | {"stale": late}, ensure_ascii=False))
    else:
        render_tally(found, console())
        for name in late:
            print(f"{name} is of an earlier run and is not counted: `daymill run --until {name}` brings it up to date")
    return 0 if found.conserved else 1


def render_story(story: Mapping[str, Any], out: Console) -> None:
    """One line a fact, stage after stage."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True, min_width=10)
    table.add_column(overflow="fold")
    for name, line in lines_of(story):
        table.add_row(name, line)
    out.print(Text(story["id"] or place_of(story["origin"]), style="bold").append("  ").append(outcome(story)))
    out.print(table)
    if story.get("text") is not None:
        out.print(Padding(Text(story["text"]), (1, 0, 0, 2)))


def outcome(story: Mapping[str, Any]) -> Text:
    """In a few words: where the record is now."""
    if story["ingest"]["verdict"] == "quarantined":
        return Text(f"quarantined at ingest: {story['ingest']['rule']}", style="red")
    for stage in ("clean", "split"):
        if stage in story and story[stage]["verdict"] == "dropped":
            return Text(f"dropped by {stage}: {story[stage]['rule']}", style="red")
    if "split" in story:
        return Text(f"kept, in {story['split']['part']}", style="green")
    return Text("kept so far", style="green")


def lines_of(story: Mapping[str, Any]) -> Iterator[tuple[str, str | Text]]:
    yield "from", place_of(story["origin"])
    yield from decided("ingest", story["ingest"])
    if "bytes" in story["ingest"]:
        yield (
            "",
            f"{story['ingest']['bytes']:,} bytes; quarantine.jsonl has the first {story['ingest']['bytes_stored']:,}",
        )
    if story["ingest"].get("raw") is not None:
        yield "", Text(story["ingest"]["raw"])
    for row in story["also"]:
        yield "also", f"{place_of(row)}: {row['verdict']} {row['rule']}".rstrip()
    if "rules" in story:
        yield from measured(story["rules"])
    if story.get("partners") is not None:
        yield from near(story["partners"])
    if "clean" in story:
        yield from decided("clean", story["clean"])
        yield from cleaned(story["clean"])
        if review := story["review"]:
            told = ", ".join(f"{name} {value or '-'}" for name, value in review.items() if name != "id")
            yield "review", f"in review.csv: {told}"
    if "split" in story:
        yield from decided("split", story["split"])
    if story.get("label") is not None:
        yield "label", Text(story["label"])
    for stage in story.get("unknown_to", ()):
        yield stage, f"does not know this record: its outputs are of an earlier run (daymill run --until {stage})"
    for stage in story["not_run"]:
        yield stage, Text("has not run yet", style="dim")


def decided(stage: str, told: Mapping[str, Any]) -> Iterator[tuple[str, Text]]:
    line = Text(told["verdict"], style=VERDICT_STYLE[told["verdict"]])
    if told["rule"]:
        line.append(f" by {told['rule']}", style="none")
    if told.get("part"):
        line.append(f", in {told['part']}", style="none")
    if told["score"] is not None:
        line.append(f", measured {told['score']:.6g}", style="none")
    if told["partner"] is not None:
        like = "" if told["similarity"] is None else f" (similarity {told['similarity']:.4f})"
        line.append(f"; its partner is {told['partner']}{like}", style="none")
    if told["note"]:
        line.append(f"; {told['note']}", style="none")
    yield stage, line
    if told.get("would_keep"):
        yield "", Text(f"{' and '.join(told['would_keep'])} would keep it")


def measured(rules: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Text]]:
    """Broken rules on a line each, the others one after another."""
    broken = [entry for entry in rules if not entry["holds"]]
    yield "quality", Text(f"{len(rules) - len(broken)} of {len(rules)} rules hold" if rules else "every rule is off")
    for entry in broken:
        line = Text(f"{entry['rule']} {shown(entry['limit'])}: measured {shown(entry['value'])}", style="red")
        yield "", line.append(f"; {entry['would_keep']} would keep it", style="none")
    held = [f"{entry['rule']} {shown(entry['limit'])}: {shown(entry['value'])}" for entry in rules if entry["holds"]]
    if held:
        yield "", Text(", ".join(held), style="dim")


def shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "none"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.4g}"


def near(partners: Mapping[str, Any]) -> Iterator[tuple[str, Text]]:
    if not partners["count"]:
        yield "near", Text("no near duplicate")
        return
    for place, pair in enumerate(partners["pairs"][:SHOWN_PARTNERS]):
        yield "" if place else "near", Text(f"{pair['id']}: similarity {pair['similarity']:.4f}, {pair['fate']}")
    if partners["count"] > SHOWN_PARTNERS:
        yield "", Text(f"and {partners['count'] - SHOWN_PARTNERS:,} more (--json lists them)")


def cleaned(told: Mapping[str, Any]) -> Iterator[tuple[str, Text]]:
    if told.get("changed_since"):
        broken = ", ".join(told["broken_now"])
        now = f"{broken} would drop it" if broken else "every quality rule would keep it"
        yield "", Text(f"params.yaml has changed since: now {now} (daymill run --until clean)", style="yellow")
    if told["stands_for"]:
        ids = [f"{row['id']} ({row['rule']} {row['similarity'] or 0:.4f})" for row in told["stands_for"]]
        more = f" and {len(ids) - SHOWN_PARTNERS:,} more" if len(ids) > SHOWN_PARTNERS else ""
        yield "stands for", Text(", ".join(ids[:SHOWN_PARTNERS]) + more)
    if told.get("cluster") is not None:
        yield "cluster", Text(told["cluster"])
    if told.get("weight") is not None:
        yield "weight", Text(f"{told['weight']:.4g}")


def place_of(row: Mapping[str, Any]) -> str:
    if row["line"] is None:
        return f"{row['source']}, the whole file"
    return f"{row['source']}, line {row['line']:,}" + (f", byte {row['offset']:,}" if row["offset"] is not None else "")


def render_tally(found: Tally, out: Console) -> None:
    out.print(balance_table(found.balances))
    for balance in found.balances:
        if balance.complaint:
            out.print(f"{balance.stage}: NOT CONSERVED: {balance.complaint}", style="bold red", highlight=False)
        else:
            out.print(f"{balance.stage}: {balance.line}", highlight=False)
    out.print()
    out.print(rule_table(found))
    if len({count.source for count in found.counts}) > 1:
        out.print(source_table(found.counts))
    for (stage, rule), rows in found.samples.items():
        out.print(f"{stage}: {rule}", style="bold", highlight=False)
        for row in rows:
            out.print(Text(f"  {sample_line(row)}"), soft_wrap=True)
            if row.get("text") is not None:
                out.print(Padding(Text(row["text"]), (0, 0, 1, 4)))


def balance_table(balances: Sequence[Balance]) -> Table:
    table = titled("Records", box=box.SIMPLE_HEAD)
    table.add_column("stage", no_wrap=True)
    for name in ("in", "kept", "repaired", "dropped", "quarantined"):
        table.add_column(name, justify="right", no_wrap=True)
    for told in balances:
        numbers = (told.rows_in, told.kept, told.repaired, told.dropped, told.quarantined)
        table.add_row(told.stage, *(f"{number:,}" for number in numbers))
    return table


def rule_table(found: Tally) -> Table:
    """Records by rule, over the sources; the share is of what came into the stage."""
    table = titled("By rule", box=box.SIMPLE_HEAD)
    for name in ("stage", "level", "rule", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("records", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    rows_in = {balance.stage: balance.rows_in for balance in found.balances}
    sums: dict[tuple[str, str, str, str], int] = {}
    for count in found.counts:
        key = (count.stage, count.level, count.rule, count.verdict)
        sums[key] = sums.get(key, 0) + count.records
    order = {stage: place for place, stage in enumerate(rows_in)}
    for key, records in sorted(sums.items(), key=lambda item: (order[item[0][0]], item[0][1], -item[1], item[0])):
        stage, level, rule, verdict = key
        share = f"{records / rows_in[stage]:.2%}" if rows_in[stage] else "-"
        table.add_row(stage, level, rule or "-", Text(verdict, VERDICT_STYLE[verdict]), f"{records:,}", share)
    return table


def source_table(counts: Sequence[Count]) -> Table:
    table = titled("By source", box=box.SIMPLE_HEAD)
    table.add_column("stage", no_wrap=True)
    table.add_column("source", overflow="fold", ratio=1)
    for name in ("kept", "dropped", "quarantined"):
        table.add_column(name, justify="right", no_wrap=True)
    sums: dict[tuple[str, str], dict[str, int]] = {}
    for count in counts:
        verdict = "kept" if count.verdict == "repaired" else count.verdict
        found = sums.setdefault((count.stage, count.source), dict.fromkeys(("kept", "dropped", "quarantined"), 0))
        found[verdict] += count.records
    for (stage, source), numbers in list(sums.items())[:SHOWN_SOURCES]:
        table.add_row(stage, source, *(f"{number:,}" for number in numbers.values()))
    if len(sums) > SHOWN_SOURCES:
        table.add_row("", f"and {len(sums) - SHOWN_SOURCES:,} more (--csv or --json lists them)")
    return table


def sample_line(row: Mapping[str, Any]) -> str:
    where = f"{row['source']}:{row['line']}" if row["line"] is not None else row["source"]
    parts = [row["id"] or where, *([where] if row["id"] else [])]
    if row["score"] is not None:
        parts.append(f"measured {row['score']:.6g}")
    if row["partner"] is not None:
        parts.append(f"like {row['partner']} ({row['similarity'] or 0:.4f})")
    return "  ".join(parts)


def as_dict(found: Tally) -> dict[str, Any]:
    return {
        "conserved": found.conserved,
        "stages": [vars(balance) for balance in found.balances],
        "counts": [vars(count) for count in found.counts],
        "samples": [{"stage": stage, "rule": rule, "records": rows} for (stage, rule), rows in found.samples.items()],
    }


def write_csv(counts: Sequence[Count], path: Path) -> None:
    """One line a stage, level, rule, verdict and source."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["stage", "level", "rule", "verdict", "source", "records"])
        writer.writeheader()
        writer.writerows(vars(count) for count in counts)
