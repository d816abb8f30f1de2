"""The Hugging Face layout of Llama models, read into our decoder and written from it: the same logits both ways.

A folder has config.json, weights as safetensors (one file, or several with an index) and tokenizer.json. Both models
rotate halves of a head, so weights are copied as they are. No pickle, no code of a folder is run, and no file outside
of it is named.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from data.errors import DaymillError
from data.tokens import END, PAD, parse_tokenizer
from training.checkpoint import load_checkpoint
from training.config import LayerShape, ModelConfig
from training.model import Transformer

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
ENDS = {"embed": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
LAYER = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    **{f"attn.{name}": f"self_attn.{name}_proj" for name in "qkvo"},
    **{f"mlp.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# What our decoder computes otherwise than these settings is refused by name.
NEEDS: dict[str, Any] = {"hidden_act": "silu", "quantization_config": None, "pretraining_tp": 1}
MAX_LAYERS = 1000  # more than any model has: what is larger is a mistake
SHOWN = 5  # names in an error


def theirs(name: str) -> str:
    """A tensor's name in their layout: blocks.0.attn.q.weight is model.layers.0.self_attn.q_proj.weight."""
    module, _, kind = name.rpartition(".")
    if not module.startswith("blocks."):
        return f"{ENDS[module]}.{kind}"
    _, number, part = module.split(".", 2)
    return f"model.layers.{number}.{LAYER[part]}.{kind}"


def read_llama(folder: Path, config: Mapping[str, Any]) -> Transformer:
    """The model of a LlamaForCausalLM folder whose config.json is `config`, in float32 and eval mode.

    Raises DaymillError for settings that our decoder does not have, and for missing, misshapen or unknown tensors.
    """
    shape = read_shape(folder, config)
    with ExitStack() as stack:
        found = opened(weight_files(folder), stack)
        if len(shape.layers) > len(found):  # before anything of that size is made
            raise DaymillError(f"{folder}: config.json says {len(shape.layers)} layers; there are {len(found)} tensors")
        with torch.device("meta"):
            model = Transformer(shape)
        sizes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        check_names(folder, found, [theirs(name) for name in sizes], shape.tied)
        tensors = {name: read_tensor(folder, found, theirs(name), size) for name, size in sizes.items()}
        if shape.tied and "lm_head.weight" in found:
            head = read_tensor(folder, found, "lm_head.weight", sizes["embed.weight"])
            if not torch.equal(head, tensors["embed.weight"]):
                raise DaymillError(f"{folder}: by config.json lm_head.weight is the input embedding; it is another")
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


def opened(files: Mapping[Path, set[str]], stack: ExitStack) -> dict[str, Any]:
    """The file of every tensor, by the tensor's name."""
    found: dict[str, Any] = {}
    for path, wanted in files.items():
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise DaymillError(f"{path}: cannot be read ({error})") from error
        names = set(file.keys())
        if missing := sorted(wanted - names):
            raise DaymillError(f"{path}: lacks {listed(missing)}, which {INDEX} says it has")
        found |= dict.fromkeys(wanted or names, file)
    return found


def read_tensor(folder: Path, found: Mapping[str, Any], name: str, size: tuple[int, ...]) -> Tensor:
    """A tensor in float32; its shape is looked at before it is read."""
    if (there := found[name].get_slice(name).get_shape()) != list(size):
        raise DaymillError(f"{folder}: {name} is {there}; by config.json it should be {list(size)}")
    tensor: Tensor = found[name].get_tensor(name)
    if tensor.dtype not in FLOATS:
        raise DaymillError(f"{folder}: {name} is {tensor.dtype}; expected float32, bfloat16 or float16")
    return tensor.float()


def weight_files(folder: Path) -> dict[Path, set[str]]:
    """Files of a folder and the tensors that its index says are in each; all of a file that has no index."""
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise DaymillError(
                f"{folder}: neither {SINGLE} nor {INDEX}; pickled weights (*.bin, *.pth) are not read, convert them"
            )
        return {folder / SINGLE: set()}
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DaymillError(f"{index}: not an index of safetensors ({type(error).__name__}: {error})") from error
    files: dict[Path, set[str]] = {}
    for name, file in places:
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise DaymillError(f"{index}: {name} is in {file!r}; expected the name of a .safetensors file beside it")
        files.setdefault(folder / file, set()).add(name)
    if absent := sorted(path.name for path in files if not path.exists()):
        raise DaymillError(f"{folder}: {listed(absent)} of {INDEX} are missing")
    return files


