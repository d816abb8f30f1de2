"""Llama folders: the logits of `transformers` both ways, and bad folders told apart by what is wrong with them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

os.environ["HF_HUB_OFFLINE"] = "1"

from data.errors import DaymillError
from data.tokens import parse_tokenizer, train_tokenizer
from flows.cli import main as daymill
from training.checkpoint import Card, save_checkpoint
from training.config import LayerShape, ModelConfig
from training.finetune import classifier_from
from training.huggingface import adopt
from training.huggingface_llama import write_llama
from training.model import Classifier, Transformer

VOCAB = 300
OURS = ModelConfig(VOCAB, 64, (LayerShape(4, 96, 2),) * 2, head_dim=16, max_len=64, rope_theta=50_000.0, norm_eps=1e-5)
IDS = torch.randint(0, VOCAB, (3, 40), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def tokenizer_json() -> str:
    return train_tokenizer(["the quick brown fox jumps over the lazy dog"] * 3, VOCAB)


def ours(config: ModelConfig = OURS) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(config).eval()
    for parameter in model.parameters():  # fresh norms and biases are too regular to notice a mix-up
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.15)
    return model


def logits_of(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model.lm_logits(model.hidden(IDS))


def llama(folder: Path, tokenizer_json: str, save: dict[str, Any] | None = None, **more: Any) -> torch.Tensor:
    """A folder that `transformers` wrote of a random model, and the model's logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    small: dict[str, Any] = {
        "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**small | more, attn_implementation="eager")).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.15)
    model.save_pretrained(folder, **save or {})
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    with torch.no_grad():
        logits: torch.Tensor = model(IDS).logits
    return logits


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    assert a.abs().max() > 1, "logits too small to compare"
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4, "rms_norm_eps": 1e-3},
        {"num_key_value_heads": 1, "head_dim": 32},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
        {"attention_bias": True, "mlp_bias": True},
    ],
    ids=["untied", "tied", "no groups", "one group, wide heads", "rope", "biases"],
)
def test_a_llama_folder_has_the_logits_of_transformers(tmp_path: Path, tokenizer_json: str, more: dict) -> None:
    wanted = llama(tmp_path / "theirs", tokenizer_json, **more)
    model, told = adopt(tmp_path / "theirs")
    close(logits_of(model), wanted)
    assert json.loads(told)["model"] == json.loads(tokenizer_json)["model"]


def test_weights_in_several_files_and_half_precision(tmp_path: Path, tokenizer_json: str) -> None:
    wanted = llama(tmp_path / "theirs", tokenizer_json, {"max_shard_size": "60KB"})
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    close(logits_of(adopt(tmp_path / "theirs")[0]), wanted)

    llama(tmp_path / "half", tokenizer_json)
    path = tmp_path / "half/model.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(path).items()}, path)
    half, _ = adopt(tmp_path / "half")
    assert half.embed.weight.dtype == torch.float32
    assert 0 < (logits_of(half) - wanted).abs().max() < 1


@pytest.mark.parametrize(
    "config",
    [OURS, replace(OURS, tied=False), replace(OURS, bias=True, layers=(LayerShape(2, 64),) * 3, head_dim=32)],
    ids=["ours", "untied", "biases, no groups"],
)
def test_transformers_loads_what_we_write_and_so_do_we(
    tmp_path: Path, tokenizer_json: str, config: ModelConfig
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = ours(config)
    write_llama(tmp_path / "out", model, tokenizer_json)
    theirs, told = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        close(logits_of(model), theirs(IDS).logits)
    back, _ = adopt(tmp_path / "out")
    assert back.config == replace(config, layers=tuple(replace(s, kv_heads=s.keys) for s in config.layers))
    assert torch.equal(logits_of(back), logits_of(model))
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")("the lazy fox").input_ids
    assert ids == parse_tokenizer(tokenizer_json).encode("the lazy fox").ids


def test_our_angles_are_those_of_the_config(tmp_path: Path, tokenizer_json: str) -> None:
    """The negative control: another rope_theta is seen in the logits."""
    wanted = llama(tmp_path / "theirs", tokenizer_json)
    path = tmp_path / "theirs/config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"]["rope_theta"] = 20_000.0
    path.write_text(json.dumps(config))
    assert (logits_of(adopt(tmp_path / "theirs")[0]) - wanted).abs().max() > 1e-2


def test_an_adopted_model_becomes_a_classifier_without_its_output_embedding(
    tmp_path: Path, tokenizer_json: str
) -> None:
    llama(tmp_path / "theirs", tokenizer_json)
    backbone, _ = adopt(tmp_path / "theirs")
    model = classifier_from(backbone, 3, 0.0, causal=True, seed=0).eval()
    assert not any("output" in name for name in model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.backbone.hidden(IDS), backbone.hidden(IDS))


