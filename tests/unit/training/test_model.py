"""The model: no leak between documents, positions that restart, kernels that agree, one tied embedding."""

import json
from dataclasses import replace
from typing import Literal

import pytest
import torch
import torch.nn.functional as F

from data.errors import DaymillError
from training.config import ACTIVATIONS, LayerShape, ModelConfig
from training.model import Classifier, Dropout, Transformer, mean_pool
from training.precision import KERNELS, Kernel
from training.sparse import Skip

OURS = ModelConfig.from_depth(2, 60, max_len=32)
SPARSE = replace(
    OURS, layers=(LayerShape(4, 96, 2, 0.1), LayerShape(4, 96, 1, 0.05)), activation="dsrelu", learned_theta=True
)
SQUARED = replace(OURS, layers=(LayerShape(4, 96, 2),) * 2, activation="relu2")
LEARNED = ModelConfig(60, 32, (LayerShape(2, 64),) * 2, 16, 32, "layer", "post", "gelu", "learned", True, True)


def made(config: ModelConfig, kernel: Kernel = "plain") -> Transformer:
    torch.manual_seed(0)
    model = Transformer(config).eval()
    model.set_attention(kernel)
    return model


def packed() -> tuple[torch.Tensor, torch.Tensor]:
    """Two rows of 24 places: documents of 9, 11 and 4 tokens."""
    docs = torch.tensor([0] * 9 + [1] * 11 + [2] * 4).expand(2, 24)
    return torch.randint(0, 60, (2, 24), generator=torch.Generator().manual_seed(1)), docs


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "config",
    [OURS, replace(OURS, causal=False), LEARNED, SPARSE, SQUARED],
    ids=["causal", "full", "learned", "sparse", "squared"],
)
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
def test_another_document_in_the_row_changes_no_bit(config: ModelConfig, kernel: Kernel, bf16: bool) -> None:
    model = made(config, kernel)
    ids, docs = packed()
    other = ids.clone()
    other[:, :9] = (ids[:, :9] + 7) % 60
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        a, b = (model.lm_logits(model.hidden(x, None, docs)) for x in (ids, other))
    assert torch.equal(a[:, 9:], b[:, 9:])
    assert not torch.equal(a[:, :9], b[:, :9])


@pytest.mark.parametrize("what", ["neurons", "tokens"])
def test_neither_neighbors_nor_the_future_reach_a_token_through_what_training_skips(
    what: Literal["neurons", "tokens"],
) -> None:
    """A batch that chose what to compute would tell a token of its neighbors; here it chooses what to learn from."""
    model = made(SPARSE).train()
    model.set_skip(Skip(what, 0.6))
    ids, docs = packed()
    other = ids.clone()
    other[:, :9] = (ids[:, :9] + 7) % 60
    later = ids.clone()
    later[:, 15:20] = (ids[:, 15:20] + 7) % 60
    a, b, c = (model.hidden(x, None, docs).detach() for x in (ids, other, later))
    assert torch.equal(a[:, 9:], b[:, 9:]) and not torch.equal(a[:, :9], b[:, :9])
    assert torch.equal(a[:, :15], c[:, :15]) and not torch.equal(a[:, 15:], c[:, 15:])
    assert torch.equal(a, made(SPARSE).hidden(ids, None, docs)), "and the model that is served computes the same"


def test_without_document_numbers_it_would_leak() -> None:
    model = made(OURS)
    ids, _ = packed()
    other = ids.clone()
    other[:, :9] = (ids[:, :9] + 7) % 60
    with torch.no_grad():
        assert not torch.equal(model.hidden(ids)[:, 9:], model.hidden(other)[:, 9:])


@pytest.mark.parametrize("config", [OURS, LEARNED], ids=["rotary", "learned"])
def test_a_packed_document_is_computed_as_if_alone(config: ModelConfig) -> None:
    model = made(config)
    ids, docs = packed()
    positions = torch.tensor([*range(9), *range(11), *range(4)])[None]
    with torch.no_grad():
        row = model.hidden(ids, None, docs, positions)
        alone = model.hidden(ids[:, 9:20])
    assert torch.allclose(row[:, 9:20], alone, atol=2e-6)


def test_rotary_positions_are_relative() -> None:
    model = made(OURS)
    ids, docs = packed()
    with torch.no_grad():
        assert torch.allclose(model.hidden(ids, None, docs)[:, 9:20], model.hidden(ids[:, 9:20]), atol=1e-5)


def test_a_causal_model_does_not_look_ahead() -> None:
    ids, _ = packed()
    changed = ids.clone()
    changed[:, -1] = (ids[:, -1] + 1) % 60
    for causal in (True, False):
        model = made(replace(OURS, causal=causal))
        with torch.no_grad():
            same = torch.equal(model.hidden(ids)[:, :-1], model.hidden(changed)[:, :-1])
        assert same is causal


@pytest.mark.parametrize("config", [OURS, LEARNED, SPARSE], ids=["ours", "learned", "sparse"])
def test_padding_changes_no_answer(config: ModelConfig) -> None:
    torch.manual_seed(0)
    model = Classifier(Transformer(config), 3).eval()
    ids = torch.randint(1, 60, (2, 10))
    padded = F.pad(ids, (0, 7))
    with torch.no_grad():
        alone = model(ids, torch.ones_like(ids))
        wide = model(padded, (torch.arange(17) < 10).long().expand(2, 17))
    assert torch.allclose(alone, wide, atol=1e-6)


