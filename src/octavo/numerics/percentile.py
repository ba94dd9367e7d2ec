"""Ranges that leave out the same small share of the data at both ends."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.errors import SpecError
from octavo.numerics.histogram import Histogram, power_of_two
from octavo.numerics.min_max import Range


def check_percent(percent: float) -> None:
    """Refuse a percentile that leaves no range between its two ends."""
    if not 50 < percent <= 100:
        raise SpecError(f"the percentile {percent} was asked for; use a number above 50 and at most 100.")


def percentile_range(x: Tensor, index: Tensor, percent: float) -> Range:
    """Return the range of every group of `x`, (channels, members), between its two percentiles."""
    histogram = Histogram(index)
    histogram.observe(x)
    return percentile_of_histogram(histogram, percent)


def percentile_of_histogram(histogram: Histogram, percent: float) -> Range:
    """Return the values (groups,) below which 100 - `percent` and `percent` per cent of the data lie."""
    check_percent(percent)
    histogram.require_data()
    share = percent / 100
    return _value_at(histogram, 1 - share), _value_at(histogram, share)


def _value_at(histogram: Histogram, share: float) -> Tensor:
    """Return where `share` of the mass is reached (groups,), linear in a bin, never outside the data."""
    counts = histogram.counts.double()
    mass = counts.cumsum(dim=1)
    target = mass[:, -1:] * share
    # Rounding of the product must not push the target past the last bin.
    bin = torch.searchsorted(mass, target).clamp_(max=histogram.bins - 1)
    inside = counts.gather(1, bin)
    into_bin = (target - (mass.gather(1, bin) - inside)) / inside.clamp(min=1)
    value = (bin + into_bin.clamp(0, 1)).squeeze(1) / (histogram.bins // 2) - 1
    value = (value * power_of_two(histogram.exponent)).float()
    return torch.clamp(value, histogram.minimum, histogram.maximum)
