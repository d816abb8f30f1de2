"""tokenize, pretrain and finetune from records to a judged classifier, in their smallest form."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from data.errors import DaymillError
from data.shards import RECORD_SCHEMA, ShardWriter
from data.tokens import load_tokenizer, read_tokens
from tasks.finetune import Finetune
from tasks.finetune import main as finetune
from tasks.pretrain import Pretrain
from tasks.pretrain import main as pretrain
from tasks.stage import Context
from tasks.tokenize import Tokenize
from tasks.tokenize import main as tokenize
from training.checkpoint import load_checkpoint
from training.decision import decide
from training.model import Transformer
from training.predict import predict_logits
from training.rows import load_rows

pytestmark = pytest.mark.slow

TOKENIZE = {"vocab_size": 300, "max_chars": 200, "tail": 0.5, "max_token_length": 16, "corpus": "corpus"}
PRETRAIN: dict[str, Any] = {
    "depth": 1, "tokens": 4000, "length": 32, "max_len": 32, "rows": 4, "accumulate": 1, "lr": 2e-3, "warmup": 0.1,
    "hold": 0.0, "floor": 0.05, "weight_decay": 0.1, "clip": 1.0, "dropout": 0.0, "precision": "fp32",
    "attention": "plain", "emulate": False, "fp8_scaling": "tensor", "replay": None,
    "save_every_s": 1, "save_share": 0.02, "compile": "off", "telemetry": {"every": 5, "wandb": "off"}, "seed": 0,
    "smoothing": 0.0, "activation": "swiglu", "head_dim": 32, "kv_heads": None,
    "dsrelu": {"theta": 0.3, "learned": False, "ramp": 0.3, "skip": "none", "skip_share": 0.6},
    "parallel": {
        "data": 1, "tensor": 1, "pipeline": 1, "schedule": "auto", "shard": False, "rebalance": 1.25, "restarts": 0,
        "compress": {"method": "off", "saved": 0.8, "dense_steps": 6},
    },
}  # fmt: skip
FINETUNE: dict[str, Any] = {
    "from": "pretrain", "positive": None, "max_len": 24, "max_chars": 200, "tail": 0.5, "attention": "full",
    "epochs": 6, "rows": 16, "max_tokens": 512, "batches": "buckets", "lr": 3e-3, "warmup": 0.1, "floor": 0.05,
    "weight_decay": 0.05, "clip": 1.0, "dropout": 0.0, "smoothing": 0.05, "balance": True, "average": 0.9,
    "evaluations": 1, "patience": 3, "precision": "fp32", "emulate": False, "ranks": 1, "save_share": 0.02,
    "telemetry": {"every": 5, "wandb": "off"}, "seed": 0,
}  # fmt: skip
PARTS = {"train": 240, "valid": 60, "test": 90}
BAIT = {"ham": "agenda notes", "spam": "winner prize", "scam": "inherit gold"}


def write_split(folder: Path, count: int, seed: int, labels: list[str], weighted: bool = False) -> None:
    """Records whose label is told by two words; every tenth has none, and every fourth weighs half."""
    rng = np.random.default_rng(seed)
    words = ["meeting", "report", "garden", "river", "window", "paper", "stone", "music"]
    chosen = [
        str(label) for label in rng.choice(labels, count, p=[0.6, *[0.4 / (len(labels) - 1)] * (len(labels) - 1)])
    ]
    columns: dict[str, Any] = {name: pa.nulls(count, RECORD_SCHEMA.field(name).type) for name in RECORD_SCHEMA.names}
    columns |= {
        "id": [f"{seed}-{i}" for i in range(count)],
        "text": [" ".join(rng.choice(words, 5)) + f" {BAIT[label]} {i}" for i, label in enumerate(chosen)],
        "label": [None if i % 10 == 0 else label for i, label in enumerate(chosen)],
        "group": [["a", "b", None][i % 3] for i in range(count)],
        "source": ["made"] * count,
        "extra": ["{}"] * count,
    }
    schema = RECORD_SCHEMA
    if weighted:
        schema = schema.append(pa.field("weight", pa.float32()))
        columns["weight"] = [0.5 if i % 4 == 0 else None for i in range(count)]
    with ShardWriter(folder, schema) as writer:
        writer.write(pa.table(columns, schema=schema))


def context(name: str, *outs: str) -> Context:
    work = Path("artifacts/.work") / name / "test"
    work.mkdir(parents=True, exist_ok=True)
    return Context(name, Path.cwd(), work, tuple(Path(out) for out in outs))


def run_all(
    root: Path, monkeypatch: pytest.MonkeyPatch, labels: list[str], weighted: bool = False, **changes: Any
) -> dict[str, Any]:
    """The report of a run over a made-up corpus with these labels."""
    monkeypatch.chdir(root)
    torch.set_num_threads(1)
    (root / "corpus").mkdir(exist_ok=True)
    for seed, (part, count) in enumerate(PARTS.items()):
        write_split(root / "artifacts/split" / part, count, seed, labels, weighted)
    tokenize(Tokenize(**TOKENIZE), context("tokenize", "artifacts/tokenize"))
    pretrain(Pretrain(**PRETRAIN), context("pretrain", "artifacts/pretrain"))
    finetune(Finetune(**FINETUNE | changes), context("finetune", "artifacts/finetune"))
    report: dict[str, Any] = json.loads((root / "artifacts/finetune/report.json").read_text())
    return report


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records that went through all three stages, the last one hardly trained."""
    root = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_all(root, monkeypatch, ["ham", "spam"], epochs=0.1)
    return root


