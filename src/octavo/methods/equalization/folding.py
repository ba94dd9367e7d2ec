"""Folding: how much each embedding dimension of an activation is divided by, from its range."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from octavo.errors import OctavoWarning, SpecError
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.rewrites.fold import fold, foldable, is_folded
from octavo.methods.calibration.permutation import channel_ranges
from octavo.methods.context import Context
from octavo.spec import Fold
from octavo.spec.granularity import axis_size

SMALLEST = 1e-3
"""A dimension that hardly moves keeps this much of its weight's column, so that noise is not blown up."""


def run(model: QuantizedEncoder, done: Fold, context: Context) -> QuantizedEncoder:
    """Fold `range ** power` of every dimension of the pass's sites, ranges taken over *all* batches.

    Sites that the same weight reads (layers that share parameters) share their factors. Sites whose factors
    cannot go into weights (see `foldable`) keep one range for all dimensions, with a warning.
    """
    asked = _asked(model, done)
    reads = foldable(model, asked)
    rest = [name for name in asked if name not in reads]
    if rest:
        warnings.warn(
            f"{len(rest)} sites are not folded, as not only linear layers read them, or their weights are "
            f"shared with layers that read other tensors (the first is {rest[0]})",
            OctavoWarning,
            stacklevel=2,
        )
    sites = {name: asked[name] for name in reads}
    with switched_off(model.quantizers.values()):
        ranges = channel_ranges(model, sites, context.batches)
    factors = {}
    for names in _sharing(reads):
        largest = torch.stack([ranges[name] for name in names]).amax(0)
        for name in names:
            factors[name] = _factor(largest, done.power)
    return fold(model, done, {name: factors[name] for name in sites})


def replay(model: QuantizedEncoder, done: Fold, saved: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Rewrite a model at the sites that were folded; its norms and weights are still to be loaded."""
    sites = {name: q for name, q in _asked(model, done).items() if is_folded(name, saved)}
    return fold(model, done, {name: torch.ones(q.site.width or 0) for name, q in sites.items()})


def _asked(model: QuantizedEncoder, done: Fold) -> dict[str, Quantizer]:
    """Return the activation quantizers that the pass names; what it cannot mean is an error."""
    activations = {name: q for name, q in model.quantizers.items() if q.site.kind == "activation"}
    asked = {name: q for name, q in activations.items() if done.applies(name, q.site.role)}
    for name, quantizer in asked.items():
        axis_size(quantizer.site, quantizer.site.channel_axis, done.variant_name)
        if not quantizer.spec.granularity.has_one_scale:
            raise SpecError(
                f"fold: {name} has {quantizer.spec.granularity.variant_name} ranges, and folding makes one "
                "range do; use per-tensor there, or skip it"
            )
        if any(
            isinstance(entry, Fold) and entry.applies(name, quantizer.site.role) for entry in model.passes
        ):
            raise SpecError(f"fold: two passes name {name}; let one of them skip it")
    return asked


def _factor(ranges: Tensor, power: float) -> Tensor:
    relative = ranges / ranges.max().clamp(min=torch.finfo(ranges.dtype).tiny)
    return (relative**power).clamp(min=SMALLEST)


def _sharing(reads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return sites in groups: those connected by weights that they share."""
    groups: list[tuple[set[str], list[str]]] = []
    for name, weights in reads.items():
        paths, names = set(weights), [name]
        for group in [g for g in groups if g[0] & paths]:
            groups.remove(group)
            paths, names = paths | group[0], group[1] + names
        groups.append((paths, names))
    return [names for _, names in groups]
