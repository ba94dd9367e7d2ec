from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from octavo.numerics.float8 import (
    fake_float8,
    float8_codes,
    float8_from_range,
    float8_values,
    largest,
    learned_float8,
)

FORMATS = [
    pytest.param(torch.float8_e4m3fn, 4, 3, 7, 448.0, id="e4m3"),
    pytest.param(torch.float8_e5m2, 5, 2, 15, 57344.0, id="e5m2"),
]
ONE = torch.ones(())


def numbers(exponents: int, mantissa: int, bias: int, most: float) -> list[float]:
    """All finite numbers of a format that are not negative, in order of their codes, by the definition."""
    found = []
    for code in range(2 ** (exponents + mantissa)):
        exponent, fraction = divmod(code, 2**mantissa)
        if exponent == 0:
            value = math.ldexp(fraction, 1 - bias - mantissa)
        else:
            value = math.ldexp(2**mantissa + fraction, exponent - bias - mantissa)
        if value <= most:
            found.append(value)
    return found


def nearest(value: float, table: list[float]) -> float:
    """The nearest number, of two equally near the one with an even code; beyond the last, the last."""
    magnitude = min(abs(value), table[-1])
    code = min(range(len(table)), key=lambda i: (abs(table[i] - magnitude), i % 2))
    return math.copysign(table[code], value)


@pytest.mark.parametrize(("dtype", "exponents", "mantissa", "bias", "most"), FORMATS)
def test_every_number_and_every_middle_round_as_the_definition_says(
    dtype: torch.dtype, exponents: int, mantissa: int, bias: int, most: float
) -> None:
    table = numbers(exponents, mantissa, bias, most)
    assert largest(dtype) == table[-1] == most
    middles = torch.tensor([(a + b) / 2 for a, b in pairwise(table)])
    beside = [middles.nextafter(torch.tensor(end)) for end in (0.0, math.inf)]
    x = torch.cat([torch.tensor([*table, most * 1.01, 1e30]), middles, *beside])
    x = torch.cat([x, -x])
    expected = torch.tensor([nearest(float(v), table) for v in x])
    assert torch.equal(fake_float8(x, ONE, dtype), expected)


@pytest.mark.parametrize(("dtype", "exponents", "mantissa", "bias", "most"), FORMATS)
def test_it_is_torchs_cast_wherever_that_is_finite(
    dtype: torch.dtype, exponents: int, mantissa: int, bias: int, most: float
) -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-9, 2, 5000)
    x = x.clamp(-most, most)
    assert torch.equal(fake_float8(x, ONE, dtype), x.to(dtype).float())


@pytest.mark.parametrize(("dtype", "exponents", "mantissa", "bias", "most"), FORMATS)
def test_bytes_are_what_simulation_computes(
    dtype: torch.dtype, exponents: int, mantissa: int, bias: int, most: float
) -> None:
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(0)) * 40
    grid = float8_from_range(x.amin(1), x.amax(1), dtype)
    scale = grid.scale.unsqueeze(1)
    codes = float8_codes(x, scale, dtype)
    assert 0 <= int(codes.min()) and int(codes.max()) <= 255
    assert torch.equal(float8_values(codes, scale, dtype), fake_float8(x, scale, dtype))


def test_the_range_ends_at_the_largest_number() -> None:
    grid = float8_from_range(torch.tensor([-2.0, 0.0]), torch.tensor([1.0, 0.0]), torch.float8_e4m3fn)
    assert grid.scale.tolist() == pytest.approx([2 / 448, 1]) and (grid.low, grid.high) == (-448, 448)
    assert grid.zero_point.tolist() == [0, 0]
    x = torch.tensor([-2.0, -5.0])
    assert fake_float8(x, grid.scale[0], torch.float8_e4m3fn).tolist() == [-2.0, -2.0]


def test_gradients_pass_rounding_and_stop_where_values_saturate() -> None:
    x = torch.tensor([1.03, -0.6, 9.0], dtype=torch.float32, requires_grad=True)
    log_scale = torch.tensor(math.log(2 / 448), requires_grad=True)
    y = learned_float8(x, log_scale, torch.float8_e4m3fn)
    assert torch.allclose(y, fake_float8(x.detach(), torch.tensor(2 / 448), torch.float8_e4m3fn), rtol=1e-6)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1, 0]
    inside = float((y - x).detach()[:2].sum())
    assert log_scale.grad is not None and float(log_scale.grad) == pytest.approx(
        inside + float(y[2].detach()), rel=1e-5
    )


def test_gradients_of_the_scale_are_scaled() -> None:
    grads = []
    for factor in (1.0, 0.25):
        log_scale = torch.zeros((), requires_grad=True)
        learned_float8(torch.tensor([0.3, 900.0]), log_scale, torch.float8_e4m3fn, factor).sum().backward()
        grads.append(float(log_scale.grad))  # type: ignore[arg-type]
    assert grads[1] == pytest.approx(0.25 * grads[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_come_back(dtype: torch.dtype) -> None:
    x = torch.randn(20, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = fake_float8(x, ONE, torch.float8_e5m2)
    assert found.dtype == dtype and torch.equal(found.float(), fake_float8(x.float(), ONE, torch.float8_e5m2))
