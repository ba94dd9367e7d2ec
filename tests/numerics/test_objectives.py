"""Every estimator against min-max, each by what it is made to minimise.

| estimator       | objective                                                                           |
|-----------------|-------------------------------------------------------------------------------------|
| min-max         | how much of the last batch lies outside the range                                   |
| all-min-max     | how much of everything seen lies outside the range                                  |
| running-min-max | mean squared distance to the ranges of the batches, weighted as momentum says       |
| percentile      | width of the range, at most the chosen share being outside at either end            |
| token-quantile  | width of the range, at most the chosen share of tokens reaching beyond either end   |
| mse             | mean squared quantization error, of the histogram exactly, of the data within 2 bins |
| cross-entropy   | cross-entropy of the quantized rows' softmax                                        |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from octavo.graph.quantizers.ranges import make_estimator
from octavo.numerics import (
    HistogramMse,
    Range,
    RangeEstimator,
    affine_from_range,
    by_channel,
    fake_quantize,
    group_index,
    min_max,
)
from octavo.numerics.histogram import power_of_two
from octavo.numerics.mse import THINNEST, Data, bin_errors
from octavo.spec import TensorSpec
from octavo.spec.estimator import ESTIMATORS

CHANNELS = 4
BITS = (2, 3, 4, 6, 8, 16)
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda x: x,
    "outlier above": lambda x: torch.cat([x[:1] + 300, x[1:]]),
    "outlier below": lambda x: torch.cat([x[:1] - 300, x[1:]]),
    "heavy tails": lambda x: (3 * x).sinh(),
    "positive": lambda x: x.square(),
    "negative": lambda x: -x.square(),
    "rectified": lambda x: x.clamp(min=0),
    "whole numbers": lambda x: (2 * x).round(),
    "constant": lambda x: torch.full_like(x, 0.7),
    "zeros": torch.zeros_like,
    "tiny": lambda x: x * 1e-30,
    "huge": lambda x: x * 1e30,
}

Batches = list[Tensor]
"""What was observed: (members, channels) each."""
Objective = Callable[[RangeEstimator, Batches, Range], Tensor]
"""From what was observed and a range to a loss of each group, (groups,)."""


def outside(x: Tensor, index: Tensor, found: Range) -> Tensor:
    """Return the mean distance of the members of each group to its range."""
    low, high = (end.double()[index].unsqueeze(1) for end in found)
    x = by_channel(x.double(), -1)
    distance = (low - x).clamp(min=0) + (x - high).clamp(min=0)
    return torch.zeros(int(index.max()) + 1).double().scatter_add_(0, index, distance.mean(dim=1))


def outside_the_last(estimator: RangeEstimator, batches: Batches, found: Range) -> Tensor:
    return outside(batches[-1], estimator.index, found)


def outside_of_all(estimator: RangeEstimator, batches: Batches, found: Range) -> Tensor:
    return outside(torch.cat(batches), estimator.index, found)


def distance_to_batches(estimator: RangeEstimator, batches: Batches, found: Range) -> Tensor:
    momentum: float = estimator.momentum  # type: ignore[attr-defined]
    loss = torch.zeros(estimator.groups).double()
    for number, batch in enumerate(batches):
        weight = momentum ** (len(batches) - 1 - number) * (1 - momentum if number else 1)
        ends = min_max(by_channel(batch, -1), estimator.index, estimator.groups)
        for ours, theirs in zip(found, ends, strict=True):
            loss += weight * (ours.double() - theirs.double()).square()
    return loss


def width(estimator: RangeEstimator, batches: Batches, found: Range) -> Tensor:
    return found[1].double() - found[0].double()


def squared_error(estimator: RangeEstimator, batches: Batches, found: Range) -> Tensor:
    """Return the expected squared error of the histogram by its closed form, tested beside it."""
    assert isinstance(estimator, HistogramMse)
    histogram = estimator.histogram
    grid = affine_from_range(*found, estimator.bits, estimator.symmetric)
    unit = power_of_two(histogram.exponent)
    data = Data(histogram.counts.double(), histogram.minimum / unit, histogram.maximum / unit).ends_apart()
    shift = (grid.zero_point - grid.low).double()
    errors = bin_errors(data.edges(), grid.scale.double() / unit, shift, grid.high - grid.low)
    loss = (errors * data.counts).sum(dim=1) / data.counts.sum(dim=1)
    return loss.clamp(min=THINNEST**2)  # below, it is the width of the bins at the ends and nothing else


def cross_entropy(estimator: RangeEstimator, batches: Batches, found: Range) -> Tensor:
    rows = torch.cat(batches).double()
    grid = affine_from_range(*found, estimator.bits, estimator.symmetric)
    quantized = fake_quantize(rows, grid.scale, grid.zero_point, grid.low, grid.high)
    return -(rows.softmax(dim=1) * quantized.log_softmax(dim=1)).sum(dim=1).mean().reshape(1)


OBJECTIVES: dict[str, Objective] = {
    "min-max": outside_the_last,
    "all-min-max": outside_of_all,
    "running-min-max": distance_to_batches,
    "percentile": width,
    "token-quantile": width,
    "mse": squared_error,
    "cross-entropy": cross_entropy,
}


def rounding(bits: int) -> float:
    """Return what a loss may gain as its range is rounded to float32, which moves 2^bits steps by an ulp."""
    return max(1e-5, 2.0 ** (bits - 22))


def objective(name: str) -> Objective:
    if name not in OBJECTIVES:
        pytest.fail(f"the estimator {name} has no objective here; add to OBJECTIVES what it minimises")
    return OBJECTIVES[name]


def watch(estimator: RangeEstimator, batches: Batches) -> Range:
    for batch in batches:
        estimator.observe(batch if estimator.reads_rows else by_channel(batch, -1))
        estimator.commit()
    return estimator.range()


@st.composite
def observations(draw: st.DrawFn) -> Batches:
    """Up to three batches of one shape of distribution, (members, channels) each."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    make = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    sizes = draw(st.lists(st.integers(1, 200), min_size=1, max_size=3))
    return [make(torch.randn(size, CHANNELS, generator=generator)) for size in sizes]


