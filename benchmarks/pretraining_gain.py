"""What pretraining gains: the sample finetuned from random weights, from its own train texts, from a corpus apart.

    python benchmarks/pretraining_gain.py [--tokens N] [--depth D] [--seeds N] [--labels N ...] [--epochs E]

The corpus apart are the docstrings of the packages that Daymill needs, without what shares words with the mails that
are judged. Every seed draws the weights, the order and, where labels are few, which rows have one. F1 is of the test
mails, with its 95 % interval; the gain is over random weights, paired over the same rows. Needs the splits of
`make run`. About an hour on two cores with the defaults.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data.corpus import Tally, documents
from data.heldout import HeldOut
from data.shards import read_table
from data.tokens import encode, load_tokenizer, read_tokens, write_tokens
from training.classify import train_classifier
from training.config import ModelConfig
from training.decision import decide
from training.finetune import calibrate, classifier_from, positive_label
from training.knobs import ClassifyConfig, PretrainConfig
from training.metrics import bootstrap_interval, paired_bootstrap
from training.model import Transformer
from training.predict import predict_logits
from training.pretrain import pretrain
from training.rows import Rows, load_rows

SPLIT, TOKENS = Path("artifacts/split"), Path("artifacts/tokenize")
OUT = Path("artifacts/bench/pretraining_gain.json")
PACKAGES = ("matplotlib", "numpy", "pandas", "scipy", "sklearn")
MAX_CHARS = 1600
LENGTH, MAX_LEN = 256, 192
STARTS = {"random weights": None, "its own texts": "train", "a corpus apart": "corpus"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--depth", type=int, default=3)
    options.add_argument("--tokens", type=int, default=800_000)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--labels", type=int, nargs="+", default=[100, 500, 0], help="0: all")
    options.add_argument("--epochs", type=float, default=2.0, help="over all labels; few rows see 10 times as many")
    given = options.parse_args()
    tokenizer = load_tokenizer(TOKENS / "tokenizer.json")
    preprocess = {"max_len": MAX_LEN, "max_chars": 4096, "tail": 0.5}
    train = load_rows(SPLIT / "train", tokenizer, preprocess).labelled()
    valid, test = (load_rows(SPLIT / name, tokenizer, preprocess, train.names).labelled() for name in ("valid", "test"))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(json.dumps(write_shards(folder, tokenizer)), flush=True)
        for seed in range(given.seeds):
            backbones = {start: backbone(folder, shard, given, seed) for start, shard in STARTS.items()}
            for labels in given.labels:
                answers = {}
                for start, (model, loss) in backbones.items():
                    answers[start] = finetuned(model, some(train, labels, seed), valid, test, given.epochs, seed)
                    entry = told(test, answers[start], answers["random weights"], positive_label(train, None))
                    found.append({"seed": seed, "labels": labels, "start": start, "lm_loss": loss} | entry)
                    print(line(found[-1]), flush=True)
    print(f"\n{'labels':>7}  {'start':16}{'mean F1':>9}{'over random':>13}")
    for labels in given.labels:
        for start in STARTS:
            rows = [each for each in found if (each["labels"], each["start"]) == (labels, start)]
            mean, gain = (statistics.mean(each[key] for each in rows) for key in ("f1", "gain"))
            print(f"{labels or 'all':>7}  {start:16}{mean:9.4f}{gain:>+13.4f}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def write_shards(folder: Path, tokenizer: Tokenizer) -> dict[str, int]:
    """The corpus apart as tokens in `folder`, as the tokenize stage would write it; what became of it."""
    texts = folder / "docstrings"
    texts.mkdir()
    for package in PACKAGES:
        (texts / f"{package}.txt").write_text("\n\n".join(docstrings(package)), encoding="utf-8")
    split = {
        name: read_table(SPLIT / name, columns=["text"])["text"].to_pylist() for name in ("train", "valid", "test")
    }
    held_out, tally = HeldOut(split["valid"] + split["test"], known=split["train"]), Tally()

    def encoded() -> Iterator[NDArray[np.int32]]:
        for batch in documents(sorted(texts.iterdir()), MAX_CHARS, held_out, tally):
            yield from encode(tokenizer, batch, 4 * MAX_CHARS + 2, MAX_CHARS)

    tokens = write_tokens(folder, "corpus", encoded(), tokenizer.get_vocab_size())
    return tally.metrics() | {"tokens": tokens}


def docstrings(package: str) -> Iterator[str]:
    """Docstrings of a package's modules, classes and functions, in the order of the files."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, package
    root = Path(spec.origin).parent
    for path in sorted(root.rglob("*.py")):
        if "tests" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                    yield text


def backbone(folder: Path, shard: str | None, given: argparse.Namespace, seed: int) -> tuple[Transformer, float | None]:
    """A model pretrained on a shard, or not at all; and its loss on the validation mails then."""
    torch.manual_seed(seed)
    tokenizer = load_tokenizer(TOKENS / "tokenizer.json")
    model = Transformer(ModelConfig.from_depth(given.depth, tokenizer.get_vocab_size(), max_len=LENGTH))
    if shard is None:
        return model, None
    config = PretrainConfig(tokens=given.tokens, length=LENGTH, rows=8, seed=seed, evaluations=1)
    train = read_tokens(folder if shard == "corpus" else TOKENS, shard)
    done = pretrain(model, train, read_tokens(TOKENS, "valid"), config, state=folder / f"{shard}-{seed}")
    return model, done.last("valid/loss")


def some(rows: Rows, labels: int, seed: int) -> Rows:
    """As many rows as are said to have a label, drawn by the seed; all for 0."""
    return rows.take(np.random.default_rng(seed).permutation(len(rows))[:labels]) if labels else rows


def finetuned(model: Transformer, train: Rows, valid: Rows, test: Rows, epochs: float, seed: int) -> NDArray[np.int64]:
    """What a classifier on these weights decides of the test rows; the threshold is chosen on valid."""
    positive = positive_label(train, None)
    classifier = classifier_from(model, len(train.names), 0.1, causal=False, seed=seed)
    few = len(train) <= 1000
    config = ClassifyConfig(epochs=10 * epochs if few else epochs, seed=seed, evaluations=0.2 if few else 2, patience=0)
    train_classifier(classifier, train, config, valid=valid)
    threshold = calibrate(predict_logits(classifier, valid.tokens), valid, positive)
    return decide(predict_logits(classifier, test.tokens), train.names, positive, threshold)


def told(test: Rows, ours: NDArray[np.int64], random: NDArray[np.int64], positive: str | None) -> dict[str, float]:
    at = None if positive is None else test.names.index(positive)
    f1, gain = bootstrap_interval(test.labels, ours, at), paired_bootstrap(test.labels, ours, random, at)
    return {
        "f1": f1.value, "f1_low": f1.low, "f1_high": f1.high,
        "gain": gain.value, "gain_low": gain.low, "gain_high": gain.high,
    }  # fmt: skip


def line(entry: dict[str, Any]) -> str:
    return (
        f"seed {entry['seed']}, {entry['labels'] or 'all'} labels, {entry['start']}: "
        f"F1 {entry['f1']:.4f} ({entry['f1_low']:.4f} to {entry['f1_high']:.4f}), over random {entry['gain']:+.4f} "
        f"({entry['gain_low']:+.4f} to {entry['gain_high']:+.4f})"
        + (f", mails' loss {entry['lm_loss']:.3f}" if entry["lm_loss"] is not None else "")
    )


if __name__ == "__main__":
    main()
