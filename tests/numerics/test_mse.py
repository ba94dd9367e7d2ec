from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import CalibrationError
from octavo.numerics import (
    Histogram,
    Range,
    affine_from_range,
    fake_quantize,
    group_index,
    min_max,
    mse_of_histogram,
    mse_range,
)
from octavo.numerics.mse import bin_errors

ONE = torch.zeros(1, dtype=torch.int64)


def error(x: torch.Tensor, minimum: torch.Tensor, maximum: torch.Tensor, bits: int, symmetric: bool) -> float:
    grid = affine_from_range(minimum, maximum, bits, symmetric)
    x = x.double()
    return (fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high) - x).square().mean().item()


def exhaustive(x: torch.Tensor, bits: int, symmetric: bool, parts: int) -> float:
    """The least error of all pairs of ends, `parts` on each side of 0, by quantizing the data itself."""
    lows = x.min().clamp(max=0) * torch.arange(1, parts + 1) / parts
    highs = x.max().clamp(min=0) * torch.arange(1, parts + 1) / parts
    if symmetric:
        reach = torch.arange(1, parts + 1) / parts * x.abs().max()
        pairs = list(zip(-reach if x.min() < 0 else 0 * reach, reach, strict=True))
    elif x.min() >= 0:
        pairs = [(torch.tensor(0.0), high) for high in highs]
    elif x.max() <= 0:
        pairs = [(low, torch.tensor(0.0)) for low in lows]
    else:
        pairs = list(product(lows, highs))
    return min(error(x, low, high, bits, symmetric) for low, high in pairs)


def every_grid(x: torch.Tensor, bits: int, weight: torch.Tensor | float = 1.0) -> float:
    """The least error of every zero-point of an asymmetric grid, each with 150 scales, in float64.

    `weight` broadcasts against `x`, (channels, members), and weighs its squared errors.
    """
    x, steps = x.double(), 2**bits - 1
    full = (x.max().clamp(min=0) - x.min().clamp(max=0)) / steps
    scale = (full * torch.arange(1, 151, dtype=torch.float64) / 100).view(-1, 1, 1)
    grids = ((x / scale).round().clamp(-shift, steps - shift) * scale for shift in range(steps + 1))
    return min(((y - x).square() * weight).mean(dim=(1, 2)).min().item() for y in grids)


def rare_outlier(value: float, members: int = 2000) -> torch.Tensor:
    """A gaussian with one member far away, so that most of the range is empty."""
    x = torch.randn(1, members, generator=torch.Generator().manual_seed(0))
    x[0, 0] = value
    return x


def sample(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 20_000, generator=generator)
    outliers = torch.randint(0, 20_000, (20,), generator=generator)
    if kind == "outliers":
        x[0, outliers] *= 8
    elif kind == "skewed":
        x = x.exp() - 0.5
    elif kind == "one-sided outliers":
        x[0, outliers] += 12
    elif kind == "positive":
        x = x.square()
    elif kind == "negative":
        x = -x.square()
    elif kind == "uniform":
        x = torch.rand(1, 20_000, generator=generator) * 3 - 1
    return x


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("kind", ["gaussian", "outliers", "skewed", "positive", "uniform"])
def test_symmetric_range_is_within_one_per_cent_of_exhaustive_search(kind: str, bits: int) -> None:
    x = sample(kind)
    assert error(x, *mse_range(x, ONE, bits, True), bits, True) <= 1.01 * exhaustive(x, bits, True, 100)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    "kind", ["gaussian", "outliers", "one-sided outliers", "skewed", "positive", "negative", "uniform"]
)
def test_asymmetric_range_is_within_one_per_cent_of_exhaustive_search(kind: str, bits: int) -> None:
    x = sample(kind)
    assert error(x, *mse_range(x, ONE, bits, False), bits, False) <= 1.01 * exhaustive(x, bits, False, 24)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("value", [-300.0, -50.0, 50.0, 300.0])
def test_asymmetric_range_with_an_outlier_is_within_one_per_cent_of_every_grid(
    value: float, bits: int
) -> None:
    x = rare_outlier(value)
    assert error(x, *mse_range(x, ONE, bits, False), bits, False) <= 1.01 * every_grid(x, bits)


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("value", [-1e5, -1e4, -1000.0, -300.0, -50.0, 50.0, 300.0, 1000.0, 1e4, 1e5])
def test_an_outlier_never_makes_it_worse_than_min_max(value: float, bits: int) -> None:
    x = rare_outlier(value)
    for symmetric in (True, False):
        full = error(x, x.min(), x.max(), bits, symmetric)
        assert error(x, *mse_range(x, ONE, bits, symmetric), bits, symmetric) <= 1.0001 * full


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_no_group_is_worse_than_min_max(bits: int, groups: int) -> None:
    values = (-300.0, 50.0, -20.0, 1000.0, -100.0, 8.0)
    x = torch.cat([rare_outlier(value) for value in values])
    index = group_index(6, groups)
    found, full = mse_range(x, index, bits, False), min_max(x, index, groups)
    for group in range(groups):
        part = x[index == group]
        ours, theirs = (error(part, low[group], high[group], bits, False) for low, high in (found, full))
        assert ours <= 1.0001 * theirs


