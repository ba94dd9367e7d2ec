from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import SpecError
from octavo.numerics import affine_from_range, dequantize, fake_quantize, integer_bounds, quantize
from octavo.numerics.affine import Affine, fits_half, with_half_scales

reals = st.floats(-(2.0**100), 2.0**100, width=32)
widths = st.integers(2, 16)


@pytest.mark.parametrize(
    ("bits", "symmetric", "signed", "bounds"),
    [
        (8, False, False, (0, 255)),
        (8, False, True, (0, 255)),
        (8, True, True, (-128, 127)),
        (8, True, False, (0, 255)),
        (2, True, True, (-2, 1)),
        (16, False, False, (0, 65535)),
    ],
)
def test_integer_bounds(bits: int, symmetric: bool, signed: bool, bounds: tuple[int, int]) -> None:
    assert integer_bounds(bits, symmetric, signed) == bounds


@pytest.mark.parametrize("bits", [1, 17])
def test_bits_outside_2_to_16_are_refused(bits: int) -> None:
    with pytest.raises(SpecError, match=f"{bits} bits were asked for; use 2 to 16"):
        integer_bounds(bits, True, True)


def test_asymmetric_grid_by_hand() -> None:
    grid = affine_from_range(torch.tensor(-1.0), torch.tensor(4.1), 8, symmetric=False)
    assert grid.scale.item() == pytest.approx(5.1 / 255)
    assert (grid.zero_point.item(), grid.low, grid.high) == (50, 0, 255)
    assert (grid.scale.dtype, grid.zero_point.dtype) == (torch.float32, torch.int32)


def test_symmetric_grid_by_hand() -> None:
    grid = affine_from_range(torch.tensor([-7.0, -1.0]), torch.tensor([2.0, 14.0]), 4, symmetric=True)
    assert grid.scale.tolist() == [1.0, 2.0]
    assert (grid.zero_point.tolist(), grid.low, grid.high) == ([0, 0], -8, 7)


def test_symmetric_grid_without_negative_minimum_is_unsigned() -> None:
    grid = affine_from_range(torch.tensor([0.0, 1.0]), torch.tensor([15.0, 30.0]), 4, symmetric=True)
    assert (grid.scale.tolist(), grid.low, grid.high) == ([1.0, 2.0], 0, 15)


def test_signed_settles_the_grid_whatever_the_data() -> None:
    grid = affine_from_range(torch.tensor(0.0), torch.tensor(7.0), 4, symmetric=True, signed=True)
    assert (grid.scale.item(), grid.low, grid.high) == (1.0, -8, 7)


def test_range_is_widened_to_contain_zero() -> None:
    grid = affine_from_range(torch.tensor([3.0, -5.1]), torch.tensor([5.1, -3.0]), 8, symmetric=False)
    assert grid.scale.tolist() == pytest.approx([0.02, 0.02])
    assert grid.zero_point.tolist() == [0, 255]


@pytest.mark.parametrize("symmetric", [False, True])
def test_empty_range_has_scale_one(symmetric: bool) -> None:
    grid = affine_from_range(torch.zeros(2), torch.zeros(2), 8, symmetric)
    assert (grid.scale.tolist(), grid.zero_point.tolist()) == ([1, 1], [0, 0])


@pytest.mark.parametrize("reach", [1e-45, 1e-38, 3.4e38])
@pytest.mark.parametrize("symmetric", [False, True])
def test_scale_stays_normal_and_finite(reach: float, symmetric: bool) -> None:
    grid = affine_from_range(torch.tensor(-reach), torch.tensor(reach), 2, symmetric)
    assert torch.finfo(torch.float32).tiny <= grid.scale.item() < math.inf


@given(reals, reals, widths, st.booleans())
def test_scale_is_positive_and_zero_is_exact(first: float, second: float, bits: int, symmetric: bool) -> None:
    low, high = sorted((first, second))
    grid = affine_from_range(torch.tensor(low), torch.tensor(high), bits, symmetric)
    assert grid.scale.item() > 0
    assert grid.low <= grid.zero_point.item() <= grid.high
    assert fake_quantize(torch.zeros(3), grid.scale, grid.zero_point, grid.low, grid.high).eq(0).all()


def test_equation_1_by_hand_with_ties_to_even() -> None:
    x = torch.tensor([-10.0, -0.5, 0.25, 0.75, 1.25, 10.0])
    q = quantize(x, torch.tensor(0.5), torch.tensor(3), 0, 15)
    assert q.tolist() == [0, 2, 3, 5, 5, 15]  # -1, 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, each plus 3


