"""bundle: the graph that the benchmark chose, with all that a server needs -> one folder that can be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field

from data.errors import DaymillError
from data.shards import read_table
from serving.bundle import Choice, Rules, build_bundle
from tasks.lineage import lineage
from tasks.objective import CLASSIFY, require_classifier
from tasks.params import Params
from tasks.stage import Context, Result, run

TEST, SPLIT = Path("artifacts/split/test"), Path("artifacts/split/report.json")
EXPORT = Path("artifacts/export")
BENCHMARK = Path("artifacts/benchmark/benchmark.json")
FINETUNE, QUANTIZE = Path("artifacts/finetune/report.json"), Path("artifacts/quantize/report.json")
TOKENIZER = Path("artifacts/quantize/checkpoint/tokenizer.json")
OUT = Path("artifacts/bundle")
# Each model was given a threshold of its own: the released graph needs the rules of the one it came from.
SOURCES = {
    "pruned": Path("artifacts/prune/checkpoint/config.json"),
    "quantized": Path("artifacts/quantize/checkpoint/config.json"),
}
FULL_RANGE = 127  # largest INT8 weight; less means that products never saturate in 16 bits


class Bundle(Params):
    """What goes into the bundle beside the model."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the model in the server's addresses"
    )
    golden_rows: int = Field(ge=1, le=1000, description="golden inputs beside the made-up texts")
    threads: int | None = Field(ge=1, description="threads while goldens and test metrics are computed; null: all CPUs")


def main(params: Bundle, ctx: Context) -> Result:
    require_classifier(read(FINETUNE).get("objective", CLASSIFY))
    benchmark, export = read(BENCHMARK), read(EXPORT / "report.json")
    choice = wanted(benchmark, "choice", BENCHMARK)
    file = wanted(wanted(export, "files", EXPORT), choice["graph"], EXPORT)
    card = read(wanted(SOURCES, file["source"], EXPORT))
    texts, labels = test_rows()
    with ctx.progress(len(texts), unit="test rows") as bar, ctx.out(OUT) as folder:
        bundle = build_bundle(
            folder,
            params.name,
            Choice(choice["engine"], choice["precision"], EXPORT / choice["graph"]),
            rules_of(card),
            TOKENIZER,
            texts,
            labels,
            lineage(read(SPLIT)["parts"]),
            metrics_of(choice, file, export),
            params.golden_rows,
            params.threads,
        )
        bar.advance(len(texts))
    manifest = bundle.manifest
    size = sum(entry.bytes for entry in manifest.files.values())
    test = manifest.metrics["test"]
    key = (
        f"{manifest.runtime.package} {manifest.precision}, {size / 1e6:.1f} MB, "
        f"f1 {test['f1']:.3f} ({test['f1_low']:.3f}-{test['f1_high']:.3f})"
    )
    metrics = {"version": manifest.version, "bytes": size, "test": test}
    return Result(len(texts), len(manifest.files) + 1, key, metrics)


def test_rows() -> tuple[list[str], list[str]]:
    """Texts and labels of the labeled test records."""
    table = read_table(TEST, ["text", "label"])
    table = table.filter(table["label"].is_valid())
    if not len(table):
        raise DaymillError(f"{TEST} has no labeled record: a bundle states how good its model is on some")
    return table["text"].to_pylist(), table["label"].to_pylist()


def rules_of(card: dict[str, Any]) -> Rules:
    """Decision rules of a checkpoint's card."""
    cut = card["preprocess"]
    weight_max = (card.get("quantization") or {}).get("weight_max", FULL_RANGE)
    return Rules(
        card["labels"],
        card["positive"],
        card["threshold"],
        cut["max_len"],
        cut["max_chars"],
        cut.get("tail", 0.0),
        reduced_range=weight_max < FULL_RANGE,
    )


def metrics_of(choice: dict[str, Any], file: dict[str, Any], export: dict[str, Any]) -> dict[str, Any]:
    """What the earlier stages measured of this model, for its card; its own test figures are measured anew."""
    test, compression = read(FINETUNE)["test"], read(QUANTIZE)["compression"]
    return {
        "test": {name: test[name] for name in ("tfidf_f1", "majority_f1") if name in test},
        "compression": compression | {"graph_bytes": file["bytes"]},
        "parity": parity_of(choice, file, export),
        "speed": {name: choice[name] for name in ("speedup_b1", "speedup_b32") if name in choice},
    }


def parity_of(choice: dict[str, Any], file: dict[str, Any], export: dict[str, Any]) -> dict[str, Any]:
    """Export's verdict on the chosen graph, engine and precision. Raises DaymillError where it did not pass."""
    for key, verdict in export["parity"]["engines"].items():
        same = verdict["graph"] == file["graph"] and verdict["precision"] == choice["precision"]
        if same and key.startswith(f"{choice['engine']}-"):
            if not verdict["passed"]:
                raise DaymillError(f"{EXPORT}: {key} did not pass parity ({verdict['reason']}); it is not bundled")
            names = ("rows", "max_diff", "relative_diff", "flips", "flip_share", "isolation")
            return {name: verdict[name] for name in names}
    raise DaymillError(
        f"{EXPORT}: parity of {choice['graph']} on {choice['engine']} in {choice['precision']} was not measured; "
        "run the export stage again"
    )


def read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DaymillError(f"{path} is missing: run the stages before bundle, or `dvc repro`") from None


def wanted(mapping: dict[str, Any], key: str, where: Path) -> Any:
    if key not in mapping:
        raise DaymillError(f"{where}: no {key!r}; found {sorted(mapping)}")
    return mapping[key]


if __name__ == "__main__":
    run("bundle", Bundle, main)
