"""Quality over three seeds: the sample's model, pretrained and finetuned anew, beside TF-IDF on the same test rows.

Needs the splits and tokens of `make run`. Run as `make bench-quality`; about two minutes a seed on two cores.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks import finetune, pretrain
from tasks.params import load
from tasks.stage import Context

SEEDS = (0, 1, 2)
OUT = Path("artifacts/bench/quality.json")


def main() -> None:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            found.append(one(seed, Path(folder) / str(seed)) | {"seed": seed})
            print(row(found[-1]), flush=True)
    mean = sum(entry["f1"] for entry in found) / len(found)
    print(f"mean F1 {mean:.4f}, TF-IDF {found[0]['tfidf_f1']:.4f}, difference {mean - found[0]['tfidf_f1']:+.4f}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def one(seed: int, folder: Path) -> dict[str, float]:
    """Test figures of one seed; its checkpoints stay apart from those of the pipeline."""
    context = Elsewhere("quality", Path.cwd(), folder / "work", ())
    context.work.mkdir(parents=True)
    pretrain_params = load("pretrain", pretrain.Pretrain).model_copy(update={"seed": seed})
    pretrain.main(pretrain_params, context)
    finetune.PRETRAINED = folder / "artifacts/pretrain/checkpoint"
    finetune_params = load("finetune", finetune.Finetune).model_copy(update={"seed": seed})
    return finetune.main(finetune_params, context).metrics["test"]


class Elsewhere(Context):
    """A context whose outputs go below the work folder's parent."""

    def out(self, place: str | Path):
        from contextlib import nullcontext

        path = self.work.parent / place
        path.parent.mkdir(parents=True, exist_ok=True)
        return nullcontext(path)


def row(entry: dict[str, float]) -> str:
    return (
        f"seed {entry['seed']}: F1 {entry['f1']:.4f} ({entry['f1_low']:.4f} to {entry['f1_high']:.4f}), "
        f"TF-IDF {entry['tfidf_f1']:.4f}, paired {entry['paired_diff']:+.4f} "
        f"({entry['paired_low']:+.4f} to {entry['paired_high']:+.4f})"
    )


if __name__ == "__main__":
    main()