def edit(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def reshape(name: str, change: Callable[[torch.Tensor], torch.Tensor] | None) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensor = tensors.pop(name, torch.zeros(1))
        save_file(tensors | ({name: change(tensor)} if change else {}), folder / "model.safetensors")

    return act


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def broken(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0no JSON!")


def outside(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder.parent / "stolen.safetensors")
    index = {"weight_map": {"model.norm.weight": "../stolen.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def absent(folder: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def lying(folder: Path) -> None:
    index = {"weight_map": {"model.extra.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def wordy(folder: Path) -> None:
    text = train_tokenizer(["many words " + " ".join(f"word{n}x" for n in range(100))] * 3, VOCAB + 40)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")


def no_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("[1]")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (edit(hidden_act="gelu"), "hidden_act is 'gelu'; supported is 'silu'"),
        (edit(rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}), "type 'llama3'"),
        (edit(rope_parameters=None, rope_scaling={"type": "linear", "factor": 2.0}), "type 'linear'"),
        (edit(attention_bias=True), "attention_bias and mlp_bias differ"),
        (edit(num_key_value_heads=3), "4 attention heads cannot share 3 key-value heads"),
        (edit(hidden_size="64"), "hidden_size is '64'; expected a whole number"),
        (edit(num_hidden_layers=10**9), "num_hidden_layers is 1000000000; expected at most"),
        (edit(hidden_size=10**9), r"config.json it should be \[300, 1000000000\]"),
        (edit(quantization_config={"bits": 4}), "quantization_config is"),
        (edit(model_type="mamba"), "supported: bert, roberta, xlm-roberta, distilbert, llama"),
        (edit(num_hidden_layers=1), r"no Llama model has: model\.layers\.1"),
        (edit(num_hidden_layers=3), r"lack model\.layers\.2.* and 4 more"),
        (reshape("model.norm.weight", None), r"lack model\.norm\.weight"),
        (reshape("model.norm.weight", lambda t: t[:32].clone()), r"model\.norm\.weight is \[32\]; .* \[64\]"),
        (reshape("model.norm.weight", lambda t: t.int()), r"model\.norm\.weight is torch\.int32"),
        (reshape("model.extra.weight", lambda t: t), r"no Llama model has: model\.extra\.weight"),
        (edit(tie_word_embeddings=True), "lm_head.weight is the input embedding; it is another"),
        (pickled, "pickled weights"),
        (broken, "cannot be read"),
        (outside, r"'\.\./stolen\.safetensors'; expected the name of a"),
        (absent, r"model-2\.safetensors of .* are missing"),
        (lying, r"lacks model\.extra\.weight, which"),
        (no_index, "not an index of safetensors"),
        (wordy, r"tokenizer\.json gives ids up to 339; the model has 300 words"),
    ],
)
def test_a_bad_folder_is_a_clear_error(
    tmp_path: Path, tokenizer_json: str, spoil: Callable[[Path], None], message: str
) -> None:
    llama(tmp_path / "theirs", tokenizer_json)
    spoil(tmp_path / "theirs")
    with pytest.raises(DaymillError, match=message) as told:
        adopt(tmp_path / "theirs")
    assert len(str(told.value)) < 600


def test_a_checkpoint_is_converted_on_the_command_line(
    tmp_path: Path, tokenizer_json: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ours()
    save_checkpoint(tmp_path / "checkpoint", model, Card(OURS, "lm"), tokenizer_json)
    arguments = ["convert", "--to", "llama", str(tmp_path / "checkpoint"), str(tmp_path / "out")]
    assert daymill(arguments) == 0
    assert "LlamaForCausalLM, 2 layers x 64" in capsys.readouterr().out
    assert torch.equal(logits_of(adopt(tmp_path / "out")[0]), logits_of(model))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "out"]
    assert daymill(arguments) == 1
    assert "exists; choose another folder" in capsys.readouterr().err

    classifier = Classifier(Transformer(OURS), 2)
    save_checkpoint(tmp_path / "classifier", classifier, Card(OURS, "classify", ["a", "b"]), tokenizer_json)
    assert daymill([*arguments[:3], str(tmp_path / "classifier"), str(tmp_path / "other")]) == 1
    assert "no next-token logits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(OURS, activation="gelu"), "has no activation gelu"),
        (replace(OURS, norm="layer", causal=False), "has no norm layer, causal False"),
        (replace(OURS, layers=(LayerShape(4, 96, 2), LayerShape(2, 96, 1))), "a pruned model cannot be written"),
        (replace(OURS, layers=(LayerShape(3, 96),) * 2), "64 and 3 do not"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(
    tmp_path: Path, tokenizer_json: str, config: ModelConfig, message: str
) -> None:
    with pytest.raises(DaymillError, match=message):
        write_llama(tmp_path / "out", Transformer(config), tokenizer_json)
    assert not list(tmp_path.iterdir())
