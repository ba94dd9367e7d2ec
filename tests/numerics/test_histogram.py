from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import CalibrationError, SpecError
from octavo.numerics import Histogram
from octavo.numerics.histogram import FULL_IMPORTANCE, default_bins, power_of_two

numbers = st.floats(-(2.0**100), 2.0**100, width=32)


def histogram_of(*pieces: torch.Tensor, bins: int = 16) -> Histogram:
    histogram = Histogram(torch.arange(len(pieces[0])), bins)
    for piece in pieces:
        histogram.observe(piece)
    return histogram


def same(first: Histogram, second: Histogram) -> bool:
    names = ("counts", "exponent", "minimum", "maximum")
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in names)


def test_counts_by_hand() -> None:
    # R = 4, bins of width 1: [-4, -3), ..., [3, 4).
    histogram = histogram_of(torch.tensor([[-3.0, -0.1, 0.0, 0.9, 1.0, 3.9]]), bins=8)
    assert histogram.exponent.tolist() == [2]
    assert histogram.counts.tolist() == [[0, 1, 0, 1, 2, 1, 0, 1]]


def test_counts_equal_numpy() -> None:
    x = torch.randn(3, 5000) * torch.tensor([[0.01], [1.0], [300.0]])
    histogram = histogram_of(x, bins=64)
    for group in range(3):
        reach = 2.0 ** histogram.exponent[group].item()
        expected, _ = np.histogram(x[group].double().numpy(), bins=64, range=(-reach, reach))
        assert histogram.counts[group].tolist() == expected.tolist()


def test_channels_of_one_group_share_its_bins() -> None:
    x = torch.randn(4, 100)
    grouped = Histogram(torch.tensor([0, 1, 1, 0]), 32)
    grouped.observe(x)
    assert same(grouped, histogram_of(torch.stack([x[[0, 3]].flatten(), x[[1, 2]].flatten()]), bins=32))


def test_growing_merges_bins_in_pairs_around_zero() -> None:
    histogram = histogram_of(torch.tensor([[-0.9, -0.1, 0.1, 0.9]]), torch.tensor([[1.5]]), bins=8)
    assert histogram.exponent.tolist() == [1]
    assert histogram.counts.tolist() == [[0, 0, 1, 1, 1, 1, 0, 1]]


@given(st.lists(numbers, min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_cutting_and_ordering_of_batches_do_not_matter(values: list[float], cuts: list[int]) -> None:
    x = torch.tensor([values, values[::-1]]) * torch.tensor([[1.0], [-1e-3]])
    pieces = torch.tensor_split(x, sorted(cut % len(values) for cut in cuts), dim=1)
    assert same(histogram_of(*pieces), histogram_of(x))
    assert same(histogram_of(*pieces[::-1]), histogram_of(x))


@given(st.lists(numbers, min_size=2, max_size=30), st.data())
def test_merged_parts_equal_the_whole(values: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    x = torch.tensor([values])
    merged = histogram_of(x[:, :cut])
    merged.merge(histogram_of(x[:, cut:]))
    assert same(merged, histogram_of(x))


def test_histograms_of_other_sizes_are_not_merged() -> None:
    with pytest.raises(CalibrationError, match="1 groups x 8 bins cannot be merged into one of 1 x 16"):
        histogram_of(torch.ones(1, 1)).merge(histogram_of(torch.ones(1, 1), bins=8))


def test_large_tensors_are_counted_in_pieces() -> None:
    x = torch.randn(3, 200_000)
    histogram = histogram_of(x, bins=256)
    assert histogram.counts.sum(dim=1).tolist() == [200_000] * 3


@pytest.mark.parametrize("value", [0.0, 1e-45, -1e-38, 3.4e38, -3.4e38])
def test_extreme_magnitudes_keep_their_sign(value: float) -> None:
    counts = histogram_of(torch.tensor([[value]])).counts[0]
    assert counts[:8].sum().item() == (value < 0) and counts[8:].sum().item() == (value >= 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(CalibrationError, match="NaN or infinity"):
        histogram_of(torch.tensor([[1.0, value]]))


def test_empty_until_something_is_observed() -> None:
    histogram = histogram_of(torch.zeros(1, 0))
    assert histogram.empty
    histogram.observe(torch.zeros(1, 1))
    assert not histogram.empty


def test_many_groups_get_fewer_bins() -> None:
    assert [default_bins(groups) for groups in (1, 64, 65, 128, 768, 30522)] == [
        4096,
        4096,
        2048,
        2048,
        512,
        512,
    ]


def test_power_of_two_is_exact() -> None:
    exponents = torch.tensor([-120, -1, 0, 1, 128])
    assert power_of_two(exponents).tolist() == [2.0**e for e in exponents.tolist()]


def test_a_tiny_negative_number_stays_negative_beside_a_huge_one() -> None:
    counts = histogram_of(torch.tensor([[-4.5e-24, 3.7e22]])).counts[0]
    # R = 2^75 = 3.78e22 in 16 bins: 3.7e22 is 7.8 bins above the middle one, the other just below it.
    assert counts.nonzero().flatten().tolist() == [7, 15]


def weighted(x: torch.Tensor, importance: list[float]) -> Histogram:
    histogram = Histogram(torch.zeros(len(x), dtype=torch.int64), 8, torch.tensor(importance))
    histogram.observe(x)
    return histogram


def test_importance_is_relative_to_the_largest_of_the_group() -> None:
    counts = weighted(torch.tensor([[-0.9, 0.1], [0.1, 0.9]]), [0.5, 2.0]).counts
    assert (counts / FULL_IMPORTANCE).tolist() == [[0.25, 0, 0, 0, 1.25, 0, 0, 1]]


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(0, 30))
def test_cutting_does_not_matter_with_importance(values: list[float], cut: int) -> None:
    x = torch.tensor([values, values[::-1]])
    whole, parts = weighted(x, [1.0, 0.3]), weighted(x[:, :cut], [1.0, 0.3])
    parts.merge(weighted(x[:, cut:], [1.0, 0.3]))
    assert same(parts, whole)


def test_histograms_of_other_importance_are_not_merged() -> None:
    x = torch.ones(2, 1)
    with pytest.raises(CalibrationError, match="differ in importance"):
        weighted(x, [1.0, 2.0]).merge(weighted(x, [1.0, 3.0]))


@pytest.mark.parametrize("importance", [[1.0], [1.0, -1.0], [1.0, math.nan], [math.inf, 1.0]], ids=str)
def test_senseless_importance_is_refused(importance: list[float]) -> None:
    with pytest.raises(SpecError, match=r"given for 2 channels; give one finite number for each channel"):
        weighted(torch.ones(2, 1), importance)
