"""The `daymill` command. Nothing heavy is imported before a command is known: `daymill --help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from flows.samples import add_samples
from flows.settings import LAST, STAGES, UI_PORT

Command = Callable[[argparse.Namespace], int]

EXAMPLES = """\
examples:
  daymill sample spam                     fetch the sample: 6,046 real mails
  daymill run                             raw records in, a released model out
  daymill run --data my/records/ --until clean
  daymill plan                            which stages would run, and why
  daymill serve                           the released model on http://127.0.0.1:8080
  daymill up                              the Prefect UI: a form, live logs, cancel
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 error, 2 wrong usage or parameters, 130 interrupted."""
    arguments = parser().parse_args(argv)
    command: Command = arguments.command
    try:
        return command(arguments)
    except DaymillError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if is_usage(error) else 1
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept for the next run", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `daymill check ... | head`
        sys.stderr.close()
        return 1


def is_usage(error: DaymillError) -> bool:
    from flows.presets import UsageError
    from tasks.params import ParamsError

    return isinstance(error, UsageError | ParamsError)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="daymill",
        description="Raw records in, a small fast model out, every day.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, command: Command, summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        sub.set_defaults(command=command)
        return sub

    sub = add("run", run, "run the pipeline: stages by DVC, then release, then three questions")
    sub.add_argument("--data", default="", metavar="PATH", help="your records; the path is written into params.yaml")
    until = [*STAGES, LAST]
    sub.add_argument(
        "--until", default=LAST, metavar="STAGE", choices=until, help="last stage to run (default release)"
    )
    sub.add_argument(
        "--preset",
        default="keep",
        metavar="NAME",
        help="values written into params.yaml: default, quick, accounts, icd10, adult, dialogues, subjects",
    )

    add("plan", plan, "say which stages would run and why; runs nothing")

    sub = add("check", check, "decide files of records as ingest would; runs nothing")
    sub.add_argument("files", nargs="+", type=Path, metavar="FILE")
    sub.add_argument("--json", action="store_true", help="one JSON line a file")

    sub = add("pairs", pairs, "decide pairs of texts: the same, or different, and why; runs nothing")
    sub.add_argument("file", type=Path, metavar="FILE", help='JSON Lines: {"case": ..., "a": text, "b": text}')
    help_ = "least similarity (default: clean.similarity of params.yaml, or 0.8)"
    sub.add_argument("--threshold", type=float, metavar="T", help=help_)
    help_ = "a replaced content word keeps texts apart too (default: score.near_duplicates of params.yaml)"
    sub.add_argument("--strict", action="store_true", help=help_)
    sub.add_argument("--json", action="store_true", help="one JSON line a pair")

    add_samples(add("sample", lambda _: 2, "get records to try the pipeline with"))

    sub = add("why", why, "tell a record's whole story: where it came from, what each rule measured, where it went")
    sub.add_argument("record", metavar="ID", help="or SOURCE:LINE, such as notes.jsonl:17, for a record without an id")
    sub.add_argument("--text", action="store_true", help="print its text and labels too")
    sub.add_argument("--json", action="store_true", help="as one JSON line")

    sub = add(
        "audit", audit, "check on your own settings that training is exact: steps, packing, resume; a minute at most"
    )
    sub.add_argument("--json", action="store_true", help="one JSON line a check")

    sub = add("settings", lambda _: 2, "find settings of training by trying them here; sets nothing")
    kinds = sub.add_subparsers(title="settings", metavar="SETTING", required=True)
    kind = kinds.add_parser("batch", help="the largest micro-batch of pretraining that fits, and its speed")
    kind.add_argument("--limit-gib", type=float, metavar="GIB", help="memory of a try (default: 80 %% of what is free)")
    kind.add_argument("--most", type=int, default=256, metavar="ROWS", help="not more than these (default 256)")
    kind.add_argument("--seconds", type=float, default=120.0, metavar="S", help="a try that takes longer does not fit")
    kind.add_argument("--device", choices=["cpu", "cuda"], help="default: a GPU where there is one")
    kind.set_defaults(command=settings_batch)
    kind = kinds.add_parser("lr", help="a learning-rate range test: where the loss falls fastest, where it rises")
    kind.add_argument("--stage", choices=["pretrain", "finetune"], default="pretrain")
    kind.add_argument("--low", type=float, default=1e-6, metavar="RATE", help="first rate (default 1e-6)")
    kind.add_argument("--high", type=float, default=1.0, metavar="RATE", help="last rate (default 1)")
    kind.add_argument("--steps", type=int, default=200, metavar="N", help="rates in between (default 200)")
    kind.set_defaults(command=settings_lr)
    kind = kinds.add_parser("ladder", help="the same recipe at growing depth, each loss beside what was predicted")
    kind.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3, 4], metavar="D", help="default: 1 2 3 4")
    kind.add_argument("--tokens", type=int, metavar="N", help="of the largest (default pretrain.tokens)")
    kind.set_defaults(command=settings_ladder)

    sub = add("ledger", ledger, "count records by stage, level, rule and source, and check that none is lost")
    sub.add_argument("--stage", metavar="STAGE", help="only this stage")
    sub.add_argument("--rule", metavar="RULE", help="only what this rule decided")
    sub.add_argument("--source", metavar="FILE", help="only records of this file")
    sub.add_argument("--samples", type=int, default=0, metavar="N", help="ids of N records a rule")
    sub.add_argument("--text", action="store_true", help="print the texts of the samples too")
    sub.add_argument("--json", action="store_true", help="as one JSON line")
    sub.add_argument("--csv", type=Path, metavar="FILE", help="write the counts there too")

    sub = add("seen", seen, "tell which records of a day's files were seen before, by an index on disk")
    sub.add_argument("files", nargs="+", type=Path, metavar="FILE")
    sub.add_argument("--index", type=Path, metavar="FOLDER", help="default: .cache/seen")
    sub.add_argument("--add", action="store_true", help="then make them known; the first time, create the index")
    sub.add_argument("--threshold", type=float, metavar="X", help="similarity that counts (default score's jaccard)")
    sub.add_argument("--json", action="store_true", help="one JSON line a record")

    sub = add("convert", convert, "write a pretrained checkpoint in the layout of another library")
    sub.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="such as artifacts/pretrain/checkpoint")
    sub.add_argument("out", type=Path, metavar="FOLDER", help="must not exist yet")
    sub.add_argument("--to", choices=["llama"], required=True, help="llama: for transformers' LlamaForCausalLM")

    sub = add("up", up, "run the Prefect server with the pipeline's form until Ctrl-C")
    sub.add_argument("--port", type=int, default=UI_PORT, help=f"of the UI (default {UI_PORT})")

    sub = add("status", status, "what is served, what ran last, what runs now")
    sub.add_argument("--at", metavar="TIME", help="only: what served then (2026-11-29T18:00, UTC or with offset)")
    add("summary", summary, "print the last run's summary again")

    sub = add("promote", promote, "put the bundle through the gate and release it when it passes")
    sub.add_argument("--why", default="", help="for the log")

    sub = add("rollback", rollback, "serve an earlier version again")
    sub.add_argument("--to", default="", metavar="VERSION", help="default: the one before the champion")
    sub.add_argument("--why", required=True, help="for the log")

    sub = add("serve", serve, "answer over HTTP (Open Inference Protocol V2) with the released model")
    which = sub.add_mutually_exclusive_group()
    which.add_argument("--bundle", type=Path, metavar="FOLDER", help="serve this bundle")
    which.add_argument("--releases", type=Path, metavar="FOLDER", help="serve the champion of this folder")
    sub.add_argument("--host", default="127.0.0.1")
    sub.add_argument("--port", type=int, default=8080)

    sub = add("ask", ask, "ask a running server about a text")
    sub.add_argument("text", nargs="*", help="default: read from standard input")
    sub.add_argument("--url", default="http://127.0.0.1:8080")
    return top


def run(arguments: argparse.Namespace) -> int:
    from flows.session import run_pipeline

    return run_pipeline(arguments.data, arguments.until, arguments.preset)


def plan(_: argparse.Namespace) -> int:
    from flows.session import show_plan

    return show_plan()


def check(arguments: argparse.Namespace) -> int:
    from data.check import check_file, render_table

    decided = []
    for path in arguments.files:
        decided.append(check_file(path, field_names()))
        if arguments.json:
            print(decided[-1].json_line(), flush=True)
    if not arguments.json:
        print(render_table(decided))
    return 0


def pairs(arguments: argparse.Namespace) -> int:
    from data.dedup.pairs import THRESHOLD, Answer, bad_lines, decide_file, render_table
    from data.dedup.protect import Protector, protect_config

    knobs = dict(section("score").get("near_duplicates") or {})
    protector = Protector(protect_config(knobs | ({"substitution": "strict"} if arguments.strict else {})))
    threshold = arguments.threshold
    if threshold is None:
        threshold = section("clean").get("similarity", THRESHOLD)
    answers, refused = [], []
    for decided in decide_file(arguments.file, protector, threshold):
        if not isinstance(decided, Answer):
            refused.append(decided)
        elif arguments.json:
            print(decided.json_line(), flush=True)
        else:
            answers.append(decided)
    if not arguments.json:
        print(render_table(answers))
    if refused:
        raise bad_lines(refused, arguments.file)
    return 0


def field_names() -> dict[str, Any] | None:
    """The checkout's mapping of field names, so that a file is decided as ingest would; outside of one, our own."""
    fields = section("ingest").get("fields")
    return dict(fields) if fields else None


