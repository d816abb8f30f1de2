"""benchmark: every graph on every engine, timed against eager PyTorch; the fastest that may serve is the choice."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import Field, model_validator

from compression.benchmark import Plan, check_files, choose, line_up, markdown, measure
from compression.cpu import describe_machine
from compression.plot import draw
from compression.turns import Block
from tasks.objective import require_classifier
from tasks.params import Params
from tasks.stage import Context, Result, run
from training.checkpoint import load_card

CHECKPOINT = Path("artifacts/finetune/checkpoint")
EXPORTED = Path("artifacts/export")
OUT = Path("artifacts/benchmark")


class Benchmark(Params):
    """What is timed, for how long, and what decides."""

    threads: int = Field(ge=1, description="threads of each engine")
    batches: tuple[int, ...] = Field(min_length=1, description="rows a call")
    seqs: tuple[int, ...] = Field(min_length=1, description="tokens a row")
    decide_batches: tuple[int, ...] = Field(min_length=1, description="batches whose speed decides")
    decide_seq: int = Field(ge=1, description="tokens a row where speed decides")
    calls: int = Field(ge=3, description="timed calls of one turn")
    turn_seconds: float = Field(gt=0, description="a turn ends earlier after this time (but not before 3 calls)")
    seconds: float = Field(gt=0, description="time for all turns; the whole grid is measured once in any case")
    max_file_share: float = Field(gt=0, description="largest file that may serve, over the unpruned fp32 graph's")
    noise: float = Field(ge=0, description="engines this close are equally fast; then ONNX Runtime serves")

    @model_validator(mode="after")
    def check(self) -> Benchmark:
        if min(*self.batches, *self.seqs, *self.decide_batches, 1) < 1:
            raise ValueError("batches and sequences count from 1")
        return self

    def plan(self) -> Plan:
        values = self.model_dump(exclude={"calls", "turn_seconds"})
        return Plan(block=Block(self.calls, self.turn_seconds), **values)


def main(params: Benchmark, ctx: Context) -> Result:
    plan, card = params.plan(), load_card(CHECKPOINT)
    require_classifier(card.task)
    model = card.model
    export = json.loads((EXPORTED / "report.json").read_text(encoding="utf-8"))
    parity, files = export["parity"]["engines"], export["files"]
    check_files(EXPORTED, files)
    contenders = line_up(CHECKPOINT, EXPORTED, parity)
    with ctx.progress(None, unit="turns") as bar:
        rows, memory = measure(contenders, plan, model.vocab_size, model.max_len, lambda name: bar.advance(1, name))
    machine = describe_machine(params.threads)
    choice = choose(rows, parity, files, plan, model.max_len)
    with ctx.out(OUT) as folder:
        folder.mkdir()
        found = {"machine": machine, "rows": [asdict(row) for row in rows], "memory_mb": memory, "choice": choice}
        (folder / "benchmark.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        (folder / "benchmark.md").write_text(markdown(rows, memory, files, machine), encoding="utf-8")
        draw(rows, plan, model.max_len, files, machine, choice, folder / "benchmark.png")
    gains = ", ".join(f"{choice[f'speedup_b{batch}']:.1f}x at batch {batch}" for batch in params.decide_batches)
    key = f"{choice['engine']} {choice['precision']}: {gains}, file {choice['file_share']:.1%}"
    return Result(len(contenders), len(rows), key, {"choice": choice})


if __name__ == "__main__":
    run("benchmark", Benchmark, main)
