"""Factors to fold: how much each embedding dimension of an activation is divided by, from its range."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from octavo.errors import OctavoWarning
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.rewrites.fold import fold, folded_sites, unfoldable_sites, weights_read
from octavo.methods.calibration.permutation import channel_ranges
from octavo.spec import Folded

SMALLEST = 1e-3
"""A dimension that hardly moves keeps this much of its weight's column, so that noise is not blown up."""


def fold_ranges(model: QuantizedEncoder, batches: Sequence[Mapping[str, Tensor]]) -> QuantizedEncoder:
    """Fold `range ** power` of every dimension of the folded sites, ranges taken over *all* batches.

    Sites that the same weight reads (layers that share parameters) share their factors. Sites that something
    else than a linear layer reads keep one range for all dimensions, with a warning.
    """
    rest = unfoldable_sites(model)
    if rest:
        warnings.warn(
            f"{len(rest)} sites are not folded, as not only linear layers read them (the first is {rest[0]})",
            OctavoWarning,
            stacklevel=2,
        )
    sites = folded_sites(model)
    ranges = _float_ranges(model, sites, batches)
    factors = {}
    for names in _sharing(weights_read(model)):
        largest = torch.stack([ranges[name] for name in names]).amax(0)
        for name in names:
            factors[name] = _factor(largest, sites[name])
    return fold(model, factors)


def _float_ranges(
    model: QuantizedEncoder, sites: Mapping[str, Quantizer], batches: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    with switched_off(model.quantizers.values()):
        return channel_ranges(model, sites, batches)


def _factor(ranges: Tensor, quantizer: Quantizer) -> Tensor:
    granularity = quantizer.spec.granularity
    assert isinstance(granularity, Folded)
    relative = ranges / ranges.max().clamp(min=torch.finfo(ranges.dtype).tiny)
    return (relative**granularity.power).clamp(min=SMALLEST)


def _sharing(reads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Sites in groups: those connected by weights that they share."""
    groups: list[tuple[set[str], list[str]]] = []
    for name, weights in reads.items():
        paths, names = set(weights), [name]
        for group in [g for g in groups if g[0] & paths]:
            groups.remove(group)
            paths, names = paths | group[0], group[1] + names
        groups.append((paths, names))
    return [names for _, names in groups]
