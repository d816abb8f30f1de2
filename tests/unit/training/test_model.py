"""The model: no leak between documents, positions that restart, kernels that agree, one tied embedding."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from training.config import LayerShape, ModelConfig
from training.model import Classifier, Dropout, Transformer, mean_pool
from training.precision import KERNELS, Kernel

OURS = ModelConfig.from_depth(2, 60, max_len=32)
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
@pytest.mark.parametrize("config", [OURS, replace(OURS, causal=False), LEARNED], ids=["causal", "full", "learned"])
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


@pytest.mark.parametrize("config", [OURS, LEARNED], ids=["ours", "learned"])
def test_padding_changes_no_answer(config: ModelConfig) -> None:
    torch.manual_seed(0)
    model = Classifier(Transformer(config), 3).eval()
    ids = torch.randint(1, 60, (2, 10))
    padded = F.pad(ids, (0, 7))
    with torch.no_grad():
        alone = model(ids, torch.ones_like(ids))
        wide = model(padded, (torch.arange(17) < 10).long().expand(2, 17))
    assert torch.allclose(alone, wide, atol=1e-6)


def test_kernels_agree_in_values_and_gradients() -> None:
    ids, docs = packed()
    results = {}
    for kernel in KERNELS:
        model = made(OURS, kernel)
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
