"""Adopt a model from a Hugging Face folder: its weights under our names, so that one architecture is left.

Read without `transformers` and without pickle: config.json, *.safetensors, tokenizer.json or vocab.txt. Encoders are
read here, Llama models by training.huggingface_llama.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import BertWordPieceTokenizer
from torch import Tensor

from data.errors import DaymillError
from data.tokens import load_tokenizer, parse_tokenizer, special_ids
from training.config import LayerShape, ModelConfig
from training.huggingface_llama import read_llama
from training.model import Transformer

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """How one family of encoders names its parts; `{i}` is the number of a layer."""

    keys: dict[str, str]  # our config -> the key in config.json
    embeddings: dict[str, str]  # our module -> theirs
    layer: dict[str, str]
    first_position: Callable[[dict[str, Any]], int]  # row of the position table that the first token uses
    prefixes: tuple[str, ...]
    needs: dict[str, Any]  # settings that our model cannot do otherwise


BERT_KEYS = {
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "activation": "hidden_act",
}
BERT_EMBEDDINGS = {
    "embed": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "embed_norm": "embeddings.LayerNorm",
}
BERT_LAYER = {
    "attn.q": "encoder.layer.{i}.attention.self.query",
    "attn.k": "encoder.layer.{i}.attention.self.key",
    "attn.v": "encoder.layer.{i}.attention.self.value",
    "attn.o": "encoder.layer.{i}.attention.output.dense",
    "norm1": "encoder.layer.{i}.attention.output.LayerNorm",
    "mlp.up": "encoder.layer.{i}.intermediate.dense",
    "mlp.down": "encoder.layer.{i}.output.dense",
    "norm2": "encoder.layer.{i}.output.LayerNorm",
}
ABSOLUTE = {"position_embedding_type": "absolute", "is_decoder": False}
BERT = Family(BERT_KEYS, BERT_EMBEDDINGS, BERT_LAYER, lambda _: 0, ("bert.",), ABSOLUTE)
ROBERTA = Family(
    BERT_KEYS,
    BERT_EMBEDDINGS,
    BERT_LAYER,
    lambda config: int(config.get("pad_token_id", 1)) + 1,  # positions count from behind the padding index
    ("roberta.",),
    ABSOLUTE,
)
DISTILBERT = Family(
    {"width": "dim", "layers": "n_layers", "heads": "n_heads", "ffn": "hidden_dim", "activation": "activation"},
    BERT_EMBEDDINGS,
    {
        "attn.q": "transformer.layer.{i}.attention.q_lin",
        "attn.k": "transformer.layer.{i}.attention.k_lin",
        "attn.v": "transformer.layer.{i}.attention.v_lin",
        "attn.o": "transformer.layer.{i}.attention.out_lin",
        "norm1": "transformer.layer.{i}.sa_layer_norm",
        "mlp.up": "transformer.layer.{i}.ffn.lin1",
        "mlp.down": "transformer.layer.{i}.ffn.lin2",
        "norm2": "transformer.layer.{i}.output_layer_norm",
    },
    lambda _: 0,
    ("distilbert.",),
    {},
)
FAMILIES = {"bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "distilbert": DISTILBERT}


def adopt(folder: Path) -> tuple[Transformer, str]:
    """The model of a Hugging Face folder as our Transformer, and its tokenizer as the text of a tokenizer.json.

    Hidden states equal those of `transformers` to rounding. Raises DaymillError for an architecture that we do not
    have, naming those that we have, and for missing or misshapen weights.
    """
    config = read_config(folder)
    if config.get("model_type") == "llama":
        model, tokenizer_json = read_llama(folder, config), read_tokenizer(folder)
        check_vocabulary(folder, tokenizer_json, model.config.vocab_size)
        return model, tokenizer_json
    family = FAMILIES.get(config.get("model_type", ""))
    if family is None:
        raise DaymillError(
            f"{folder}: model_type {config.get('model_type')!r} is not supported; "
            f"supported: {', '.join([*FAMILIES, 'llama'])}"
        )
    for key, wanted in family.needs.items():
        if config.get(key, wanted) != wanted:
            raise DaymillError(f"{folder}: {key} is {config[key]!r}; supported is {wanted!r} only")
    weights = read_weights(folder, family)
    shape = model_config(folder, config, family)
    model = Transformer(shape)
    try:
        model.load_state_dict(convert(weights, config, family, shape), strict=True)
    except (KeyError, RuntimeError) as error:
        raise DaymillError(f"{folder}: the weights do not fit its config.json ({error})") from error
    return model.eval(), read_tokenizer(folder)


def read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DaymillError(
            f"finetune.from: no Hugging Face model at {folder} (config.json is missing); "
            "expected `pretrain` or a folder with config.json, model.safetensors and tokenizer.json"
        ) from None
    except json.JSONDecodeError as error:
        raise DaymillError(f"{folder / 'config.json'}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise DaymillError(f"{folder / 'config.json'}: expected an object")
    return config


def read_weights(folder: Path, family: Family) -> Weights:
    """All tensors by name without the prefix that a task head puts before the encoder."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DaymillError(f"{folder}: no *.safetensors; pickled weights (*.bin) are not read, convert them first")
    weights: Weights = {}
    for file in files:
        try:
            weights |= load_file(file)
        except SafetensorError as error:
            raise DaymillError(f"{file}: cannot be read ({error})") from error
    plain: Weights = {}
    for name, tensor in weights.items():
        for prefix in family.prefixes:
            name = name.removeprefix(prefix)
        plain[name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")] = tensor
    return plain


def model_config(folder: Path, config: dict[str, Any], family: Family) -> ModelConfig:
    try:
        value = {ours: config[theirs] for ours, theirs in family.keys.items()}
        positions = config["max_position_embeddings"] - family.first_position(config)
        vocab_size = config["vocab_size"]
    except KeyError as error:
        raise DaymillError(f"{folder / 'config.json'}: {error} is missing") from None
    if value["activation"] != "gelu":
        raise DaymillError(f"{folder}: activation {value['activation']!r} is not supported; supported: gelu")
    return ModelConfig(
        vocab_size=vocab_size,
        width=value["width"],
        layers=(LayerShape(value["heads"], value["ffn"]),) * value["layers"],
        head_dim=value["width"] // value["heads"],
        max_len=positions,
        norm="layer",
        norm_place="post",
        activation="gelu",
        position="learned",
        causal=False,
        bias=True,
        norm_eps=config.get("layer_norm_eps", 1e-12),
    )


def convert(weights: Weights, config: dict[str, Any], family: Family, shape: ModelConfig) -> Weights:
    """Their tensors under our names. The segment embedding of a single text joins the position table."""
    ours: Weights = {}
    modules = dict(family.embeddings)
    for i in range(len(shape.layers)):
        modules |= {f"blocks.{i}.{name}": theirs.format(i=i) for name, theirs in family.layer.items()}
    for name, theirs in modules.items():
        for kind in ("weight", "bias"):
            if (key := f"{theirs}.{kind}") in weights:
                ours[f"{name}.{kind}"] = weights[key].float()
    first = family.first_position(config)
    ours["position.weight"] = ours["position.weight"][first : first + shape.max_len].clone()
    segments = weights.get("embeddings.token_type_embeddings.weight")
    if segments is not None:
        ours["position.weight"] += segments[0].float()
    return ours


def check_vocabulary(folder: Path, tokenizer_json: str, words: int) -> None:
    """Raises DaymillError for a tokenizer that can give an id that the model has no embedding for."""
    tokenizer = parse_tokenizer(tokenizer_json, str(folder / "tokenizer.json"))
    before, after = special_ids(tokenizer)
    largest = max([*tokenizer.get_vocab(with_added_tokens=False).values(), *before, *after])
    if largest >= words:
        raise DaymillError(f"{folder}: tokenizer.json gives ids up to {largest}; the model has {words} words")


def read_tokenizer(folder: Path) -> str:
    """tokenizer.json without truncation and padding, or one made from vocab.txt (WordPiece)."""
    if (folder / "tokenizer.json").exists():
        return load_tokenizer(folder / "tokenizer.json").to_str()
    vocabulary = folder / "vocab.txt"
    if not vocabulary.exists():
        raise DaymillError(f"{folder}: neither tokenizer.json nor vocab.txt")
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8")) if settings_file.exists() else {}
    accents = settings.get("strip_accents")
    made = BertWordPieceTokenizer(
        str(vocabulary), lowercase=bool(settings.get("do_lower_case", True)), strip_accents=accents
    )
    return made.to_str()