@pytest.fixture
def project(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared one, and the working directory."""
    shutil.copytree(prepared, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    torch.set_num_threads(1)
    return tmp_path / "project"


def test_ranks_finetune_as_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        reports.append(run_all(tmp_path / str(ranks), monkeypatch, ["ham", "spam"], ranks=ranks, epochs=3))
        assert list(Path("artifacts/finetune/curves/dvclive/plots/metrics/layers/ffn_dead").glob("*.tsv"))
    for alone, together in zip(*(report["evaluations"] for report in reports), strict=True):
        assert together["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-3)
    with pytest.raises(ValueError, match="for objective: classify alone"):
        Finetune(**FINETUNE | {"ranks": 2, "objective": "dialogue"})


def test_from_records_to_a_judged_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run_all(tmp_path, monkeypatch, ["ham", "spam"])
    out = tmp_path / "artifacts"
    assert report["positive"] == "spam" and report["positive_reason"] == "the rarer of two labels"
    assert report["test"]["rows"] == 81 and report["unlabelled_train_rows"] == 24
    assert report["test"]["f1"] > 0.9 and report["test"]["tfidf_f1"] > 0.9 > report["test"]["majority_f1"]
    assert report["test"]["f1_low"] <= report["test"]["f1"] <= report["test"]["f1_high"]
    assert report["test"]["paired_low"] <= report["test"]["paired_diff"] <= report["test"]["paired_high"]
    assert set(report["by_group"]) == {"a", "b"} and set(report["by_source"]) == {"made"}
    assert set(report["baselines"]) == {"tfidf", "majority"}

    model, card = load_checkpoint(out / "finetune/checkpoint")
    rows = load_rows(out / "split/test", load_tokenizer(out / "finetune/checkpoint/tokenizer.json"), card.preprocess)
    again = decide(predict_logits(model, rows.labelled().tokens), card.labels, card.positive, card.threshold)
    table = pq.read_table(out / "finetune/predictions.parquet")
    assert table.column_names == ["id", "label", "score", "predicted", "part"], "no texts"
    test = table.filter(pa.compute.equal(table["part"], "test"))
    assert test["predicted"].to_pylist() == [card.labels[i] for i in again], "the checkpoint answers as reported"

    tokens = read_tokens(out / "tokenize", "train")
    assert len(tokens) == PARTS["train"], "rows without a label are learned from too"
    assert list((out / "pretrain/curves/tensorboard").glob("events*"))
    assert (out / "finetune/curves/dvclive/plots/metrics/valid_loss.tsv").exists()
    for stage in ("pretrain", "finetune"):
        assert list((out / stage / "curves/dvclive/plots/metrics/layers/ffn_dead").glob("*.tsv"))
        html = (out / stage / "training.html").read_text()
        assert "Where the time went" in html and "Layers at the last look" in html
    assert sum(report["time"].values()) == pytest.approx(1, abs=1e-3)


def test_weights_of_the_train_records_are_used_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {}
    for weighted in (False, True):
        root = tmp_path / str(weighted)
        root.mkdir()
        report = run_all(root, monkeypatch, ["ham", "spam"], weighted=weighted, epochs=2)
        # 60 of 240 rows weigh half; 12 of these (every twentieth of all) have no label.
        assert report["weighted_train_rows"] == (48 if weighted else 0)
        losses[weighted] = report["evaluations"][0]["valid_loss"]
    assert losses[True] != losses[False]


def test_three_labels_are_judged_by_macro_f1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run_all(tmp_path, monkeypatch, ["ham", "scam", "spam"])
    assert report["positive"] is None and report["threshold"] == 0.5
    assert report["labels"] == ["ham", "scam", "spam"]
    assert report["test"]["f1"] > 0.8


@pytest.mark.usefixtures("project")
def test_what_a_user_got_wrong_is_named() -> None:
    for changes, message in (
        ({"positive": "fraud"}, r"finetune\.positive is 'fraud'"),
        ({"max_len": 64}, "made for at most 32 tokens"),
        ({"from": "nowhere"}, r"config\.json is missing"),
    ):
        with pytest.raises(DaymillError, match=message):
            finetune(Finetune(**FINETUNE | changes), context("finetune", "artifacts/finetune"))


@pytest.mark.usefixtures("project")
def test_thresholds_shared_keys_and_smoothing_from_params_to_a_classifier() -> None:
    sparse = {"theta": 0.3, "learned": True, "ramp": 0.3, "skip": "tokens", "skip_share": 0.6}
    more = {"activation": "dsrelu", "head_dim": 16, "kv_heads": 2, "smoothing": 0.1, "dsrelu": sparse}
    result = pretrain(Pretrain(**PRETRAIN | more), context("sparse", "artifacts/pretrain"))
    (layer,) = result.metrics["backward_by_layer"]
    assert layer["zeros"] >= 0.6 and layer["seconds"] > 0
    assert layer["flops"] == 8 * (4 * math.ceil(0.4 * 32)) * 64 * 256, "of 4 rows of 32 tokens"
    model, card = load_checkpoint(Path("artifacts/pretrain/checkpoint"))
    assert (card.model.head_dim, card.model.layers[0].heads, card.model.layers[0].kv_heads) == (16, 4, 2)
    assert card.model.learned_theta
    assert isinstance(model, Transformer) and model.blocks[0].mlp.threshold != pytest.approx(0.3)
    finetune(Finetune(**FINETUNE | {"epochs": 0.2}), context("again", "artifacts/finetune"))
    tuned, _ = load_checkpoint(Path("artifacts/finetune/checkpoint"))
    assert tuned.backbone.config.activation == "dsrelu"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "expected a divisor of the 2 heads"),
        ({"head_dim": 64, "kv_heads": 2}, "expected a divisor of the 1 heads"),
        ({"head_dim": 48}, "16, 32 or 64"),
        (
            {
                "activation": "dsrelu",
                "dsrelu": PRETRAIN["dsrelu"] | {"skip": "neurons"},
                "parallel": PRETRAIN["parallel"] | {"tensor": 2},
            },
            "dsrelu.skip: neurons is not for tensor-parallel ranks",
        ),
        ({"dsrelu": PRETRAIN["dsrelu"] | {"theta": 0.0}}, "greater than 0"),
    ],
)
def test_knobs_that_do_not_go_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Pretrain(**PRETRAIN | changes)


@pytest.mark.usefixtures("project")
def test_no_tokens_means_finetuning_from_scratch() -> None:
    result = pretrain(Pretrain(**PRETRAIN | {"tokens": 0}), context("scratch", "artifacts/pretrain"))
    assert result.key == "random weights" and result.metrics["steps"] == 0


def test_a_corpus_apart_is_pretrained_on_without_what_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    for seed, (part, count) in enumerate(PARTS.items()):
        write_split(tmp_path / "artifacts/split" / part, count, seed, ["ham", "spam"])
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / ".gitkeep").touch()
    task = tokenize(Tokenize(**TOKENIZE), context("tokenize", "artifacts/tokenize"))
    own = {name: (tmp_path / "artifacts/tokenize" / name).read_bytes() for name in ("tokenizer.json", "train.bin")}
    assert "corpus" not in task.metrics and not (tmp_path / "artifacts/tokenize/corpus.bin").exists()

    judged = pq.read_table(tmp_path / "artifacts/split/test")["text"].to_pylist()[:3]
    (corpus / "a.txt").write_text("\n\n".join(f"page {at} of other matters, told at length" for at in range(200)))
    (corpus / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in judged))
    (corpus / "c.txt").write_text("漢字" * 300)
    counts = tokenize(Tokenize(**TOKENIZE), context("tokenize", "artifacts/tokenize")).metrics["corpus"]
    assert counts["held_out"] == 3 and counts["kept"] == counts["documents"] - 3 - counts["repeats"] > 20
    assert own == {name: (tmp_path / "artifacts/tokenize" / name).read_bytes() for name in own}, "the task's own stay"
    tokenizer = load_tokenizer(tmp_path / "artifacts/tokenize/tokenizer.json")
    texts = [
        tokenizer.decode(list(document)[:-1]) for document in read_tokens(tmp_path / "artifacts/tokenize", "corpus")
    ]
    assert not set(judged) & set(texts)
    assert sum(text.count("漢字") for text in texts) == 100, (
        "all of it in one document of 200, whose repeats are left out"
    )
    trained = pretrain(Pretrain(**PRETRAIN), context("pretrain", "artifacts/pretrain")).metrics
    assert trained["learned_from"] == "corpus" and trained["valid_loss"] > 0


@pytest.mark.usefixtures("project")
def test_pretraining_over_ranks_is_that_of_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    two = PRETRAIN | {"depth": 2, "accumulate": 2}
    alone = pretrain(Pretrain(**two), context("alone", "artifacts/pretrain")).metrics
    whole, _ = load_checkpoint(Path("artifacts/pretrain/checkpoint"))
    ranks = PRETRAIN["parallel"] | {"pipeline": 2}
    told = pretrain(Pretrain(**two | {"parallel": ranks}), context("ranks", "artifacts/pretrain")).metrics
    spread, _ = load_checkpoint(Path("artifacts/pretrain/checkpoint"))
    assert told["tokens"] == alone["tokens"] and told["steps"] == alone["steps"]
    assert told["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-4)
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(tensor, spread.state_dict()[name], atol=1e-4), name
    assert "zero-bubble" in capsys.readouterr().out, "the planner's table is shown"


@pytest.mark.usefixtures("project")
def test_compressed_ranks_tell_what_they_sent(capsys: pytest.CaptureFixture[str]) -> None:
    compress = PRETRAIN["parallel"]["compress"] | {"method": "top-k"}
    ranks = PRETRAIN["parallel"] | {"data": 2, "compress": compress}
    told = pretrain(Pretrain(**PRETRAIN | {"parallel": ranks}), context("ranks", "artifacts/pretrain")).metrics
    model, _ = load_checkpoint(Path("artifacts/pretrain/checkpoint"))
    one_step = 4 * sum(p.numel() for p in model.parameters()) / 1e6  # MB; a ring of two sends that much
    dense_steps = compress["dense_steps"]
    line = next(line for line in capsys.readouterr().out.splitlines() if "MB sent" in line)
    sent, received = [float(word.replace(",", "")) for word in line.split() if word[0].isdigit()][:2]
    assert sent == received and told["steps"] > 4 * dense_steps
    assert dense_steps * one_step < sent <= (dense_steps + 0.2 * (told["steps"] - dense_steps)) * one_step + 0.1


@pytest.mark.parametrize("more", [{"data": 1}, {"tensor": 2}, {"pipeline": 2}, {"shard": True}])
def test_compression_is_for_whole_replicas(more: dict[str, Any]) -> None:
    compress = PRETRAIN["parallel"]["compress"] | {"method": "auto"}
    Pretrain(**PRETRAIN | {"parallel": PRETRAIN["parallel"] | {"data": 2, "compress": compress}})
    with pytest.raises(ValueError, match=r"compress\.method is auto, which is for data ranks alone"):
        Pretrain(**PRETRAIN | {"parallel": PRETRAIN["parallel"] | {"data": 2, "compress": compress} | more})
