from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from octavo.numerics.integer_functions import (
    integer_exp,
    integer_gelu,
    integer_layer_norm,
    integer_softmax,
    integer_sqrt,
)

SCALES = [2.0**-4, 0.0123, 1e-3, 1e-5, 3e-7]


def on_grid(x: Tensor, scale: Tensor) -> Tensor:
    return torch.round(x.double() / scale).long()


def real(pair: tuple[Tensor, Tensor]) -> Tensor:
    q, scale = pair
    assert q.dtype == torch.int64
    return q.double() * scale


@given(st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=20))
def test_the_integer_square_root_is_exact(numbers: list[int]) -> None:
    assert integer_sqrt(torch.tensor(numbers)).tolist() == [math.isqrt(n) for n in numbers]


def test_the_integer_square_root_of_squares_and_their_neighbours() -> None:
    roots = torch.cat([torch.arange(0, 2000), torch.tensor([2**31 - 1, 2**30, 3 * 10**8])])
    assert torch.equal(integer_sqrt(roots.square()), roots)
    assert torch.equal(integer_sqrt(roots[1:].square() - 1), roots[1:] - 1)


@pytest.mark.parametrize("scale", SCALES)
def test_gelu_is_within_the_error_of_the_polynomial(scale: float) -> None:
    step = torch.tensor(scale, dtype=torch.float64)
    q = on_grid(torch.linspace(-8, 8, 4001), step)
    expected = torch.nn.functional.gelu(q.double() * step)
    assert (real(integer_gelu(q, step)) - expected).abs().max() < 0.0185  # I-BERT reports 0.018


def test_gelu_takes_a_scale_for_every_channel() -> None:
    scale = torch.tensor([0.05, 1e-3, 1e-6], dtype=torch.float64)
    q = on_grid(torch.linspace(-5, 5, 101)[:, None].expand(-1, 3), scale)
    expected = torch.nn.functional.gelu(q.double() * scale)
    assert (real(integer_gelu(q, scale)) - expected).abs().max() < 0.0185


def test_gelu_of_the_largest_accumulators_does_not_overflow() -> None:
    scale = torch.tensor(1e-6, dtype=torch.float64)
    q = torch.tensor([2**31 - 1, -(2**31) + 1])
    torch.testing.assert_close(
        real(integer_gelu(q, scale)), torch.tensor([2147.483647, 0.0]).double(), rtol=1e-4, atol=1e-2
    )


@pytest.mark.parametrize("scale", SCALES)
def test_exp_is_within_the_error_of_the_polynomial(scale: float) -> None:
    step = torch.tensor(scale, dtype=torch.float64)
    q = on_grid(torch.linspace(-20, 0, 4001), step)
    expected = torch.exp(q.double() * step)
    assert (real(integer_exp(q, step)) - expected).abs().max() < 0.005


@pytest.mark.parametrize("scale", SCALES)
def test_softmax_rows_are_near_and_add_up_to_one(scale: float) -> None:
    step = torch.tensor(scale, dtype=torch.float64)
    x = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 4
    q = on_grid(x, step)
    found, expected = real(integer_softmax(q, step)), torch.softmax(q.double() * step, -1)
    assert (found - expected).abs().max() < 0.004
    assert (found.sum(-1) - 1).abs().max() < 1e-6


def test_softmax_gives_masked_positions_nothing() -> None:
    q = torch.tensor([[5, 7, -(2**31)]])
    assert real(integer_softmax(q, torch.tensor(0.1, dtype=torch.float64)))[0, 2] < 1e-8


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("width", [32, 384, 4096])
def test_layer_norm_equals_float64(width: int, bits: int) -> None:
    scale = torch.tensor(0.01, dtype=torch.float64)
    generator = torch.Generator().manual_seed(width)
    q = (torch.randn(20, width, generator=generator) * 2 ** (bits - 4)).round().long() + 3
    q[:, 5] = 2 ** (bits - 1) - 1  # an outlier at the end of the grid
    expected = torch.nn.functional.layer_norm(q.double() * scale, (width,), eps=1e-5)
    torch.testing.assert_close(real(integer_layer_norm(q, scale, 1e-5)), expected, rtol=1e-4, atol=1e-4)


def test_layer_norm_of_a_constant_row_is_zero() -> None:
    q = torch.full((1, 16), 7)
    assert real(integer_layer_norm(q, torch.tensor(1.0, dtype=torch.float64))).abs().max() == 0


def test_layer_norm_of_32_bit_numbers_does_not_overflow() -> None:
    q = torch.tensor([[2**31 - 1, -(2**31), 12345, 0] * 256])
    scale = torch.tensor(1e-3, dtype=torch.float64)
    expected = torch.nn.functional.layer_norm(q.double() * scale, (1024,))
    torch.testing.assert_close(real(integer_layer_norm(q, scale)), expected, rtol=1e-4, atol=1e-4)
