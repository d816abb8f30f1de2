"""Layers with modes of their own: the rounding of each mode, whatever is around, and no trace afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from training.config import LayerShape, ModelConfig
from training.loader import TokenBatch
from training.mixed import (
    MixedLinear,
    Mode,
    give_mode,
    layers_of,
    leaves_plain,
    make_plain,
    product,
    rounded,
    set_modes,
)
from training.model import Classifier, Transformer
from training.precision import Choice, autocast
from training.ranks import token_loss_sum

CONFIG = ModelConfig(40, 32, (LayerShape(4, 48),) * 2, head_dim=8, max_len=16)


def model(config: ModelConfig = CONFIG) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config)


def batch() -> TokenBatch:
    ids = torch.randint(0, 40, (3, 16), generator=torch.Generator().manual_seed(1))
    return TokenBatch(ids, ids.roll(-1, 1), torch.zeros_like(ids))


def modes(of: nn.Module) -> dict[str, str]:
    return {name: layer.mode for name, layer in layers_of(of) if isinstance(layer, MixedLinear)}


def test_only_linear_layers_of_blocks_have_modes() -> None:
    names = [name for name, _ in layers_of(Classifier(model(), 2))]
    assert len(names) == 14 and all(name.startswith("backbone.blocks.") for name in names)


def test_modes_are_those_of_the_choice_and_leave_no_trace() -> None:
    of = model()
    before = {name: tensor.clone() for name, tensor in of.state_dict().items()}
    set_modes(of, Choice("bf16", "plain", "", {"blocks.1.attn.q": ["fp32"]}))
    assert modes(of) == {"blocks.1.attn.q": "fp32"}
    set_modes(of, Choice("fp8", "plain", ""))
    assert set(modes(of).values()) == {"fp8"} and len(modes(of)) == 14
    assert of.state_dict().keys() == before.keys()
    set_modes(of, Choice("bf16", "plain", ""))
    assert modes(of) == {}, "bf16 alone is autocast, as it always was"
    set_modes(of, Choice("tf32", "plain", ""))
    assert set(modes(of).values()) == {"tf32"}, "emulated on a CPU"
    make_plain(of)
    assert all(type(layer) is nn.Linear for _, layer in layers_of(of))
    assert all(torch.equal(tensor, before[name]) for name, tensor in of.state_dict().items())
    assert "mode" not in of.blocks[0].attn.q.__dict__


@pytest.mark.parametrize("mode", ["fp32", "bf16", "fp16", "tf32", "fp8"])
@pytest.mark.parametrize("ambient", ["fp32", "bf16", "fp16"])
def test_a_layer_computes_in_its_mode_and_answers_in_the_ambient_dtype(mode: Mode, ambient: str) -> None:
    torch.manual_seed(0)
    layer = give_mode(nn.Linear(32, 48), mode, "tensor")
    with autocast(ambient):  # type: ignore[arg-type]
        stream = torch.get_autocast_dtype("cpu") if ambient != "fp32" else torch.float32
        x = torch.randn(5, 32).to(stream).requires_grad_()
        y = layer(x)
    assert y.dtype == stream
    y.float().sum().backward()
    assert x.grad is not None and x.grad.dtype == stream and layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32, "masters stay fp32"
    weight = layer.weight.detach()
    exact = (x.detach().double() @ weight.double().T + layer.bias.detach().double()).float()
    digits = {"fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8": 4}
    coarsest = min(digits[mode], digits[ambient])
    error = float((y.detach().float() - exact).norm() / exact.norm())
    assert 2.0 ** (-coarsest - 5) < error < 2.0**-coarsest if coarsest < 24 else error < 1e-6


def test_a_layer_in_fp32_amid_bf16_rounds_its_ends_alone() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(32, 48, bias=False), torch.randn(5, 32).bfloat16()
    with autocast("bf16"):
        plain = layer(x)
        mixed = give_mode(layer, "fp32", "tensor")(x)
    exact = (x.float() @ layer.weight.T).bfloat16()
    assert torch.equal(mixed, exact) and not torch.equal(plain, exact)


def test_tf32_keeps_ten_bits() -> None:
    x = torch.tensor([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -(1 + 2.0**-12), 0.0, 1e38, float("inf")])
    assert rounded(x).tolist() == [1 + 2.0**-10, 1.0, 1 + 2 * 2.0**-10, -1.0, 0.0, rounded(x)[5].item(), float("inf")]
    assert abs(rounded(x)[5].item() / 1e38 - 1) < 2.0**-11
    assert torch.isnan(rounded(torch.tensor([float("nan")]))).all()


def test_the_product_leaves_the_bias_out() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 4), torch.randn(3, 8)
    plain = product(layer, x)
    torch.testing.assert_close(plain + layer.bias, layer(x))
    assert torch.equal(product(give_mode(layer, "fp32", "tensor"), x), plain)


def test_training_that_fails_leaves_a_plain_model() -> None:
    @leaves_plain
    def train(of: nn.Module) -> None:
        set_modes(of, Choice("fp8", "plain", ""))
        raise KeyError

    of = model()
    with pytest.raises(KeyError):
        train(of)
    assert modes(of) == {}


def test_training_may_be_given_its_model_by_name() -> None:
    @leaves_plain
    def train(model: nn.Module) -> str:
        set_modes(model, Choice("fp8", "plain", ""))
        return "done"

    of = model()
    assert train(model=of) == "done" and modes(of) == {}


@pytest.mark.parametrize("kernel", ["plain", "sdpa"])
def test_rows_of_filling_are_finite_in_fp16(kernel: str) -> None:
    """-1e9 is infinite in fp16: a row that sees no key would give NaN."""
    classifier = Classifier(model(), 2)
    classifier.backbone.set_attention(kernel)  # type: ignore[arg-type]
    ids, mask = torch.ones(2, 16, dtype=torch.long), torch.zeros(2, 16, dtype=torch.long)
    mask[0, :3] = 1
    with autocast("fp16"), torch.no_grad():
        assert torch.isfinite(classifier(ids, mask)).all()


def test_no_key_of_another_document_is_seen_in_fp16() -> None:
    of = model().eval()
    docs = torch.arange(16)[None] * 2 // 16
    ids = batch().ids[:1]
    other = ids.clone()
    other[docs == 1] = (other[docs == 1] + 1) % 40
    with autocast("fp16"), torch.no_grad():
        a, b = (of.hidden(each, None, docs) for each in (ids, other))
    assert torch.equal(a[docs == 0], b[docs == 0]) and not torch.equal(a[docs == 1], b[docs == 1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_autocast_is_of_the_models_device(precision: str) -> None:
    of, given = model().cuda(), batch()
    there = TokenBatch(*(tensor.cuda() for tensor in (given.ids, given.targets, given.docs)))
    seen = []
    of.blocks[0].register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    loss = token_loss_sum(of, there, precision)  # type: ignore[arg-type]
    loss.backward()
    wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert seen == [wanted] and loss.is_cuda
    assert loss.item() == pytest.approx(token_loss_sum(of.cpu(), given).item(), rel=2e-2)