@pytest.mark.parametrize("name", ESTIMATORS)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_never_worse_than_min_max_on_its_own_objective(name: str, data: st.DataObject) -> None:
    loss = objective(name)
    spec = TensorSpec(bits=data.draw(st.sampled_from(BITS)), symmetric=data.draw(st.booleans()))
    spec = replace(spec, estimator=ESTIMATORS[name]())
    reads_rows = make_estimator(spec, torch.zeros(1, dtype=torch.long)).reads_rows
    groups = 1 if reads_rows else data.draw(st.integers(1, CHANNELS))
    index = torch.zeros(1, dtype=torch.long) if reads_rows else group_index(CHANNELS, groups)
    batches = data.draw(observations())
    estimator = make_estimator(spec, index)
    found = watch(estimator, batches)
    everything = by_channel(torch.cat(batches), None if reads_rows else -1)
    full = min_max(everything, index, groups)
    ours, theirs = loss(estimator, batches, found), loss(estimator, batches, full)
    assert bool((ours <= theirs * (1 + rounding(spec.bits))).all()), (ours, theirs)


def test_an_estimator_without_an_objective_is_named() -> None:
    with pytest.raises(pytest.fail.Exception, match="estimator clairvoyant has no objective"):
        objective("clairvoyant")


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", BITS)
@given(observations(), st.integers(1, CHANNELS))
@settings(max_examples=10, deadline=None)
def test_mse_on_the_data_is_within_two_bins_of_min_max(
    bits: int, symmetric: bool, batches: Batches, groups: int
) -> None:
    index = group_index(CHANNELS, groups)
    estimator = HistogramMse(index, bits=bits, symmetric=symmetric)
    found = watch(estimator, batches)
    x = by_channel(torch.cat(batches), -1)
    bins = 2 * power_of_two(estimator.histogram.exponent) / estimator.histogram.bins
    for group in range(groups):
        part = x[index == group].double()
        ours, theirs = (
            root_mean_squared_error(part, (low[group], high[group]), bits, symmetric, bool((x < 0).any()))
            for low, high in (found, min_max(x, index, groups))
        )
        assert ours <= theirs * (1 + rounding(bits)) + 2 * bins[group].item()


def root_mean_squared_error(x: Tensor, found: Range, bits: int, symmetric: bool, signed: bool) -> float:
    grid = affine_from_range(*found, bits, symmetric, signed if symmetric else None)
    return (
        (fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high) - x).square().mean().sqrt().item()
    )


@pytest.mark.parametrize("percent", [75.0, 99.0, 99.999])
@given(observations())
@settings(max_examples=20, deadline=None)
def test_percentile_leaves_out_no_more_than_it_may(percent: float, batches: Batches) -> None:
    spec = TensorSpec(estimator=replace(ESTIMATORS["percentile"](), percent=percent))
    estimator = make_estimator(spec, torch.zeros(1, dtype=torch.long))
    x = torch.cat(batches).double()
    low, high = watch(estimator, [batch.reshape(-1, 1) for batch in batches])
    bin = 2 * power_of_two(estimator.histogram.exponent) / estimator.histogram.bins  # type: ignore[attr-defined]
    allowed = (1 - percent / 100) * x.numel()
    assert (x < low - bin).sum().item() <= allowed and (x > high + bin).sum().item() <= allowed
