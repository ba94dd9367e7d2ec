"""Candidates: the changes of channels that equalization chooses among, made from ranges and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.graph import QuantizedEncoder
from octavo.graph.rewrites.channels import Channels, gamma_of
from octavo.graph.rewrites.fold import Change
from octavo.methods.equalization.observing import Observed
from octavo.numerics.equalization import (
    centres,
    gamma_factors,
    power_factors,
    smooth_factors,
    threshold_at,
    threshold_factors,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranges:
    """What a change is made from; all (width,).

    Arguments:
        low, high: the least and the largest value of every channel; of values, not their context.
        weights: the largest weight of the column that reads each channel.
        gamma: the weight of the norm that makes the channels, if one does.
        queries: of queries, low and high being those of the keys that they meet.
    """

    low: Tensor
    high: Tensor
    weights: Tensor
    gamma: Tensor | None = None
    queries: tuple[Tensor, Tensor] | None = None

    def reach(self, shift: Tensor | None = None) -> Tensor:
        """max |x - shift| of every channel."""
        return _reach(self.low, self.high, torch.zeros_like(self.low) if shift is None else shift)


def _reach(low: Tensor, high: Tensor, offset: Tensor | float = 0.0) -> Tensor:
    return torch.maximum((low - offset).abs(), (high - offset).abs())


def ranges_of(
    model: QuantizedEncoder, group: Sequence[Channels], seen: Mapping[str, Observed], half: int | None = None
) -> Ranges:
    """Return the ranges of channels that share weights: the widest of any of them, in one half or both.

    Where values and their context share factors, the ranges are those of the values: averages stay within
    them on every text, whatever the calibration data show of the context.
    """
    weights = torch.zeros(group[0].width)
    for reader in (reader for channels in group for reader in channels.readers):
        largest = model.graph.get_parameter(reader.weight).detach().abs().amax(0).float().cpu()
        weights.scatter_reduce_(0, reader.columns, largest, "amax")
    queries = [(c, name) for c in group if c.keys for name in c.sites if name not in c.keys]
    others = [(c, name) for c in group for name in _leading(c)]
    low, high = _widest(others or queries, seen, half)
    return Ranges(
        low=low,
        high=high,
        weights=weights,
        gamma=gamma_of(model, group[0]),
        queries=_widest(queries or others, seen, half) if group[0].is_pair else None,
    )


def _leading(channels: Channels) -> list[str]:
    """The sites whose ranges count: keys, or values, or the one site there is."""
    if channels.is_pair:
        return list(channels.keys)
    return [name for name in channels.sites if name != channels.read] or list(channels.sites)


def _widest(
    sites: Sequence[tuple[Channels, str]], seen: Mapping[str, Observed], half: int | None
) -> tuple[Tensor, Tensor]:
    ends = [_by_channel(channels, name, seen[name].extremes(half)) for channels, name in sites]
    return torch.stack([low for low, _ in ends]).amin(0), torch.stack([high for _, high in ends]).amax(0)


def _by_channel(channels: Channels, site: str, extremes: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the range of every channel from that of every element."""
    index = channels.sites[site]
    low, high = torch.full((channels.width,), torch.inf), torch.full((channels.width,), -torch.inf)
    low.scatter_reduce_(0, index, extremes[0].float(), "amin")
    high.scatter_reduce_(0, index, extremes[1].float(), "amax")
    return low, high


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to change channels; `make` turns ranges into factors.

    Arguments:
        way: nothing, power, smooth, gamma or threshold.
        amount: the power or alpha, or which of the thresholds, from 0 (the largest value) to 1 (the median).
        shift: channels are centred, too.
    """

    way: str = "nothing"
    amount: float = 0.0
    shift: bool = False

    def make(self, ranges: Ranges) -> Change:
        """Return the change for channels with these ranges."""
        shift = centres(ranges.low, ranges.high) if self.shift else None
        if ranges.queries is not None:
            return Change(self._of_pairs(ranges, ranges.queries, shift), shift)
        return Change(self._factors(ranges, shift), shift)

    def _factors(self, ranges: Ranges, shift: Tensor | None) -> Tensor:
        if self.way == "power":
            return power_factors(ranges.high - ranges.low, self.amount)
        reach = ranges.reach(shift)
        if self.way == "smooth":
            return smooth_factors(reach, ranges.weights, self.amount)
        if self.way == "gamma" and ranges.gamma is not None:
            return gamma_factors(ranges.gamma)
        if self.way == "threshold":
            return threshold_factors(reach, threshold_at(reach, self.amount))
        return torch.ones_like(reach)

    def _of_pairs(self, ranges: Ranges, queries: tuple[Tensor, Tensor], shift: Tensor | None) -> Tensor:
        """Return what divides queries and multiplies keys: a power of one makes their ranges equal."""
        keys, reach = ranges.reach(shift), _reach(*queries)
        if self.way == "power":
            return power_factors(reach / keys.clamp(min=torch.finfo(keys.dtype).tiny), self.amount / 2)
        if self.way == "smooth":
            return smooth_factors(reach, keys, self.amount)
        if self.way == "threshold":
            return 1 / threshold_factors(keys, threshold_at(keys, self.amount))
        return torch.ones_like(keys)