def test_equation_2_by_hand() -> None:
    x = dequantize(torch.tensor([0, 3, 15], dtype=torch.uint8), torch.tensor(0.5), torch.tensor(3))
    assert x.tolist() == [-1.5, 0.0, 6.0]


def test_quantize_divides_instead_of_multiplying_by_the_inverse() -> None:
    scales = torch.rand(200) + 0.01
    x = scales.unsqueeze(1) * (torch.arange(100) + 0.5)
    expected = np.round(x.numpy() / scales.numpy()[:, None])
    assert np.array_equal(quantize(x, scales.unsqueeze(1), torch.tensor(0), 0, 255).numpy(), expected)


@given(st.lists(reals, min_size=1, max_size=20), reals, reals, widths, st.booleans(), st.booleans())
def test_fake_quantize_is_dequantize_of_quantize(
    x: list[float], first: float, second: float, bits: int, symmetric: bool, double: bool
) -> None:
    data = torch.tensor(x, dtype=torch.float64 if double else torch.float32)
    low, high = sorted((first, second))
    grid = affine_from_range(torch.tensor(low), torch.tensor(high), bits, symmetric)
    q = quantize(data, grid.scale, grid.zero_point, grid.low, grid.high)
    both = dequantize(q, grid.scale, grid.zero_point)
    fake = fake_quantize(data, grid.scale, grid.zero_point, grid.low, grid.high)
    assert both.dtype == fake.dtype == data.dtype
    assert torch.equal(both, fake)


@pytest.mark.parametrize("axis", [None, 0, 1], ids=["tensor", "rows", "columns"])
def test_fake_quantize_equals_torch_away_from_ties(axis: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 30, generator=generator)
    count = 1 if axis is None else x.shape[axis]
    scale = torch.rand(count, generator=generator) * 0.05 + 0.01
    zero_point = torch.randint(0, 255, (count,), generator=generator, dtype=torch.int32)
    if axis is None:
        expected = torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255)
        ours = fake_quantize(x, scale, zero_point, 0, 255)
    else:
        expected = torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, 0, 255)
        shape = (-1, 1) if axis == 0 else (1, -1)
        ours = fake_quantize(x, scale.view(shape), zero_point.view(shape), 0, 255)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_inplace_gives_the_same_in_the_same_memory(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 50).to(dtype)
    arguments = (torch.tensor([0.021]), torch.tensor([100]), 0, 255)
    expected = fake_quantize(x, *arguments)
    overwritten = x.clone()
    result = fake_quantize(overwritten, *arguments, inplace=True)
    assert result.data_ptr() == overwritten.data_ptr()
    assert result.dtype == expected.dtype == dtype
    assert torch.equal(result, expected) and torch.equal(overwritten, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 500).to(dtype)
    arguments = (torch.tensor(1e-4), torch.tensor(30000), 0, 65535)
    assert quantize(x, *arguments).dtype == torch.float32
    assert torch.equal(fake_quantize(x, *arguments), fake_quantize(x.float(), *arguments).to(dtype))


def test_a_number_without_dimensions_can_be_quantized() -> None:
    assert fake_quantize(torch.tensor(0.9), torch.tensor([0.5]), torch.tensor([0]), 0, 255).shape == ()


def test_infinity_is_clipped_and_nan_is_kept() -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan])
    y = fake_quantize(x, torch.tensor(0.5), torch.tensor(2), 0, 3)
    assert y[:2].tolist() == [0.5, -1.0] and y[2].isnan()


def test_fake_quantize_compiles_into_one_graph() -> None:
    arguments = (torch.linspace(-3, 3, 500).view(50, 10), torch.tensor(0.021), torch.tensor(100), 0, 255)
    compiled = torch.compile(fake_quantize, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*arguments), fake_quantize(*arguments))


def test_half_scales_are_near_and_exact_in_two_bytes() -> None:
    scale = torch.tensor([0.1, 0.003, 7.7])
    grid = Affine(scale=scale, zero_point=torch.tensor([1, 2, 3], dtype=torch.int32), low=0, high=15)
    assert not fits_half(scale)
    rounded = with_half_scales(grid)
    assert fits_half(rounded.scale) and not fits_half(rounded.scale[:1])
    torch.testing.assert_close(rounded.scale, scale, rtol=1 / 2048, atol=0)
    assert torch.equal(rounded.zero_point, grid.zero_point)


@pytest.mark.parametrize("odd", [1e-6, 1e6], ids=["too small", "too large"])
def test_scales_that_half_precision_cannot_hold_stay(odd: float) -> None:
    grid = Affine(
        scale=torch.tensor([0.1, odd]), zero_point=torch.zeros(2, dtype=torch.int32), low=-8, high=7
    )
    assert with_half_scales(grid) is grid