def read_shape(folder: Path, config: Mapping[str, Any]) -> ModelConfig:
    """Their config.json as ours."""

    def number(key: str, default: int | None = None) -> int:
        value = config.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DaymillError(f"{folder / 'config.json'}: {key} is {value!r}; expected a whole number above 0")
        return value

    for key, wanted in NEEDS.items():
        if config.get(key, wanted) != wanted:
            raise DaymillError(f"{folder}: {key} is {str(config[key])[:80]!r}; supported is {wanted!r} only")
    biases = [bool(config.get(key, False)) for key in ("attention_bias", "mlp_bias")]
    if biases[0] != biases[1]:
        raise DaymillError(f"{folder}: attention_bias and mlp_bias differ; our model has biases everywhere or nowhere")
    width, heads, layers = (number(key) for key in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    layer = LayerShape(heads, number("intermediate_size"), number("num_key_value_heads", heads))
    if layers > MAX_LAYERS:
        raise DaymillError(f"{folder}: num_hidden_layers is {layers}; expected at most {MAX_LAYERS}")
    head_dim = number("head_dim", max(1, width // heads))
    if head_dim % 2:
        raise DaymillError(f"{folder}: head_dim is {head_dim}; rotary positions need an even one")
    return ModelConfig(
        vocab_size=number("vocab_size"),
        width=width,
        layers=(layer,) * layers,
        head_dim=head_dim,
        max_len=number("max_position_embeddings", 2048),
        bias=biases[0],
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=rope_theta(folder, config),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def rope_theta(folder: Path, config: Mapping[str, Any]) -> float:
    """The base of the rotary angles, by either generation's keys. Scaled positions are refused."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default" or scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise DaymillError(f"{folder}: rotary positions of the type {kind!r} are not supported; supported: 'default'")
    return float(scaling.get("rope_theta", config.get("rope_theta", 10_000.0)))


def check_names(folder: Path, found: Mapping[str, Any], wanted: Sequence[str], tied: bool) -> None:
    if missing := [name for name in wanted if name not in found]:
        raise DaymillError(f"{folder}: the weights lack {listed(missing)}")
    known = {*wanted, *(["lm_head.weight"] if tied else [])}
    if unknown := [name for name in found if name not in known and not name.endswith("rotary_emb.inv_freq")]:
        raise DaymillError(f"{folder}: tensors that no Llama model has: {listed(sorted(unknown))}")


def listed(names: Iterable[str]) -> str:
    every = [name[:80] for name in names]
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")


def convert_checkpoint(checkpoint: Path, out: Path) -> ModelConfig:
    """Write a pretrained checkpoint of ours as a LlamaForCausalLM folder; returns what was written.

    Raises DaymillError for a classifier, and for a model that Llama's layout cannot hold.
    """
    model, card = load_checkpoint(checkpoint)
    if not isinstance(model, Transformer):
        raise DaymillError(f"{checkpoint}: a classifier has no next-token logits; convert a pretrained checkpoint")
    write_llama(out, model, (checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    return card.model


def write_llama(folder: Path, model: Transformer, tokenizer_json: str) -> None:
    """Write a folder that `transformers` loads as LlamaForCausalLM, with the same logits.

    Raises DaymillError where the folder exists, or where the model has parts that Llama's layout has no place for.
    """
    if folder.exists():
        raise DaymillError(f"{folder} exists; choose another folder or remove it")
    config = llama_config(model.config) | special_tokens(tokenizer_json)
    beside = folder.with_name(folder.name + ".writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    tensors = {theirs(name): tensor.detach().float().contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, beside / SINGLE, metadata={"format": "pt"})
    write_json(beside / "config.json", config)
    (beside / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    names = {"pad_token": config["pad_token_id"] is not None, "eos_token": config["eos_token_id"] is not None}
    known = {"pad_token": PAD, "eos_token": END}
    write_json(
        beside / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.config.max_len}
        | {key: known[key] for key, there in names.items() if there},
    )
    beside.rename(folder)


def llama_config(config: ModelConfig) -> dict[str, Any]:
    """Our config as theirs."""
    needs = {"norm": "rms", "norm_place": "pre", "activation": "swiglu", "position": "rotary", "causal": True}
    if other := [f"{key} {getattr(config, key)}" for key, value in needs.items() if getattr(config, key) != value]:
        raise DaymillError(f"Llama's layout has no {', '.join(other)}; only our decoder with swiglu can be written")
    if len(set(config.layers)) > 1:
        raise DaymillError("Llama's layout has one width for all layers; a pruned model cannot be written")
    layer = config.layers[0]
    if config.width % layer.heads:
        raise DaymillError(f"transformers wants a width that its heads divide; {config.width} and {layer.heads} do not")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": layer.ffn,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": layer.heads,
        "num_key_value_heads": layer.keys,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tied,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "dtype": "float32",
    }


def special_tokens(tokenizer_json: str) -> dict[str, int | None]:
    """Ids of our own special tokens, where the tokenizer has them."""
    tokenizer = parse_tokenizer(tokenizer_json)
    ends, pads = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    return {"bos_token_id": None, "eos_token_id": ends, "pad_token_id": pads}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
