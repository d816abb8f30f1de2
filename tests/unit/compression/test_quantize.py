"""The quantized model: its arithmetic is that of ONNX, its ranges are static, its checkpoint is strict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file, save_file

from compression.cpu import cpu_features, int8_objection
from compression.fakequant import IntegerLinear, activation_range, weight_scales
from compression.quantize import (
    REDUCED_RANGE,
    QuantEmbedding,
    QuantLinear,
    fake_quantize_weights,
    freeze_ranges,
    int8_weight,
    load_quantized,
    prepare,
    quant_modules,
    quantize_on,
    save_quantized,
)
from compression.ranges import calibrate
from data.errors import DaymillError
from training.checkpoint import Card, load_checkpoint
from training.config import LayerShape, ModelConfig
from training.model import Classifier, Transformer

CONFIG = ModelConfig(vocab_size=60, width=64, layers=(LayerShape(2, 96), LayerShape(1, 32)))
ENCODER = replace(
    CONFIG, norm="layer", norm_place="post", activation="gelu", position="learned", causal=False, bias=True
)
CARD = Card(CONFIG, "classify", ["ham", "spam"], "spam")


def classifier(config: ModelConfig = CONFIG) -> Classifier:
    torch.manual_seed(0)
    model = Classifier(Transformer(config), 2).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def batch(rows: int = 4, tokens: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, 60, (rows, tokens), generator=generator), torch.ones(rows, tokens, dtype=torch.long)


def quantized(config: ModelConfig = CONFIG, **options: int) -> Classifier:
    model = prepare(classifier(config), **options)
    calibrate(model, [batch()], percentile=100)
    freeze_ranges(model)
    return model.eval()


def qdq_linear(module: QuantLinear) -> bytes:
    """The module as a QuantizeLinear / DequantizeLinear / MatMul graph."""
    fields = {
        "a_scale": np.float32(module.act_scale),
        "a_zero": np.uint8(module.act_zero),
        "w": int8_weight(module).numpy().T.copy(),
        "w_scale": module.weight_scale.numpy(),
        "w_zero": np.zeros(len(module.weight_scale), np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "a_scale", "a_zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "a_scale", "a_zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["dw"], axis=1),
        helper.make_node("MatMul", ["d", "dw"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, module.in_features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, module.out_features])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in fields.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.mark.parametrize("weight_max", [127, REDUCED_RANGE])
def test_a_linear_computes_what_the_q_dq_graph_computes(weight_max: int) -> None:
    torch.manual_seed(0)
    linear = QuantLinear.of(torch.nn.Linear(64, 32, bias=False), weight_max)
    scale, zero = activation_range(-2.0, 3.0)
    linear.act_scale.fill_(scale)
    linear.act_zero.fill_(zero)
    linear.quantizing = linear.frozen = True
    x = torch.randn(500, 64) * 2  # some values fall outside the range
    x[:256, 0] = (torch.arange(256) - 100.5) * linear.act_scale  # ties, which round half to even
    with torch.no_grad():
        ours = linear(x).numpy()

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    levels = [onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL]  # every node as written
    if not int8_objection(cpu_features(), reduced_range=weight_max < 127):
        levels.append(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)  # fused into integer products
    for level in levels:
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(qdq_linear(linear), options, providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 8), columns=st.integers(1, 40), scale=st.floats(1e-6, 1e4), seed=st.integers(0, 99))
def test_int8_weights_are_within_half_a_step_of_the_trained_ones(
    rows: int, columns: int, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    linear = torch.nn.Linear(columns, rows)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(rows, columns, generator=generator) * scale)
        linear.weight[0] = 0  # an all-zero channel has a scale too
    module = QuantLinear.of(linear, 127)
    integers = int8_weight(module)
    assert integers.dtype == torch.int8 and integers.abs().max() <= 127
    error = (integers.float() * module.weight_scale[:, None] - linear.weight).abs()
    assert (error <= module.weight_scale[:, None] * 0.5001).all()
    assert module.weight_scale.shape == (rows,)


@settings(max_examples=60, deadline=None)
@given(low=st.floats(-1e4, 1e4), high=st.floats(-1e4, 1e4))
def test_zero_is_exact_in_every_activation_range(low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    scale, zero = activation_range(low, high)
    assert 0 <= zero <= 255 and scale > 0
    assert scale * (0 - zero) <= min(low, 0) + scale * 0.51
    assert scale * (255 - zero) >= max(high, 0) - scale * 0.51


def test_gradients_pass_straight_through_but_not_where_clamped() -> None:
    x = torch.tensor([[0.5, 9.0, -9.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, 0.25]], requires_grad=True)
    scale, zero = activation_range(-1.0, 1.0)
    weight_scale = weight_scales(weight, 127)
    y = IntegerLinear.apply(x, weight, weight_scale, torch.tensor(scale), torch.tensor(zero), 127, torch.float32)
    y.sum().backward()
    rounded = (weight.detach() / weight_scale[:, None]).round() * weight_scale[:, None]
    torch.testing.assert_close(x.grad, torch.tensor([[float(rounded[:, 0].sum()), 0.0, 0.0]]))
    seen = (x.detach() / scale).round().clamp(-zero, 255 - zero) * scale
    torch.testing.assert_close(weight.grad, seen.expand(2, 3))


def test_bf16_products_of_integers_differ_only_by_the_rounding_of_sums() -> None:
    torch.manual_seed(0)
    linear = QuantLinear.of(torch.nn.Linear(64, 16), 127)
    linear.act_scale.fill_(0.02)
    linear.act_zero.fill_(128)
    linear.quantizing = True
    x = torch.randn(200, 64)
    exact = linear(x)
    with torch.autocast("cpu", torch.bfloat16):
        fast = linear(x)
    assert fast.dtype == torch.bfloat16
    assert ((fast.float() - exact).abs() <= exact.abs() * 2**-7 + 2**-8).all()


@pytest.mark.parametrize("config", [CONFIG, ENCODER], ids=["decoder", "encoder"])
def test_exactly_the_declared_modules_are_quantized(config: ModelConfig) -> None:
    model = prepare(classifier(config))
    linears = ["q", "k", "v", "o", "up", "down"] + (["gate"] if config.activation == "swiglu" else [])
    names = {name.split(".")[-1] for name, _ in quant_modules(model)}
    assert names == {*linears, "embed"}
    assert len(list(quant_modules(model))) == 1 + len(linears) * 2
    assert type(model.head) is torch.nn.Linear
    assert isinstance(model.backbone.embed, QuantEmbedding)


def test_a_prepared_model_answers_in_full_precision_until_switched_on() -> None:
    model, twin = classifier(), prepare(classifier())
    assert torch.equal(model(*batch()), twin(*batch()))
    calibrate(twin, [batch()], percentile=100)
    difference = (model(*batch()) - twin(*batch())).abs().max()
    assert 0 < difference < 0.2 * model(*batch()).abs().max()
    quantize_on(twin, False)
    assert torch.equal(model(*batch()), twin(*batch()))


def test_preparing_leaves_the_original_alone() -> None:
    model = classifier()
    twin = prepare(model)
    with torch.no_grad():
        twin.backbone.embed.weight.add_(1)
    assert type(model.backbone.embed) is torch.nn.Embedding
    assert not torch.equal(model.backbone.embed.weight, twin.backbone.embed.weight)


@pytest.mark.parametrize("config", [CONFIG, ENCODER], ids=["decoder", "encoder"])
def test_calibration_ignores_padding(config: ModelConfig) -> None:
    ids, mask = batch()
    padded = torch.cat((ids, torch.full((4, 5), 59)), 1), torch.cat((mask, torch.zeros(4, 5, dtype=torch.long)), 1)
    first, second = prepare(classifier(config)), prepare(classifier(config))
    ranges, same = calibrate(first, [(ids, mask)], 100), calibrate(second, [padded], 100)
    for name, (low, high) in ranges.items():
        assert same[name] == pytest.approx((low, high), rel=1e-4, abs=1e-5)


def test_inputs_that_are_shared_share_their_range() -> None:
    model = quantized()
    for block in model.backbone.blocks:
        assert block.attn.q.act_scale == block.attn.k.act_scale == block.attn.v.act_scale
        assert block.mlp.gate.act_zero == block.mlp.up.act_zero


def test_a_lower_percentile_gives_a_tighter_range() -> None:
    model = prepare(classifier())
    wide = calibrate(model, [batch(), batch(8)], 100)
    tight = calibrate(model, [batch(), batch(8)], 95)
    assert all(tight[n][0] >= wide[n][0] and tight[n][1] <= wide[n][1] for n in wide)
    assert any(tight[n] != wide[n] for n in wide)
    with pytest.raises(DaymillError, match="percentile"):
        calibrate(model, [batch()], 40)
    with pytest.raises(DaymillError, match="no rows"):
        calibrate(model, [], 100)


@pytest.mark.parametrize("config", [CONFIG, ENCODER], ids=["decoder", "encoder"])
def test_the_answer_does_not_depend_on_neighbours_or_padding(config: ModelConfig) -> None:
    """onnxruntime#10111: with dynamic ranges one caller's outlier changes another caller's answer."""
    model = quantized(config)
    with torch.no_grad():  # token 3 becomes an outlier that no calibration row held
        model.backbone.embed.weight_scale[3] *= 50
    ids, mask = batch(1)
    outlier = torch.full_like(ids, 3)
    zeros = torch.zeros_like(ids)
    alone = model(ids, mask)
    beside = model(torch.cat((ids, outlier)), torch.cat((mask, mask)))
    padded = model(torch.cat((ids, zeros), 1), torch.cat((mask, zeros), 1))
    assert not torch.allclose(beside[1], beside[0], atol=1e-3)
    torch.testing.assert_close(beside[:1], alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", [CONFIG, ENCODER], ids=["decoder", "encoder"])
@pytest.mark.parametrize("weight_max", [127, REDUCED_RANGE])
def test_a_saved_model_reloads_bit_equal(config: ModelConfig, weight_max: int, tmp_path: Path) -> None:
    model = quantized(config, weight_max=weight_max)
    card = save_quantized(tmp_path / "q", model, CARD.with_model(config), "{}")
    again, loaded = load_quantized(tmp_path / "q")
    assert loaded == card and loaded.quantization["weight_max"] == weight_max
    assert torch.equal(again(*batch()), model(*batch()))
    for (name, ours), (_, theirs) in zip(quant_modules(model), quant_modules(again), strict=True):
        assert torch.equal(int8_weight(ours), int8_weight(theirs)), name
        assert int8_weight(ours).abs().max() <= weight_max
    stored = load_file(tmp_path / "q" / "model.safetensors")
    assert stored["backbone.embed.weight"].dtype == torch.int8
    assert sum(t.shape == (60, 64) for t in stored.values()) == 1  # the tied embedding once (optimum#1326)


def test_a_model_whose_ranges_still_move_is_not_saved(tmp_path: Path) -> None:
    model = prepare(classifier())
    with pytest.raises(DaymillError, match="freeze_ranges"):
        save_quantized(tmp_path / "q", model, CARD, "{}")
    with pytest.raises(DaymillError, match="prepared"):
        save_quantized(tmp_path / "q", classifier(), CARD, "{}")


@pytest.mark.parametrize("damage", ["missing scale", "float weight", "extra tensor", "shape"])
def test_a_damaged_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    save_quantized(tmp_path / "q", quantized(), CARD, "{}")
    path = tmp_path / "q" / "model.safetensors"
    tensors = load_file(path)
    name = "backbone.blocks.0.attn.q"
    match damage:
        case "missing scale":
            del tensors[f"{name}.weight_scale"]
        case "float weight":
            tensors[f"{name}.weight"] = tensors[f"{name}.weight"].float()
        case "extra tensor":
            tensors["strange"] = torch.zeros(1)
        case "shape":
            tensors["head.weight"] = tensors["head.weight"][:, :-1].contiguous()
    save_file(tensors, path)
    with pytest.raises(DaymillError):
        load_quantized(tmp_path / "q")


def test_quantized_and_full_precision_checkpoints_are_not_mixed_up(tmp_path: Path) -> None:
    from training.checkpoint import save_checkpoint

    save_checkpoint(tmp_path / "f", classifier(), CARD, "{}")
    with pytest.raises(DaymillError, match="not a quantized classifier"):
        load_quantized(tmp_path / "f")
    save_quantized(tmp_path / "q", quantized(), CARD, "{}")
    with pytest.raises(DaymillError):
        load_checkpoint(tmp_path / "q")


def test_seven_bits_cannot_saturate_sixteen() -> None:
    """onnxruntime#5849: without VNNI, 255 x w + 255 x w must fit int16."""
    model = quantized(weight_max=REDUCED_RANGE)
    worst = max(int(int8_weight(m).abs().max()) for _, m in quant_modules(model))
    assert worst <= 63 and 2 * 255 * worst <= 32_767 < 2 * 255 * 127
    with pytest.raises(DaymillError, match="127 or 63"):
        prepare(classifier(), weight_max=100)


def test_frozen_scales_stay_while_weights_train() -> None:
    model = quantized()
    before = {name: module.weight_scale.clone() for name, module in quant_modules(model)}
    loose = prepare(classifier())
    calibrate(loose, [batch()], 100)
    for candidate in (model, loose):
        with torch.no_grad():
            for _, module in quant_modules(candidate):
                module.weight.mul_(2)
        candidate(*batch())
    frozen = dict(quant_modules(model))
    moving = {n: m for n, m in quant_modules(loose) if isinstance(m, QuantLinear)}
    assert all(torch.equal(before[name], module.weight_scale) for name, module in frozen.items())
    assert all(torch.allclose(2 * before[name], module.weight_scale) for name, module in moving.items())


def test_four_bits_move_the_logits_more_than_eight() -> None:
    model = classifier()
    ids, mask = batch()
    with torch.no_grad():
        plain = model(ids, mask)
        gap = {bits: float((fake_quantize_weights(model, bits)(ids, mask) - plain).abs().max()) for bits in (8, 4)}
    assert 0 < gap[8] < gap[4] / 5
    levels = fake_quantize_weights(model, 4).backbone.blocks[0].attn.q.weight[0]
    assert len(levels.unique()) <= 15
    with pytest.raises(DaymillError):
        fake_quantize_weights(model, 1)