def audit(arguments: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from flows.settings import find_root
    from tasks.audit import run_audit
    from training.audit import Check, line, verdict

    def tell(check: Check) -> None:
        print(json.dumps(asdict(check)) if arguments.json else line(check), flush=True)

    found, on = run_audit(find_root(), tell)
    if not arguments.json:
        print(f"\n{verdict(found)} (tried on {on})")
    return 0 if all(check.held for check in found) else 1


def settings_batch(arguments: argparse.Namespace) -> int:
    from flows.tuning import show_batch

    return show_batch(arguments.limit_gib, arguments.most, arguments.seconds, arguments.device)


def settings_lr(arguments: argparse.Namespace) -> int:
    from flows.tuning import show_rates

    return show_rates(arguments.stage, arguments.low, arguments.high, arguments.steps)


def settings_ladder(arguments: argparse.Namespace) -> int:
    from flows.tuning import show_ladder

    return show_ladder(arguments.depths, arguments.tokens)


def section(name: str) -> dict[str, Any]:
    """A section of the checkout's params.yaml; empty outside of one."""
    from flows.settings import find_root
    from tasks.params import plain, read

    try:
        params = find_root() / "params.yaml"
    except DaymillError:
        return {}
    return dict(plain(read(params).get(name) or {}))


def why(arguments: argparse.Namespace) -> int:
    from flows.ledgers import show_why

    return show_why(arguments.record, arguments.json, arguments.text)


def ledger(arguments: argparse.Namespace) -> int:
    from flows.ledgers import show_ledger

    given = arguments
    return show_ledger(given.stage, given.rule, given.source, given.samples, given.text, given.json, given.csv)


def seen(arguments: argparse.Namespace) -> int:
    from flows.seen import show_seen

    return show_seen(arguments.files, arguments.index, arguments.threshold, arguments.add, arguments.json)


def convert(arguments: argparse.Namespace) -> int:
    from training.huggingface_llama import convert_checkpoint

    written = convert_checkpoint(arguments.checkpoint, arguments.out)
    print(
        f"{arguments.out}: LlamaForCausalLM, {len(written.layers)} layers x {written.width}, {written.vocab_size} words"
    )
    return 0


def up(arguments: argparse.Namespace) -> int:
    from flows.up import serve_form

    return serve_form(arguments.port)


def status(arguments: argparse.Namespace) -> int:
    from flows.status import show_served_at, show_status

    return show_served_at(arguments.at) if arguments.at else show_status()


def summary(_: argparse.Namespace) -> int:
    from flows.terminal import show_summary

    return show_summary()


def promote(arguments: argparse.Namespace) -> int:
    from flows.release import show_promotion

    return show_promotion(arguments.why)


def rollback(arguments: argparse.Namespace) -> int:
    from flows.release import show_rollback

    return show_rollback(arguments.to, arguments.why)


def serve(arguments: argparse.Namespace) -> int:
    from flows.serve import serve_model

    return serve_model(arguments.bundle, arguments.releases, arguments.host, arguments.port)


def ask(arguments: argparse.Namespace) -> int:
    from serving.client import ask

    texts = arguments.text or [sys.stdin.read()]
    for answer in ask(arguments.url, texts):
        print(f"{answer.label}  {answer.score:.3f}  (version {answer.version}, {answer.milliseconds:.1f} ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