@pytest.mark.parametrize("config", [OURS, SQUARED], ids=["ours", "grouped"])
def test_kernels_agree_in_values_and_gradients(config: ModelConfig) -> None:
    ids, docs = packed()
    results = {}
    for kernel in KERNELS:
        model = made(config, kernel)
        hidden = model.hidden(ids, None, docs)
        hidden.square().sum().backward()
        results[kernel] = hidden, model.blocks[0].attn.q.weight.grad
    for a, b in zip(*results.values()):
        assert (a - b).abs().max() <= 1e-3 * a.abs().max()


def test_activations_stay_in_bf16_where_it_is_on() -> None:
    ids, docs = packed()
    model = made(OURS)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.hidden(ids, None, docs)
    assert half.dtype == torch.bfloat16
    exact = model.hidden(ids, None, docs)
    assert exact.dtype == torch.float32
    assert (half - exact).abs().max() < 0.1


def test_the_output_embedding_is_the_input_embedding() -> None:
    model = made(OURS)
    ids, _ = packed()
    model.lm_logits(model.hidden(ids)).sum().backward()
    assert [name for name in model.state_dict() if "embed" in name] == ["embed.weight"]
    grad = model.embed.weight.grad
    assert grad is not None and (grad.abs().sum(1) > 0).all(), "every row is an output, also those that are no input"


def test_an_output_embedding_of_its_own_is_not_the_input_embedding() -> None:
    model = made(replace(OURS, tied=False))
    ids, _ = packed()
    model.lm_logits(model.hidden(ids)).sum().backward()
    assert [name for name in model.state_dict() if "weight" in name and name[0] in "eo"] == [
        "embed.weight",
        "output.weight",
    ]
    assert model.embed.weight.grad is not None and model.output is not None
    assert (model.embed.weight.grad.abs().sum(1) == 0).any(), "rows that are no input"
    assert model.output.weight.grad is not None and (model.output.weight.grad.abs().sum(1) > 0).all()


def test_shared_keys_are_those_of_a_model_that_has_them_once_for_each_query() -> None:
    model, wide = made(SQUARED), made(replace(SQUARED, layers=(LayerShape(4, 96),) * 2))
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        if name.endswith(("attn.k.weight", "attn.v.weight")):
            heads = tensor.unflatten(0, (2, -1))
            tensors[name] = heads.repeat_interleave(2, 0).flatten(0, 1)
    wide.load_state_dict(tensors)
    ids, docs = packed()
    with torch.no_grad():
        torch.testing.assert_close(model.hidden(ids, None, docs), wide.hidden(ids, None, docs), rtol=1e-5, atol=1e-5)
    assert model.config.prunable_parameters() < wide.config.prunable_parameters()


def test_targets_are_smoothed_in_training_alone() -> None:
    model = made(OURS)
    ids, docs = packed()
    plain = model(ids, ids, docs).item()
    model.smoothing = 0.1
    assert model(ids, ids, docs).item() == plain
    assert model.train()(ids, ids, docs).item() != plain


def test_a_config_without_the_newer_keys_is_read_as_it_was_meant() -> None:
    old = OURS.to_json()
    for key in ("tied", "learned_theta"):
        del old[key]
    old["layers"] = [{"heads": shape["heads"], "ffn": shape["ffn"]} for shape in old["layers"]]
    assert ModelConfig.from_json(old) == OURS
    for config in (SPARSE, SQUARED, replace(OURS, tied=False)):
        assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_heads_that_cannot_share_are_refused() -> None:
    with pytest.raises(DaymillError, match="4 attention heads cannot share 3 key-value heads"):
        LayerShape(4, 96, 3)


@pytest.mark.parametrize("channels", [80, 1])
def test_a_width_that_heads_do_not_divide_is_refused(channels: int) -> None:
    with pytest.raises(DaymillError, match=f"heads of {channels} channels do not divide width 192"):
        ModelConfig.from_depth(3, 60, head_dim=channels)


def test_without_a_gate_the_feed_forward_network_has_as_many_weights() -> None:
    counts = {ModelConfig.from_depth(3, 60, activation=name, theta=1.0).prunable_parameters() for name in ACTIVATIONS}
    assert len(counts) == 1


def test_dropout_takes_a_channel_from_all_tokens_of_a_row_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    dropped = Dropout(0.25).train()(torch.ones(64, 5, 200))
    assert ((dropped == 0) | torch.isclose(dropped, torch.tensor(4 / 3))).all()
    assert (dropped == dropped[:, :1]).all()
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(Dropout(0.25).eval()(torch.ones(2, 3, 4)), torch.ones(2, 3, 4))


def test_a_row_without_tokens_pools_to_zero() -> None:
    assert (mean_pool(torch.ones(1, 3, 4), torch.zeros(1, 3, dtype=torch.long)) == 0).all()


def test_pruned_shapes_differ_from_layer_to_layer() -> None:
    model = made(replace(OURS, layers=(LayerShape(1, 96), LayerShape(4, 33))))
    assert model.hidden(packed()[0]).shape == (2, 24, 128)
