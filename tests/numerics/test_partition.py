from __future__ import annotations

import math
import time
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import CalibrationError, SpecError
from octavo.numerics.partition import distinct_ranges, optimal_groups

ends = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(sorted)


def cost(low: np.ndarray, high: np.ndarray, index: np.ndarray) -> float:
    """Size times squared range, 0 included, summed over the groups."""
    total = 0.0
    for group in np.unique(index):
        members = index == group
        total += members.sum() * (max(high[members].max(), 0) - min(low[members].min(), 0)) ** 2
    return float(total)


def least_cost(low: np.ndarray, high: np.ndarray, groups: int) -> float:
    """The least cost of all cuts of the channels in the order of their ranges."""
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    order = np.lexsort((low, high - low))
    cuts = combinations(range(1, len(low)), groups - 1)
    sizes = (np.diff([0, *cut, len(low)]) for cut in cuts)
    indices = (np.repeat(np.arange(groups), size) for size in sizes)
    return min(cost(low[order], high[order], index) for index in indices)


@given(st.lists(ends, min_size=1, max_size=9), st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_equals_the_best_of_all_cuts(ranges: list[list[int]], groups: int) -> None:
    minimum, maximum = torch.tensor(ranges, dtype=torch.float32).T
    groups = min(groups, distinct_ranges(minimum, maximum))
    index = optimal_groups(minimum, maximum, groups)
    assert sorted(set(index.tolist())) == list(range(groups))
    low, high = minimum.double().numpy(), maximum.double().numpy()
    assert cost(low, high, index.numpy()) == least_cost(low, high, groups)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=10, unique=True), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_no_grouping_of_symmetric_ranges_is_better(reach: list[int], groups: int) -> None:
    """For ranges around 0 runs of the order are best among all groupings, by an exchange of two channels."""
    groups = min(groups, len(reach))
    high = np.array(reach, dtype=np.float64)
    index = optimal_groups(-torch.tensor(high), torch.tensor(high), groups).numpy()
    ours = cost(-high, high, index)
    generator = np.random.default_rng(0)
    for _ in range(50):
        assert ours <= cost(-high, high, generator.integers(0, groups, len(reach)))


@given(st.lists(st.tuples(ends, ends, ends), min_size=1, max_size=8), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_several_tensors_are_cut_at_the_least_summed_cost(
    ranges: list[tuple[list[int], ...]], groups: int
) -> None:
    low, high = torch.tensor(ranges, dtype=torch.float64).permute(2, 1, 0)
    groups = min(groups, distinct_ranges(low, high))
    index = optimal_groups(low, high, groups).numpy()
    assert sorted(set(index.tolist())) == list(range(groups))
    extent = np.maximum(high.numpy(), 0) - np.minimum(low.numpy(), 0)
    noise = (extent**2).sum(0)
    assert all(noise[index == k].max() <= noise[index == k + 1].min() for k in range(groups - 1))

    def summed(index: np.ndarray) -> float:
        return sum(cost(a, b, index) for a, b in zip(low.numpy(), high.numpy(), strict=True))

    # all cuts of the order in which equal channels are neighbours; within equal noise it is free
    order = np.lexsort((*np.minimum(low.numpy(), 0)[::-1], *np.maximum(high.numpy(), 0)[::-1], noise))
    best = math.inf
    for cut in combinations(range(1, len(order)), groups - 1):
        tried = np.empty(len(order), dtype=np.int64)
        tried[order] = np.repeat(np.arange(groups), np.diff([0, *cut, len(order)]))
        best = min(best, summed(tried))
    assert summed(index) == best


def test_one_tensor_may_be_given_as_a_row() -> None:
    low, high = torch.randn(2, 40, generator=torch.Generator().manual_seed(1)).sort(dim=0).values
    assert torch.equal(optimal_groups(low, high, 5), optimal_groups(low[None], high[None], 5))


def test_equal_tensors_are_cut_like_one() -> None:
    low, high = torch.randn(2, 40, generator=torch.Generator().manual_seed(2)).sort(dim=0).values
    twice = optimal_groups(low.expand(2, -1), high.expand(2, -1), 5)
    assert torch.equal(twice, optimal_groups(low, high, 5))


def test_ranges_are_distinct_if_any_tensor_tells_them_apart() -> None:
    reach = torch.tensor([[1.0, 1.0, 2.0], [1.0, 3.0, 1.0]])
    assert distinct_ranges(-reach, reach) == 3
    assert distinct_ranges(-reach[0], reach[0]) == 2


def test_an_outlier_has_a_group_of_its_own() -> None:
    reach = torch.ones(768)
    reach[[308, 381]] = torch.tensor([60.0, 50.0])
    index = optimal_groups(-reach, reach, 3)
    assert index[[381, 308]].tolist() == [1, 2] and index.bincount().tolist() == [766, 1, 1]


def test_more_groups_cost_less() -> None:
    low, high = torch.randn(2, 40, generator=torch.Generator().manual_seed(0)).sort(dim=0).values
    costs = [cost(low.numpy(), high.numpy(), optimal_groups(low, high, k).numpy()) for k in range(1, 10)]
    assert all(after < before for before, after in pairwise(costs))


def test_groups_are_numbered_from_the_narrowest() -> None:
    high = torch.tensor([8.0, 1.0, 4.0, 2.0])
    assert optimal_groups(torch.zeros(4), high, 4).tolist() == [3, 0, 2, 1]


def test_zero_belongs_to_every_range() -> None:
    # [5, 6] is quantized on a grid over [0, 6], so it goes with [0, 5.9] and not with [0, 1].
    low, high = torch.tensor([5.0, 0.0, 0.0]), torch.tensor([6.0, 1.0, 5.9])
    assert optimal_groups(low, high, 2).tolist() == [1, 0, 1]


def test_more_groups_than_distinct_ranges_are_refused() -> None:
    reach = torch.tensor([1.0, 2.0, 1.0, 2.0])
    assert distinct_ranges(-reach, reach) == 2
    with pytest.raises(
        SpecError, match="3 groups were asked for over channels of 2 distinct ranges; use 1 to 2"
    ):
        optimal_groups(-reach, reach, 3)
    with pytest.raises(SpecError, match="0 groups were asked for"):
        optimal_groups(-reach, reach, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_ranges_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(CalibrationError, match="NaN or infinity"):
        optimal_groups(torch.zeros(2), torch.tensor([1.0, value]), 1)


@pytest.mark.parametrize(
    "shapes", [((2,), (3,)), ((2, 2, 2), (2, 2, 2)), ((0,), (0,)), ((2, 0), (2, 0))], ids=str
)
def test_other_shapes_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(SpecError, match="give one of each for every channel"):
        optimal_groups(torch.zeros(shapes[0]), torch.zeros(shapes[1]), 1)


def test_the_width_of_a_feed_forward_layer_takes_a_moment() -> None:
    low, high = torch.randn(2, 3072, generator=torch.Generator().manual_seed(0)).sort(dim=0).values
    start = time.process_time()
    optimal_groups(low, high, 8)
    # 0.05 s of one core, 0.07 s for three tensors; the bound only tells it from a cubic algorithm.
    assert time.process_time() - start < 2