def test_a_wider_grid_than_the_data_is_taken_where_it_is_exact() -> None:
    x = torch.tensor([[-1.0, 1.0]])
    minimum, maximum = mse_range(x, ONE, 2, False)
    # Min-max has the scale 2/3 and no point at -1 or 1.
    assert error(x, minimum, maximum, 2, False) < 0.1 * error(x, x.min(), x.max(), 2, False)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("value", [-0.7, 0.7, 1e-30, -3e38])
def test_a_constant_keeps_its_exact_range(value: float, bits: int) -> None:
    minimum, maximum = mse_range(torch.full((1, 50), value), ONE, bits, False)
    assert (minimum.item(), maximum.item()) == pytest.approx((min(value, 0), max(value, 0)), rel=1e-6)


@pytest.mark.parametrize("sign", [-1, 1])
def test_values_of_one_bin_are_not_clipped(sign: int) -> None:
    x = sign * torch.tensor([[0.70001, 0.70005, 0.7001]])
    farthest = max(mse_range(x, ONE, 8, False), key=abs)
    assert farthest.item() == pytest.approx(sign * 0.7001, rel=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_largest_numbers_have_a_finite_range(symmetric: bool) -> None:
    x = torch.tensor([[-3.4e38, 0.0, 3.4e38]])
    assert all(bool(end.isfinite().all()) for end in mse_range(x, ONE, 2, symmetric))


@pytest.mark.parametrize("symmetric", [True, False])
def test_sixteen_bits_are_no_worse_than_the_full_range(symmetric: bool) -> None:
    x = sample("outliers")
    full = error(x, x.min(), x.max(), 16, symmetric)
    assert error(x, *mse_range(x, ONE, 16, symmetric), 16, symmetric) <= 1.01 * full


def test_bin_errors_equal_numerical_integration() -> None:
    scale, zero_point = torch.tensor([0.11, 0.03], dtype=torch.float64), torch.tensor([2.0, 7.0]).double()
    edges = torch.linspace(-1, 1, 9, dtype=torch.float64)
    x = (torch.arange(80_000, dtype=torch.float64) + 0.5) / 40_000 - 1
    for row, (s, z) in zip(
        bin_errors(edges, scale, zero_point, 15), zip(scale, zero_point, strict=True), strict=True
    ):
        expected = (fake_quantize(x, s, z, 0, 15) - x).square().view(8, -1).mean(dim=1)
        torch.testing.assert_close(row, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("symmetric", [True, False])
def test_groups_are_searched_independently(symmetric: bool) -> None:
    kinds = ("gaussian", "positive", "negative", "outliers")
    x = torch.cat([sample(kind) * 10.0**number for number, kind in enumerate(kinds)])
    together = Histogram(torch.arange(4))
    together.observe(x)
    minimum, maximum = mse_of_histogram(together, 4, symmetric, signed=True)
    for group in range(4):
        alone = Histogram(ONE)
        alone.observe(x[group : group + 1])
        low, high = mse_of_histogram(alone, 4, symmetric, signed=True)
        assert (minimum[group].item(), maximum[group].item()) == pytest.approx((low.item(), high.item()))


@given(st.permutations(range(6)))
@settings(max_examples=5)
def test_one_group_is_per_tensor_and_a_group_per_channel_is_per_embedding(order: list[int]) -> None:
    x = torch.randn(6, 500, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 7).unsqueeze(1)
    for groups, reference in ((1, (x.view(1, -1), ONE)), (6, (x, torch.arange(6)))):
        index = group_index(6, groups, torch.tensor(order))
        expected_index = group_index(6, groups) if groups == 6 else torch.zeros(6, dtype=torch.int64)
        for ours, expected in zip(mse_range(x, index, 4, True), mse_range(*reference, 4, True), strict=True):
            assert torch.equal(ours[index], expected[expected_index])


def test_chunks_of_groups_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(10, 300, generator=torch.Generator().manual_seed(0)).abs()
    x[9] *= -1  # a sign that only the last chunk sees must still reach the others
    index = group_index(10, 5)
    whole = mse_range(x, index, 4, True)
    monkeypatch.setattr("octavo.numerics.mse.GROUPS_AT_ONCE", 2)
    assert all(torch.equal(a, b) for a, b in zip(mse_range(x, index, 4, True), whole, strict=True))


@pytest.mark.parametrize("symmetric", [True, False])
def test_zeros_have_the_empty_range(symmetric: bool) -> None:
    x = torch.cat([torch.zeros(1, 50), torch.randn(1, 50)])
    minimum, maximum = mse_range(x, torch.arange(2), 8, symmetric)
    assert (minimum[0].item(), maximum[0].item()) == (0, 0)
    assert minimum[1] < 0 < maximum[1]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=12), st.integers(2, 16), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_data_gives_a_finite_range_around_zero(values: list[float], bits: int, symmetric: bool) -> None:
    minimum, maximum = mse_range(torch.tensor([values]), ONE, bits, symmetric, candidates=20)
    assert torch.isfinite(minimum).all() and torch.isfinite(maximum).all()
    assert minimum.item() <= 0 <= maximum.item()


def weighted_error(x: torch.Tensor, found: Range, bits: int, importance: torch.Tensor) -> float:
    grid = affine_from_range(*found, bits, False)
    y = fake_quantize(x.double(), grid.scale, grid.zero_point, grid.low, grid.high)
    return ((y - x).square() * importance.unsqueeze(1)).mean().item()


UNEQUAL = torch.tensor([1.0, 0.5, 20.0, 1e-4])  # the widest channel, which comes last, hardly matters
ALL_IN_ONE = torch.zeros(4, dtype=torch.int64)


def unequal_channels() -> torch.Tensor:
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    return x * torch.tensor([[1.0], [2.0], [0.5], [30.0]]) + torch.tensor([[0.0], [1.0], [0.2], [0.0]])


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_importance_weighs_the_error_of_each_channel(bits: int) -> None:
    x = unequal_channels()
    found = mse_range(x, ALL_IN_ONE, bits, False, importance=UNEQUAL)
    least = every_grid(x, bits, UNEQUAL.unsqueeze(1))
    assert weighted_error(x, found, bits, UNEQUAL) <= 1.01 * least
    assert least < 0.5 * weighted_error(x, mse_range(x, ALL_IN_ONE, bits, False), bits, UNEQUAL)


def test_importance_counts_within_each_group() -> None:
    x, index = unequal_channels(), torch.tensor([1, 0, 0, 1])
    together = mse_range(x, index, 4, False, importance=UNEQUAL)
    for group, channels in enumerate(([1, 2], [0, 3])):
        alone = mse_range(x[channels], ALL_IN_ONE[:2], 4, False, importance=UNEQUAL[channels] * 7)
        assert [end[group].item() for end in together] == pytest.approx([end.item() for end in alone])


@pytest.mark.parametrize("importance", [torch.ones(4), torch.full((4,), 1e-9), torch.zeros(4)], ids=str)
def test_equal_importance_changes_nothing(importance: torch.Tensor) -> None:
    x = unequal_channels()
    for ours, plain in zip(
        mse_range(x, ALL_IN_ONE, 4, False, importance=importance),
        mse_range(x, ALL_IN_ONE, 4, False),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain)


def test_a_channel_counts_as_often_as_its_importance_says() -> None:
    x = unequal_channels()[:2]
    weighted = Histogram(ALL_IN_ONE[:2], importance=torch.tensor([3.0, 1.0]))
    repeated = Histogram(ALL_IN_ONE)
    weighted.observe(x)
    repeated.observe(x[[0, 0, 0, 1]])
    ours, expected = (torch.cat(mse_of_histogram(each, 4, False)) for each in (weighted, repeated))
    torch.testing.assert_close(ours, expected)


def test_importance_of_the_columns_makes_a_product_more_exact() -> None:
    x = unequal_channels()
    weight = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)) * UNEQUAL.sqrt()
    importance = weight.square().sum(dim=0)
    errors = []
    for found in (
        mse_range(x, ALL_IN_ONE, 4, False, importance=importance),
        mse_range(x, ALL_IN_ONE, 4, False),
    ):
        grid = affine_from_range(*found, 4, False)
        quantized = fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)
        errors.append((weight @ (quantized - x)).square().mean().item())
    assert errors[0] < 0.5 * errors[1]


def test_no_data_is_refused() -> None:
    with pytest.raises(CalibrationError, match="saw no data"):
        mse_range(torch.zeros(1, 0), ONE, 8, True)
