"""finetune under the objectives dialogue and summarize, from records to a model that answers; what comes after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from data.dialogues import messages_of
from data.errors import DaymillError
from data.ingest import Places, ingest
from data.readers.item import Limits as ReadLimits
from data.tokens import load_tokenizer
from data.validate import field_map
from tasks import benchmark, bundle, export, finetune, pretrain, prune, quantize
from tasks.finetune import Finetune
from tasks.params import load
from tasks.pretrain import Pretrain
from tasks.stage import Context
from tasks.tokenize import Tokenize
from tasks.tokenize import main as tokenize
from training.chat import Limits, Template
from training.checkpoint import load_checkpoint
from training.generate import Decoding, generate
from training.model import Transformer
from training.rouge import rouge

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PARTS = {"train": 160, "valid": 40, "test": 40}
WORDS = ["red", "green", "blue"]
ANSWER = {"tokens": 12, "rows": 30, "samples": 3, "save_every_s": 0}
SMALL = {"max_len": 48, "epochs": 8, "rows": 6, "max_tokens": 150, "lr": 1e-2, "evaluations": 0.2, "dropout": 0.0}
FIXED = {"precision": "fp32", "max_chars": 200}


def dialogue(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """A color is told and named again: what an answer says stands in its question."""
    color = WORDS[int(rng.integers(len(WORDS)))]
    said = [("user", f"My favorite is {color}, mind it."), ("assistant", f"You like {color}.")]
    said += [("user", "Thanks!"), ("assistant", f"Enjoy your {color} day.")]
    messages = [{"role": role, "content": content} for role, content in said[: 2 + 2 * (number % 2)]]
    return {"messages": messages} if number % 3 else {"prompt": said[0][1], "completion": said[1][1]}


def write_split(root: Path, broken: int = 0) -> None:
    """Through ingest, as records come; `broken` of them have a text of their own and no dialogue."""
    for seed, (part, count) in enumerate(PARTS.items()):
        rng = np.random.default_rng(seed)
        records = [dialogue(rng, i) | {"id": f"{part}{i}"} for i in range(count)]
        records += [{"id": f"plain{i}", "text": "no dialogue at all"} for i in range(broken)]
        write_part(root, part, records)


def write_part(root: Path, part: str, records: list[dict[str, Any]]) -> None:
    source, folder = root / f"{part}.jsonl", root / "artifacts/split" / part
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    others = [root / f"{part}.{name}" for name in ("quarantine", "ledger")]
    ingest([(source.name, source)], Places(folder, *others), field_map(), ReadLimits())
    for path in others:
        path.unlink()


def context(name: str, key: str = "test") -> Context:
    work = Path("artifacts/.work") / name / key
    work.mkdir(parents=True, exist_ok=True)
    return Context(name, Path.cwd(), work, (Path(f"artifacts/{name}"),))


def params_of(objective: str, **changes: Any) -> Finetune:
    """As shipped, small."""
    shipped = load("finetune", Finetune, ROOT / "params.yaml").model_dump(by_alias=True)
    return Finetune(**shipped | SMALL | FIXED | {"objective": objective, "answer": ANSWER} | changes)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose stages before finetune have run."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        torch.set_num_threads(1)
        write_split(root)
        knobs = {"vocab_size": 320, "max_chars": 200, "tail": 0.5, "max_token_length": 16, "corpus": "corpus"}
        (root / "corpus").mkdir()
        tokenize(Tokenize(**knobs), context("tokenize"))
        shipped = load("pretrain", Pretrain, ROOT / "params.yaml").model_dump()
        small = {"depth": 1, "tokens": 2_000, "length": 32, "max_len": 64, "rows": 4, "precision": "fp32"}
        pretrain.main(Pretrain(**shipped | small), context("pretrain"))
    return root


def run(project: Path, monkeypatch: pytest.MonkeyPatch, params: Finetune) -> dict[str, Any]:
    monkeypatch.chdir(project)
    result = finetune.main(params, context("finetune", params.objective))
    assert "ROUGE-L" in result.key and result.metrics["steps"] > 0
    report: dict[str, Any] = json.loads((project / "artifacts/finetune/report.json").read_text())
    return report


@pytest.mark.parametrize("objective", ["dialogue", "summarize"])
def test_from_records_to_a_judged_model_that_answers(
    project: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    params = params_of(objective)
    report = run(project, monkeypatch, params)
    assert report["objective"] == objective
    for part in ("valid", "test"):
        assert report["loss"][part]["ours"] < 0.3 * report["loss"][part]["untrained"]
    scores = report["rouge"]
    assert scores["answers"] == 30, "as many as answer.rows"
    assert scores["ours"]["rougeL"] > 0.6 > max(scores[name]["rougeL"] for name in ("untrained", "lead_words"))
    assert len(report["samples"]) == 3 and set(report["samples"][0]) == {
        "question", "reference", "ours", "untrained", "lead_words", "nearest"
    }  # fmt: skip
    assert report["parts"]["train"]["dialogues"] == 160 and report["parts"]["train"]["without_dialogue"] == 0
    assert report["evaluations"][-1]["valid_loss"] < report["evaluations"][0]["valid_loss"]
    assert (project / "artifacts/finetune/curves/dvclive/plots/metrics/valid/loss.tsv").exists()

    folder = project / "artifacts/finetune/checkpoint"
    model, card = load_checkpoint(folder)
    assert isinstance(model, Transformer) and card.task == objective
    limits = Limits(card.preprocess["max_len"], card.preprocess["answer_tokens"], 200, card.preprocess["tail"])
    template = Template(load_tokenizer(folder / "tokenizer.json"), limits)
    table = pq.read_table(project / "artifacts/finetune/predictions.parquet")
    assert table.column_names == ["id", "answer_tokens", "rouge1", "rouge2", "rougeL", "part"], "no texts"
    numbers = [int(id_.removeprefix("test")) for id_ in table["id"].to_pylist()]
    rng = np.random.default_rng(2)
    records = [dialogue(rng, i) for i in range(PARTS["test"])]
    said = [messages_of(records[number]) or [] for number in numbers]
    found = generate(model, [template.question(m) for m in said], Decoding(12), banned=template.unspeakable)
    again = rouge([m[-1].content for m in said], [template.text(tokens) for tokens in found])
    assert again["rougeL"].tolist() == table["rougeL"].to_pylist(), "the checkpoint answers as reported"


def test_what_a_user_got_wrong_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for changes, message in (
        ({"max_len": 80}, "made for at most 64 tokens"),
        ({"max_len": 15}, "expected at least 4"),
        ({"from": "nowhere"}, r"config\.json is missing"),
    ):
        with pytest.raises(DaymillError, match=message):
            finetune.main(params_of("dialogue", **changes), context("finetune"))


def test_records_without_a_dialogue_are_counted_and_none_at_all_is_an_error(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/pretrain").symlink_to(project / "artifacts/pretrain")
    write_split(tmp_path, broken=5)
    report = run(tmp_path, monkeypatch, params_of("dialogue", epochs=1))
    assert report["parts"]["test"]["without_dialogue"] == 5
    for part in PARTS:
        write_part(tmp_path, part, [{"text": "no dialogue at all"}])
    with pytest.raises(DaymillError, match=r"none of 1 records holds a dialogue.*docs/objectives\.md"):
        finetune.main(params_of("dialogue"), context("finetune"))


LATER: list[tuple[str, Any, Callable[..., Any]]] = [
    ("prune", prune.Prune, prune.main),
    ("quantize", quantize.Quantize, quantize.main),
    ("export", export.Export, export.main),
    ("benchmark", benchmark.Benchmark, benchmark.main),
    ("bundle", bundle.Bundle, bundle.main),
]


@pytest.mark.parametrize(("name", "model", "main"), LATER, ids=[name for name, _, _ in LATER])
def test_later_stages_say_what_they_need(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: Any, main: Callable[..., Any]
) -> None:
    if not (project / "artifacts/finetune/report.json").exists():
        run(project, monkeypatch, params_of("summarize", epochs=1))
    monkeypatch.chdir(project)
    with pytest.raises(DaymillError, match=r"finetune\.objective is (summarize|dialogue).*--until finetune"):
        main(load(name, model, ROOT / "params.yaml"), context(name))
