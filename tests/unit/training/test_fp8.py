"""fp8 layers: exact where values are exact, as near as their digits elsewhere, and a byte a value kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from training.fp8 import E4M3, E5M2, KNOWN, fits, fp8_product, scaled, torchao_twin
from training.precision import Scaling

SCALINGS: list[Scaling] = ["tensor", "row"]


def gradients(x: Tensor, weight: Tensor, scaling: Scaling | None, slope: Tensor) -> list[Tensor]:
    """Product, gradient of x, gradient of the weight; without a scaling in the tensors' own dtype."""
    x, weight = (each.detach().clone().requires_grad_() for each in (x, weight))
    y = x @ weight.T if scaling is None else fp8_product(x, weight, scaling)
    y.backward(slope)
    assert x.grad is not None and weight.grad is not None
    return [y.detach(), x.grad, weight.grad]


def operands(seed: int = 0, rows: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    shapes = (rows, 32), (48, 32), (rows, 48)
    return tuple(torch.randn(shape, generator=made) for shape in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_values_that_fp8_holds_are_multiplied_exactly(scaling: Scaling) -> None:
    made = torch.Generator().manual_seed(0)
    # Powers of two, the largest 448 or 57344 over a power of two: no scale rounds anything.
    x, weight, slope = (2.0 ** torch.randint(-2, 3, shape, generator=made) for shape in ((8, 16), (32, 16), (8, 32)))
    for tensor, top in ((x, 7.0), (weight, 7.0), (slope, 7.0)):
        tensor[:] = tensor.clamp(max=4)
        tensor[tensor == 4] = top  # 448 = 7 x 64, 57344 = 7 x 8192
        tensor[0], tensor[:, 0] = top, top
    for ours, exact in zip(gradients(x, weight, scaling, slope), gradients(x, weight, None, slope), strict=True):
        assert torch.equal(ours, exact)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_products_are_near(scaling: Scaling) -> None:
    x, weight, slope = operands()
    for ours, exact in zip(gradients(x, weight, scaling, slope), gradients(x, weight, None, slope), strict=True):
        error = float((ours - exact).norm() / exact.norm())
        assert 1e-3 < error < 0.1, "e4m3 keeps 4 bits, e5m2 keeps 3"


def test_a_scale_a_row_spares_the_rows_beside_an_outlier() -> None:
    x, weight, slope = operands()
    x[0, 0] = 1e6
    exact = x @ weight.T
    apart = {s: float((gradients(x, weight, s, slope)[0] - exact)[1:].norm() / exact[1:].norm()) for s in SCALINGS}
    assert apart["row"] < 0.05 and apart["tensor"] > 0.5


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_the_largest_value_uses_the_whole_range_and_zeros_stay(dtype: torch.dtype) -> None:
    values, scale = scaled(torch.tensor([[0.0, -3.0], [1.5, 1e-9]]), dtype, None)
    assert float(values.float().abs().max()) == torch.finfo(dtype).max
    assert float(values[0, 0]) == 0 and float(scale) == pytest.approx(torch.finfo(dtype).max / 3)
    zeros, scale = scaled(torch.zeros(2, 3), dtype, 1)
    assert not zeros.float().any() and torch.isfinite(scale).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_what_is_not_finite_shows(bad: float, scaling: Scaling) -> None:
    x, weight, slope = operands()
    x[3, 3] = bad
    y, _, of_weight = gradients(x, weight, scaling, slope)
    assert not torch.isfinite(y[3]).any() and not torch.isfinite(of_weight).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_no_rows_are_no_error(scaling: Scaling) -> None:
    y, of_x, of_weight = gradients(*operands(rows=0)[:2], scaling, torch.zeros(0, 48))
    assert y.shape == (0, 48) and of_x.shape == (0, 32) and not of_weight.any()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_byte_a_value_is_kept_once_for_all_readers_of_an_input(scaling: Scaling) -> None:
    x, weight, _ = operands()
    x.requires_grad_()
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ys = [fp8_product(x, weight, scaling) for _ in range(3)]
    kept.pop(weight.untyped_storage().data_ptr(), None)
    scales = 4 if scaling == "tensor" else 4 * x.shape[1]
    assert sum(kept.values()) == x.numel() + scales
    del ys, x
    assert len(KNOWN) == 0, "nothing is kept for an input that is gone"


def test_an_input_that_was_changed_is_rounded_anew() -> None:
    x, weight, _ = operands()
    before = fp8_product(x, weight, "tensor")
    x.mul_(2)
    torch.testing.assert_close(fp8_product(x, weight, "tensor"), 2 * before)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_cpu_has_the_same_product(scaling: Scaling) -> None:
    """torch's own scaled product, as a check of ours."""
    x, weight, _ = operands()
    along = None if scaling == "tensor" else 1
    (a, by_a), (b, by_b) = scaled(x, E4M3, along), scaled(weight, E4M3, along)
    inverse = (1 / by_a, 1 / by_b if along is None else (1 / by_b).T)
    theirs = torch._scaled_mm(a, b.T, *inverse, out_dtype=torch.bfloat16)
    torch.testing.assert_close(fp8_product(x, weight, scaling).bfloat16(), theirs, rtol=2**-7, atol=1e-2)


def test_layers_of_odd_shapes_have_no_kernel() -> None:
    assert fits(nn.Linear(32, 48)) and not fits(nn.Linear(32, 40)) and not fits(nn.Linear(24, 48))


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS)
def test_torchao_gives_the_same_gradients(scaling: Scaling) -> None:
    pytest.importorskip("torchao", reason="needs the fp8 extra")
    x, weight, slope = operands()
    layer = nn.Linear(32, 48, bias=False)
    with torch.no_grad():
        layer.weight.copy_(weight)
    given = x.clone().requires_grad_()
    y = torchao_twin(layer, scaling, emulate=True)(given)
    y.backward(slope)
    assert given.grad is not None and layer.weight.grad is not None
    for ours, theirs in zip(
        gradients(x, weight, scaling, slope), [y.detach(), given.grad, layer.weight.grad], strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a GPU of compute capability 8.9 or newer",
)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_gpu_multiplies_as_the_emulation_does(scaling: Scaling) -> None:
    pytest.importorskip("torchao", reason="needs the fp8 extra")
    x, weight, slope = operands()
    layer = nn.Linear(32, 48, bias=False, device="cuda")
    with torch.no_grad():
        layer.weight.copy_(weight)
    given = x.cuda().bfloat16().requires_grad_()
    y = torchao_twin(layer, scaling)(given)
    y.backward(slope.cuda().bfloat16())
    assert layer.weight.grad is not None
    ours = gradients(x.bfloat16().float(), weight, scaling, slope.bfloat16().float())
    for mine, theirs in ((ours[0], y), (ours[2], layer.weight.grad)):
        torch.testing.assert_close(mine, theirs.detach().float().cpu(), rtol=2**-6, atol=2**-5)
