"""export: checkpoints -> ONNX graphs, fused, each one's answers proven on the test rows against its torch model."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from pydantic import Field

from compression.engines import load_classifier
from compression.export import (
    GRAPHS,
    OFFERS,
    Model,
    Source,
    ask_models,
    prove,
    prove_control,
    report,
    require,
    write_graphs,
)
from compression.parity import Bars
from data.tokens import load_tokenizer
from tasks.objective import require_classifier
from tasks.params import Params
from tasks.stage import Context, Result, run
from training.checkpoint import load_card
from training.rows import load_rows

CHECKPOINTS: dict[Source, Path] = {
    "unpruned": Path("artifacts/finetune/checkpoint"),
    "pruned": Path("artifacts/prune/checkpoint"),
    "quantized": Path("artifacts/quantize/checkpoint"),
}
TEST = Path("artifacts/split/test")
OUT = Path("artifacts/export")


class Export(Params):
    """What an exported graph may differ by from the torch model it came from."""

    threads: int = Field(ge=1, description="threads of torch and of each engine while answers are compared")
    max_rows: int = Field(ge=1, description="test rows compared, evenly picked where the test split has more")
    fp32_max_diff: float = Field(gt=0, description="fp32: largest difference of any logit")
    flip_share: float = Field(ge=0, le=1, description="reduced precision: share of decisions that may flip")
    mean_diff: float = Field(gt=0, description="reduced precision: mean |logit difference| over the logits' spread")
    isolation_int8: float = Field(gt=0, description="INT8: what neighbors and padding may move a logit by")
    isolation_fp32: float = Field(gt=0, description="the same for fp32")
    isolation_bf16: float = Field(gt=0, description="the same for bf16")


def main(params: Export, ctx: Context) -> Result:
    require_classifier(load_card(CHECKPOINTS["unpruned"]).task)
    torch.set_num_threads(params.threads)
    models = {source: Model(load_classifier(path), load_card(path)) for source, path in CHECKPOINTS.items()}
    final = models["quantized"]
    tokenizer = load_tokenizer(CHECKPOINTS["quantized"] / "tokenizer.json")
    rows = load_rows(TEST, tokenizer, final.card.preprocess, final.card.labels)
    rows = rows.take(range(0, len(rows), -(-len(rows) // params.max_rows)))
    bars = Bars(**params.model_dump(exclude={"threads", "max_rows"}))

    with ctx.out(OUT) as folder, ctx.progress(len(GRAPHS) + len(models) + len(OFFERS) + 1, unit="steps") as bar:
        folder.mkdir()
        fusions = write_graphs(models, folder, lambda name: bar.advance(1, name))
        references = ask_models(models, rows, lambda name: bar.advance(1, name))
        found = prove(models, references, folder, rows, bars, params.threads, on_step=lambda key: bar.advance(1, key))
        require(found, final.card)
        control = prove_control(final, references["quantized"], folder, rows, bars, params.threads)
        bar.advance(1, "4-bit control")
        summary = report(found, control, fusions, folder)
        (folder / "report.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")

    parity = summary["parity"]
    passed = sum(entry["passed"] for entry in parity["engines"].values())
    if not summary["four_bit"]["refused"]:
        print("warning: the 4-bit control passed parity: export.mean_diff is too wide for this model", flush=True)
    key = (
        f"fp32 within {parity['fp32_max_diff']:.1g}, {parity['fp32_flips']} flips; {passed} of {len(found)} pass; "
        f"4-bit control {'refused' if summary['four_bit']['refused'] else 'NOT refused'}"
    )
    metrics = {
        "fp32_max_diff": parity["fp32_max_diff"],
        "fp32_flips": parity["fp32_flips"],
        "flip_share": {name: entry["flip_share"] for name, entry in parity["engines"].items()},
        "relative_diff": {name: entry["relative_diff"] for name, entry in parity["engines"].items()},
        "four_bit_relative_diff": summary["four_bit"]["relative_diff"],
    }
    return Result(len(rows), len(GRAPHS), key, metrics)


if __name__ == "__main__":
    run("export", Export, main)
